"""Settings of the name server (``NamesrvConfig``, and the listener settings of ``NettyServerConfig``).

:mod:`raptormq.config_file` implements the file format and the declaration of settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from raptormq.config_file import (
    choice,
    integer,
    known_keys,
    load_settings,
    parse_bool,
    read_properties,
    setting,
    switched_off,
    unknown_key_warnings,
)
from raptormq.config_paths import file_path, home_path
from raptormq.protocol.codes import RequestCode
from raptormq.security.settings import AccessControl, request_codes
from raptormq.transport.tls import TLS_KEYS, ServerTls, server_tls

JVM_KEYS = frozenset(
    {
        "clientRequestThreadPoolNums",
        "clientRequestThreadPoolQueueCapacity",
        "clusterTest",
        "defaultThreadPoolNums",
        "defaultThreadPoolQueueCapacity",
        "productEnvName",
        "rocketmqHome",
        "serverAsyncSemaphoreValue",
        "serverCallbackExecutorThreads",
        "serverOnewaySemaphoreValue",
        "serverPooledByteBufAllocatorEnable",
        "serverSelectorThreads",
        "serverSocketRcvBufSize",
        "serverSocketSndBufSize",
        "serverWorkerThreads",
        "unRegisterBrokerQueueCapacity",
        "useEpollNativeSelector",
    }
)
"""Keys of RocketMQ's thread pools and buffers. They have no effect and are accepted without a warning."""


OPEN_CODES = f"{RequestCode.GET_ROUTEINFO_BY_TOPIC:d},{RequestCode.GET_BROKER_CLUSTER_INFO:d}"
"""Requests that every client sends: routes of topics and the list of brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerAccess(AccessControl):
    """Access control of a name server. By default, routes and the list of brokers require no authentication."""

    authentication_whitelist: str = setting(OPEN_CODES, "authenticationWhitelist", parse=request_codes)
    """Request codes without authentication, separated by commas."""
    authorization_whitelist: str = setting(OPEN_CODES, "authorizationWhitelist", parse=request_codes)
    """Request codes without authorization, separated by commas."""
    auth_config_path: str = setting(lambda: home_path("namesrv", "auth"), "authConfigPath", parse=file_path)
    """Directory of the tables of users and ACLs."""


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """Settings of ``namesrv.conf``. Immutable; an update creates a new object."""

    listen_port: int = setting(9876, "listenPort", parse=integer(0, 65535))
    """Listening port. 0 selects a free port."""
    bind_address: str = setting("0.0.0.0", "bindAddress")
    """Listening address, by default all IPv4 addresses of the host."""
    kv_config_path: str = setting(lambda: home_path("namesrv", "kvConfig.json"), "kvConfigPath", parse=file_path)
    """File of the key-value store."""
    config_store_path: str = setting(
        lambda: home_path("namesrv", "namesrv.properties"), "configStorePath", parse=file_path
    )
    """File to which UPDATE_NAMESRV_CONFIG (318) writes changes, by default the file of ``-c``."""
    order_message_enable: bool = setting(False, "orderMessageEnable", parse=parse_bool)
    """Whether routes include the fixed queue counts of ordered topics."""
    return_order_topic_config_to_broker: bool = setting(True, "returnOrderTopicConfigToBroker", parse=parse_bool)
    """Whether the response to a broker's registration includes the fixed queue counts."""
    support_acting_master: bool = setting(False, "supportActingMaster", parse=parse_bool)
    """Whether routes contain the slave with the lowest id as read-only master if a group has no master."""
    enable_all_topic_list: bool = setting(True, "enableAllTopicList", parse=parse_bool)
    """Whether GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206) is answered."""
    enable_topic_list: bool = setting(True, "enableTopicList", parse=parse_bool)
    """Whether the topic lists by cluster and of system topics (224, 304) are answered."""
    delete_topic_with_broker_registration: bool = setting(False, "deleteTopicWithBrokerRegistration", parse=parse_bool)
    """Whether every registration counts as complete and removes topics that are missing from it. Brokers of Apache
    RocketMQ do not mark registrations as complete.
    """
    scan_not_active_broker_interval_ms: int = setting(5000, "scanNotActiveBrokerInterval", parse=integer(1, 3_600_000))
    """Interval at which expired brokers are removed, in ms."""
    need_wait_for_service: bool = setting(False, "needWaitForService", parse=parse_bool)
    """Whether route requests are refused for ``waitSecondsForService`` after the start, so that brokers can register.
    """
    wait_seconds_for_service: int = setting(45, "waitSecondsForService", parse=integer(0, 86_400))
    """Time after the start during which route requests are refused, in seconds."""
    max_idle_seconds: int = setting(120, "serverChannelMaxIdleTimeSeconds", parse=integer(1, 86_400))
    """Time without received data after which a connection is closed, in seconds."""
    config_black_list: str = setting("configBlackList;configStorePath;kvConfigPath", "configBlackList")
    """Keys that no request may change, separated by semicolons."""
    enable_controller: bool = setting(False, "enableControllerInNamesrv", parse=switched_off)
    """Must be false: controller mode is not supported. Replication groups elect their own leader."""
    notify_min_broker_id_changed: str = setting("false", "notifyMinBrokerIdChanged", parse=choice("false"))
    """Must be false. Responses to registrations contain the state of the group."""
    metrics_host: str = setting("0.0.0.0", "metricsPromExporterHost", "metricsHost")
    metrics_port: int = setting(-1, "metricsPort", "metricsPromExporterPort", parse=integer(-1, 65_535))
    """Port of GET /metrics, /healthz and /readyz. 0 selects a free port, -1 disables the server."""
    access: NameServerAccess = field(default_factory=NameServerAccess)
    tls: ServerTls | None = None
    """TLS settings, or None without TLS. As in RocketMQ, requests can neither query nor change them."""
    given: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Key-value pairs from which the settings were created."""

    @classmethod
    def from_pairs(cls, pairs: Mapping[str, str]) -> NameServerConfig:
        """Return the settings for RocketMQ ``key = value`` pairs.

        Raises:
            ConfigError: a value is invalid.
        """
        return replace(load_settings(cls, pairs), tls=server_tls(pairs), given=dict(pairs))


def warnings_for(pairs: Mapping[str, str]) -> list[str]:
    """Return one warning for each key that neither this name server nor Apache RocketMQ supports."""
    return unknown_key_warnings(pairs, known_keys(NameServerConfig) | JVM_KEYS | TLS_KEYS)


def load_name_server_config(
    path: Path | None, overrides: Mapping[str, str] | None = None
) -> tuple[NameServerConfig, list[str]]:
    """Return the settings of ``namesrv.conf`` (or the defaults) with ``overrides``, and the warnings to print.

    Changes by request are written to the same file, unless the file sets another ``configStorePath``.

    Raises:
        ConfigError: the file cannot be read or a value is invalid.
    """
    pairs = read_properties(path) if path is not None else {}
    pairs |= overrides or {}
    defaults = {"configStorePath": str(path.absolute())} if path is not None else {}
    return NameServerConfig.from_pairs(defaults | pairs), warnings_for(pairs)
