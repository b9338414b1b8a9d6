"""ConfigMaps with broker.conf and namesrv.conf, and the list of keys that only the operator may set.

A key is denied when another value could make a broker unreachable, change its identity, or contradict the resource.
`denied_keys` rejects them before objects are built, so the operator's keys and the user's keys never overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from raptormq.config_file import clamped, format_properties, parse_properties
from raptormq_operator.manifests.metadata import Manifest, metadata
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Member
from raptormq_operator.quantity import quantity

DATA_DIRECTORY = "/var/lib/raptormq"
CONFIG_DIRECTORY = "/etc/raptormq"
TLS_DIRECTORY = "/etc/raptormq-tls"
"""Mount point of the TLS Secret, outside `CONFIG_DIRECTORY`: a volume cannot be mounted into a read-only volume."""
TLS_CERTIFICATE = f"{TLS_DIRECTORY}/tls.crt"
TLS_KEY = f"{TLS_DIRECTORY}/tls.key"
ADMIN_DIRECTORY = "/etc/raptormq-admin"
OPERATOR_DIRECTORY = "/etc/raptormq-operator"
"""Mount points of the two Secrets of access control."""
BROKER_FILE = "broker.conf"
ROLE_KEY, SLAVE = "brokerRole", "SLAVE"
PEERS_KEY = "dLegerPeers"
SLAVE_ADDRESSES_KEY = "haSlaveAddresses"
NAME_SERVER_FILE = "namesrv.conf"
PEER_TRANSITION_KEY = "peerSecurityTransition"
"""Key of `broker.conf` with which a broker accepts its peers with and without signature and TLS."""

_ACCESS_KEYS = frozenset(
    {
        "authenticationEnabled",
        "authorizationEnabled",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "innerClientCredentialsPath",
        "superUserPaths",
    }
)
"""Keys of access control. Some are secrets, which must not be in a ConfigMap."""
DENIED_BROKER_KEYS = _ACCESS_KEYS | frozenset(
    {
        "aclEnable",
        "bindAddress",
        "brokerClusterName",
        "brokerId",
        "brokerIP1",
        "brokerIP2",
        "brokerName",
        "brokerRole",
        "preferredLeaderId",
        "controllerAddr",
        "enableControllerMode",
        "enableDLegerCommitLog",
        "fetchNameSrvAddrByDnsLookup",
        "fetchNamesrvAddrByAddressServer",
        "flushDiskType",
        "haListenPort",
        "haMasterAddress",
        "listenPort",
        "metricsHost",
        "metricsPort",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
        "namesrvAddr",
        PEER_TRANSITION_KEY,
        "rocketmqHome",
        "useTLS",
    }
)
DENIED_BROKER_PREFIXES = ("dLeger", "storePath", "tls.")
DENIED_NAME_SERVER_KEYS = _ACCESS_KEYS | frozenset(
    {
        "authConfigPath",
        "bindAddress",
        "configStorePath",
        "enableControllerInNamesrv",
        "kvConfigPath",
        "listenPort",
        "metricsHost",
        "metricsPort",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
        "rocketmqHome",
    }
)
DENIED_NAME_SERVER_PREFIXES = ("tls.",)
_REGISTRATION_KEY = "registerNameServerPeriod"
_DEFAULT_PERIOD = "10000"
_PERIOD_MS = clamped(10_000, 60_000)
"""Parser of the registration period in ms, as in brokers."""
_MOST_KEPT_MIB, _LEAST_KEPT_MIB = 1024, 96
"""Default and minimum amount of message data that brokers keep in the page cache, in MiB."""
_SPEC_FIELDS = dict.fromkeys(_ACCESS_KEYS | {"aclEnable"}, "spec.accessControl") | {
    "flushDiskType": "spec.flush",
    "metricsPort": "spec.metrics.port",
    "metricsPromExporterPort": "spec.metrics.port",
    "brokerRole": "spec.replication",
    "useTLS": "spec.tls",
}
"""Denied key -> field of the spec with the same meaning."""


def denied_keys(cluster: Cluster) -> tuple[str, ...]:
    """Return the sorted paths of denied keys in the spec: `config.brokerId`, `nameServers.config.…`. A field of the
    spec with the same meaning is appended: `config.flushDiskType (spec.flush)`."""
    broker = (
        f"config.{_with_field(key)}"
        for key in cluster.config
        if key in DENIED_BROKER_KEYS or key.startswith(DENIED_BROKER_PREFIXES)
    )
    name_server = (
        f"nameServers.config.{_with_field(key)}"
        for key in cluster.name_servers.config
        if key in DENIED_NAME_SERVER_KEYS or key.startswith(DENIED_NAME_SERVER_PREFIXES)
    )
    return tuple(sorted([*broker, *name_server]))


def _with_field(key: str) -> str:
    field = "spec.tls" if key.startswith("tls.") else _SPEC_FIELDS.get(key)
    return f"{key} ({field})" if field else key


def broker_properties(cluster: Cluster, member: Member) -> dict[str, str]:
    """Return the properties of a member's broker.conf.

    By default topics are not created automatically, as Topic resources define them. By default a broker registers every
    10 s, the minimum of RocketMQ. It resolves the name servers' Service at each registration, so name servers may be
    restarted and scaled.
    """
    return {
        "autoCreateTopicEnable": "false",
        _REGISTRATION_KEY: _DEFAULT_PERIOD,
        **_kept_in_page_cache(cluster),
        **cluster.config,
        "brokerClusterName": cluster.name,
        "brokerName": member.broker_name,
        "brokerIP1": member.host,
        **_replication_properties(cluster, member),
        "flushDiskType": f"{cluster.flush}_FLUSH",
        "listenPort": str(names.BROKER_PORT),
        "metricsPort": str(cluster.metrics_port),
        "namesrvAddr": cluster.name_server_service_address,
        "storePathRootDir": f"{DATA_DIRECTORY}/store",
        **_tls_properties(cluster),
        **_own_tls_properties(cluster),
        **(_access_properties(cluster) if cluster.authenticates else {}),
        **({PEER_TRANSITION_KEY: "true"} if cluster.peers_in_transition else {}),
    }


def _replication_properties(cluster: Cluster, member: Member) -> dict[str, str]:
    """Return the properties that define the replication of a member.

    A member of a Dledger group gets no `brokerId`, because the id depends on its role. Slaves get no `haMasterAddress`:
    they find their master through the name servers and follow a promoted master without a restart.
    """
    if cluster.is_master_slave:
        is_master = cluster.is_master(member)
        return {
            "brokerId": "0" if is_master else str(cluster.slave_id(member)),
            ROLE_KEY: f"{cluster.replication.acknowledge}_MASTER" if is_master else SLAVE,
            "haListenPort": str(names.HA_PORT),
        }
    if not cluster.is_dledger:
        return {"brokerId": "0"}  # no brokerRole, because a master with one opens a port for slaves
    return {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": member.broker_name,
        PEERS_KEY: ";".join(each.peer for each in cluster.peers(member.group)),
        "dLegerSelfId": member.id,
        "dLegerLeaderAddress": cluster.leader_address(member.group),
        "dLegerLeaderPort": str(names.LEADER_PORT),
    }


def _kept_in_page_cache(cluster: Cluster) -> dict[str, str]:
    """Return the setting for messages kept in the page cache: a quarter of the memory limit, if that is less than the
    broker's default. Brokers keep three times as much for topics without a consumer group. If the memory of the
    container is full, every write waits for the kernel to free pages.
    """
    limit = quantity(cluster.resources.get("limits", {}).get("memory"))
    kept = int((limit or 0) / 4) >> 20
    if not limit or kept >= _MOST_KEPT_MIB:
        return {}
    return {"logBytesKeptInPageCache": f"{max(kept, _LEAST_KEPT_MIB)}M"}


def registration_seconds(cluster: Cluster) -> int:
    """Return the time between two registrations of a broker in seconds, rounded down. For an invalid period, with which
    no broker starts, return the default.
    """
    try:
        period_ms: int = _PERIOD_MS(cluster.config.get(_REGISTRATION_KEY, _DEFAULT_PERIOD))
    except ValueError:
        period_ms = int(_DEFAULT_PERIOD)
    return math.ceil(period_ms / 1000)


def name_server_properties(cluster: Cluster, *, authenticate: bool = False) -> dict[str, str]:
    """Return the properties of namesrv.conf, which are the same for all name servers. With `authenticate` the servers
    reject unsigned requests except those that every client sends, so brokers must already sign.
    """
    return {
        **cluster.name_servers.config,
        "kvConfigPath": f"{DATA_DIRECTORY}/kvConfig.json",
        "listenPort": str(names.NAME_SERVER_PORT),
        "metricsPort": str(cluster.metrics_port),
        **_tls_properties(cluster),
        **(_access_properties(cluster) | {"authConfigPath": f"{DATA_DIRECTORY}/auth"} if authenticate else {}),
    }


def _access_properties(cluster: Cluster) -> dict[str, str]:
    access = cluster.access_control
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": str(access is not None and access.authorization).lower(),
        "superUserPaths": ADMIN_DIRECTORY,
        "innerClientCredentialsPath": OPERATOR_DIRECTORY,
    }


def _tls_properties(cluster: Cluster) -> dict[str, str]:
    if cluster.tls is None:
        return {}
    properties = {
        "tls.server.mode": cluster.tls.mode,
        "tls.server.certPath": TLS_CERTIFICATE,
        "tls.server.keyPath": TLS_KEY,
    }
    if cluster.tls.client_auth != "none":
        properties |= {
            "tls.server.need.client.auth": cluster.tls.client_auth,
            "tls.server.trustCertPath": f"{TLS_DIRECTORY}/ca.crt",
        }
    return properties


def _own_tls_properties(cluster: Cluster) -> dict[str, str]:
    """Return the properties of outgoing TLS connections. Name servers are updated before brokers, so they already
    accept TLS."""
    if cluster.tls is None:
        return {}
    return {"useTLS": "true", "tls.client.certPath": TLS_CERTIFICATE, "tls.client.keyPath": TLS_KEY}


def settings_in(config_map: Manifest, file: str) -> dict[str, str]:
    """Return the settings in the ConfigMap of a server."""
    return parse_properties(config_map.get("data", {}).get(file, ""))


def role_in(config_map: Manifest) -> str:
    """Return the `brokerRole` in the ConfigMap of a member; empty without one."""
    return _setting(config_map, ROLE_KEY)


def peer_count_in(config_map: Manifest) -> int:
    """Return the number of members in `dLegerPeers` of the ConfigMap of a broker; 0 without this key."""
    return len(list(filter(None, _setting(config_map, PEERS_KEY).split(";"))))


def _setting(config_map: Manifest, key: str) -> str:
    return settings_in(config_map, BROKER_FILE).get(key, "")


def broker_config(cluster: Cluster, member: Member) -> Manifest:
    """Return the ConfigMap of a member."""
    labels = names.broker_labels(cluster.name, member.group, member.index)
    return _config_map(
        cluster, member.name, labels, {BROKER_FILE: format_properties(broker_properties(cluster, member))}
    )


def name_server_config(cluster: Cluster, *, authenticate: bool) -> Manifest:
    """Return the ConfigMap of the name servers."""
    name = names.name_server(cluster.name)
    labels = names.name_server_labels(cluster.name)
    properties = name_server_properties(cluster, authenticate=authenticate)
    return _config_map(cluster, name, labels, {NAME_SERVER_FILE: format_properties(properties)})


def _config_map(cluster: Cluster, name: str, labels: Mapping[str, str], data: Mapping[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(cluster, name, labels), "data": dict(data)}
