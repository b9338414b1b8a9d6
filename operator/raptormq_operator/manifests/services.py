"""Headless Services, which give pods stable DNS names, the Services of leaders, and disruption budgets.

The Services publish addresses of pods that are not ready. A broker must be able to resolve its own name, and a client
of a starting broker gets a refused connection, which it retries, instead of an unknown host, which resolvers cache.

The Service of a leader has a cluster IP, which does not change with the leader. Its selector names the member, so that
one update of the Service redirects clients and no pod is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from raptormq_operator.manifests.metadata import Manifest, metadata
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster

_NOBODY = "none"
"""Value of the member label that no pod has. A Service that selects it refuses connections."""


def name_server_service(cluster: Cluster) -> Manifest:
    """Return the headless Service of the name servers."""
    labels = names.name_server_labels(cluster.name)
    ports = [("remoting", names.NAME_SERVER_PORT), ("metrics", cluster.metrics_port)]
    return _headless(cluster, names.name_server(cluster.name), labels, ports)


def group_service(cluster: Cluster, group: int) -> Manifest:
    """Return the headless Service of a broker group."""
    labels = names.broker_labels(cluster.name, group)
    ports = [("remoting", names.BROKER_PORT), ("metrics", cluster.metrics_port)]
    ports += replication_ports(cluster).items()
    return _headless(cluster, names.group_service(cluster.name, group), labels, ports)


def leader_service(cluster: Cluster, group: int, index: int | None) -> Manifest:
    """Return the Service of a group's leader, the member `index`. Without a leader the Service selects no pod. It
    includes pods that are not ready, because only the open port shows whether the leader serves clients.
    """
    labels = names.broker_labels(cluster.name, group)
    selector = labels | {names.MEMBER_LABEL: _NOBODY if index is None else str(index)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(cluster, names.leader_service(cluster.name, group), labels),
        "spec": {
            "type": "ClusterIP",
            "publishNotReadyAddresses": True,
            "selector": selector,
            "ports": [{"name": "remoting", "port": names.BROKER_PORT, "targetPort": "leader", "protocol": "TCP"}],
        },
    }


def led_to(service: Mapping[str, Any]) -> int | None:
    """Return the index of the member that the Service of a leader selects; None if it selects none."""
    member = service.get("spec", {}).get("selector", {}).get(names.MEMBER_LABEL, _NOBODY)
    return int(member) if member.isdecimal() else None


def name_server_budget(cluster: Cluster) -> Manifest:
    """Return the disruption budget of the name servers: at most one is evicted at a time."""
    return _budget(cluster, names.name_server(cluster.name), names.name_server_labels(cluster.name))


def broker_budgets(cluster: Cluster, forming: Collection[int] = ()) -> list[Manifest]:
    """Return the disruption budgets of the brokers. Without replication, one broker of the cluster may be evicted at a
    time; otherwise a drain could evict all groups at once. With replication, one broker of each group may be evicted at
    a time.

    The members of a `forming` group wait for the broker that has its data and does not run as a member yet, or that
    becomes their master. The budget must not prevent the restart of that broker.
    """
    if not cluster.is_replicated:
        return [_budget(cluster, names.brokers(cluster.name), names.broker_labels(cluster.name))]
    return [
        _budget(
            cluster,
            names.group_service(cluster.name, group),
            names.broker_labels(cluster.name, group),
            len(cluster.group(group)) if group in forming else 1,
        )
        for group in range(cluster.groups)
    ]


def replication_ports(cluster: Cluster) -> dict[str, int]:
    """Return name and number of the port for replication between the members of a group."""
    if cluster.is_dledger:
        return {"replication": names.REPLICATION_PORT}
    return {"ha": names.HA_PORT} if cluster.is_master_slave else {}


def _headless(cluster: Cluster, name: str, labels: dict[str, str], ports: list[tuple[str, int]]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(cluster, name, labels),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [
                {"name": port_name, "port": port, "targetPort": port_name, "protocol": "TCP"}
                for port_name, port in ports
            ],
        },
    }


def _budget(cluster: Cluster, name: str, labels: dict[str, str], unavailable: int = 1) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(cluster, name, labels),
        "spec": {
            "maxUnavailable": unavailable,
            "selector": {"matchLabels": labels},
            # A pod that is not ready serves no client, so it must not block a drain or an update.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
