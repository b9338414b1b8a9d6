"""ConfigMaps with broker.conf and namesrv.conf, in RocketMQ's keys, and the keys that only the operator may set.

A key is denied when another value would make a broker unreachable, give it a foreign identity, or contradict the
resource. Operator keys and user keys never overlap: `denied_keys` is asked before anything is built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from raptormq.config_file import format_properties, integer
from raptormq_operator.manifests.metadata import Manifest, metadata
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Member
from raptormq_operator.quantity import quantity

DATA_DIRECTORY = "/var/lib/raptormq"
CONFIG_DIRECTORY = "/etc/raptormq"
TLS_DIRECTORY = "/etc/raptormq-tls"
"""Beside the configuration and not in it: a volume cannot be mounted into another one that is read-only."""
TLS_CERTIFICATE = f"{TLS_DIRECTORY}/tls.crt"
TLS_KEY = f"{TLS_DIRECTORY}/tls.key"
ADMIN_DIRECTORY = "/etc/raptormq-admin"
OPERATOR_DIRECTORY = "/etc/raptormq-operator"
"""Where the Secrets of access control are."""
BROKER_FILE = "broker.conf"
NAME_SERVER_FILE = "namesrv.conf"

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
"""Access control, and secrets, which everybody who reads ConfigMaps would read."""
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
_PERIOD_MS = integer(10_000, 60_000)
"""What a broker takes as its period."""
_MOST_KEPT_MIB, _LEAST_KEPT_MIB = 1024, 96
"""What brokers keep in the page cache by themselves, and the least that they can be told."""
_SPEC_FIELDS = dict.fromkeys(_ACCESS_KEYS | {"aclEnable"}, "spec.accessControl") | {
    "flushDiskType": "spec.flush",
    "metricsPort": "spec.metrics.port",
    "metricsPromExporterPort": "spec.metrics.port",
    "useTLS": "spec.tls",
}
"""Where the spec says what a denied key would."""


def denied_keys(cluster: Cluster) -> tuple[str, ...]:
    """Paths of the keys in the spec that the operator refuses, sorted: `config.brokerId`, `nameServers.config.…`, with
    the field of the spec that says the same: `config.flushDiskType (spec.flush)`.
    """
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
    """broker.conf of a member.

    Topics come from Topic resources, so auto-creation is off unless the user wants it. A broker registers every 10 s,
    the shortest time RocketMQ allows, unless the user wants another, with every address that the name servers' Service
    has then: name servers may restart and be scaled without a broker noticing.
    """
    return {
        "autoCreateTopicEnable": "false",
        _REGISTRATION_KEY: _DEFAULT_PERIOD,
        **_kept_in_page_cache(cluster),
        **cluster.config,
        "brokerClusterName": cluster.name,
        "brokerName": member.broker_name,
        "brokerId": str(member.index),
        "brokerIP1": member.host,
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": f"{cluster.flush}_FLUSH",
        "listenPort": str(names.BROKER_PORT),
        "metricsPort": str(cluster.metrics_port),
        "namesrvAddr": cluster.name_server_service_address,
        "storePathRootDir": f"{DATA_DIRECTORY}/store",
        **_tls_properties(cluster),
        **_own_tls_properties(cluster),
        **(_access_properties(cluster) if cluster.authenticates else {}),
    }


def _kept_in_page_cache(cluster: Cluster) -> dict[str, str]:
    """A quarter of the memory limit, where that is less than what brokers keep: of a topic without a group they keep
    three times as much, and where a container's memory is full every write waits for the kernel to free some.
    """
    limit = quantity(cluster.resources.get("limits", {}).get("memory"))
    kept = int((limit or 0) / 4) >> 20
    if not limit or kept >= _MOST_KEPT_MIB:
        return {}
    return {"logBytesKeptInPageCache": f"{max(kept, _LEAST_KEPT_MIB)}M"}


def registration_seconds(cluster: Cluster) -> int:
    """Return the time between two registrations of a broker, in whole seconds, at least. A period that brokers do not
    take counts as the default: none starts with it.
    """
    try:
        period_ms: int = _PERIOD_MS(cluster.config.get(_REGISTRATION_KEY, _DEFAULT_PERIOD))
    except ValueError:
        period_ms = int(_DEFAULT_PERIOD)
    return math.ceil(period_ms / 1000)


def name_server_properties(cluster: Cluster, *, authenticate: bool = False) -> dict[str, str]:
    """namesrv.conf, the same for every name server. With `authenticate` it takes signed requests only, but for those
    that every client sends: brokers have to sign by then.
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
    """Name servers are rolled first, so that brokers with `useTLS` always find them speaking TLS."""
    if cluster.tls is None:
        return {}
    return {"useTLS": "true", "tls.client.certPath": TLS_CERTIFICATE, "tls.client.keyPath": TLS_KEY}


def broker_config(cluster: Cluster, member: Member) -> Manifest:
    """ConfigMap of a member."""
    labels = names.broker_labels(cluster.name, member.group, member.index)
    return _config_map(
        cluster, member.name, labels, {BROKER_FILE: format_properties(broker_properties(cluster, member))}
    )


def name_server_config(cluster: Cluster, *, authenticate: bool) -> Manifest:
    """ConfigMap of the name servers."""
    name = names.name_server(cluster.name)
    labels = names.name_server_labels(cluster.name)
    properties = name_server_properties(cluster, authenticate=authenticate)
    return _config_map(cluster, name, labels, {NAME_SERVER_FILE: format_properties(properties)})


def _config_map(cluster: Cluster, name: str, labels: Mapping[str, str], data: Mapping[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(cluster, name, labels), "data": dict(data)}
