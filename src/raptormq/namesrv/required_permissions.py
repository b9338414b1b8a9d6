"""Permissions that requests to a name server require (``RocketMQAction`` of the headers in ``header.namesrv``).

A request requires Get or Update on its clusters, or on all clusters (``Cluster:*``) if it contains none. A registration
can displace brokers of other clusters. It then requires Update on these clusters, too.

RocketMQ's name servers have no authorization. Two requests differ from the annotations of RocketMQ's headers. The
deletion of a topic (216) requires the same permission as on a broker (215). A route (105) requires any permission on
the topic, unless the white list contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from raptormq.namesrv.table import RouteTable
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.security.gate import PermissionResolver
from raptormq.security.resources import RequiredPermission, Resource, resources_of

_EVERY_CLUSTER = "*"
_GET, _UPDATE = ("Get",), ("Update",)
_TOPIC_PEERS, _GROUP_PEERS = ("Pub", "Sub", "Get"), ("Sub", "Get")
_READS = frozenset(
    {
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
    }
)
"""Read-only requests. All other requests require Update."""

_NAMED: dict[int, tuple[str, ...]] = {
    RequestCode.REGISTER_BROKER: ("clusterName", "brokerName", "brokerAddr"),
    RequestCode.UNREGISTER_BROKER: ("clusterName", "brokerName", "brokerAddr"),
    RequestCode.BROKER_HEARTBEAT: ("clusterName", "brokerName", "brokerAddr"),
    RequestCode.QUERY_DATA_VERSION: ("clusterName", "brokerName", "brokerAddr"),
    RequestCode.GET_BROKER_MEMBER_GROUP: ("clusterName", "brokerName"),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: ("brokerName",),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: ("brokerName",),
    RequestCode.GET_TOPICS_BY_CLUSTER: ("cluster",),
}
"""Header fields that determine the clusters of a request, by request code."""


def permission_resolver(table: RouteTable) -> PermissionResolver:
    """Return the function that determines the required permissions of requests to the name server of ``table``."""
    return partial(permissions_of, table=table)


def permissions_of(request: RemotingCommand, table: RouteTable) -> list[RequiredPermission]:
    """Return the permissions that ``request`` requires."""
    fields = request.ext_fields
    if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        return [
            RequiredPermission(resource, _GROUP_PEERS if resource.kind == "Group" else _TOPIC_PEERS)
            for resource in resources_of(fields.get("topic") or "")
        ]
    if request.code == RequestCode.DELETE_TOPIC_IN_NAMESRV:
        return [RequiredPermission(resource, ("Delete",)) for resource in resources_of(fields.get("topic") or "")]
    actions = _GET if request.code in _READS else _UPDATE
    named = {name: fields[name] for name in _NAMED.get(request.code, ()) if fields.get(name)}
    return [
        RequiredPermission(Resource("Cluster", cluster), actions)
        for cluster in _clusters(named, table) or [_EVERY_CLUSTER]
    ]


def _clusters(named: Mapping[str, str], table: RouteTable) -> list[str]:
    """Return the clusters in the fields of a request, and the clusters of its broker name and address."""
    live = table.live.get(named.get("brokerAddr", ""))
    brokers = [named.get("brokerName", ""), live.broker_name if live else ""]
    groups = [table.groups[name] for name in brokers if name in table.groups]
    clusters = [named.get("clusterName"), named.get("cluster"), *(group.cluster for group in groups)]
    return list(dict.fromkeys(cluster for cluster in clusters if cluster))
