"""Settings of the name server (RocketMQ ``NamesrvConfig`` and the listening part of ``NettyServerConfig``).

The file format and the declaration of settings are in :mod:`raptormq.config_file`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from raptormq.config_file import (
    choice,
    file_path,
    integer,
    known_keys,
    load_settings,
    parse_bool,
    read_properties,
    setting,
    switched_off,
    unknown_key_warnings,
)
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
"""Keys of the reference that size its thread pools and buffers: taken without a word, they have no meaning here."""


def _home(name: str) -> str:
    return str(Path.home() / "namesrv" / name)


OPEN_CODES = f"{RequestCode.GET_ROUTEINFO_BY_TOPIC:d},{RequestCode.GET_BROKER_CLUSTER_INFO:d}"
"""What every client asks a name server: where a topic is, and which brokers there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerAccess(AccessControl):
    """Who may send requests. Where things are anybody may ask, unless the white lists say otherwise."""

    authentication_whitelist: str = setting(OPEN_CODES, "authenticationWhitelist", parse=request_codes)
    """Request codes that need no signature, separated by commas."""
    authorization_whitelist: str = setting(OPEN_CODES, "authorizationWhitelist", parse=request_codes)
    """Request codes that need no permission, separated by commas."""
    auth_config_path: str = setting(lambda: _home("auth"), "authConfigPath", parse=file_path)
    """Folder of the tables of users and of what they may do."""


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """What ``namesrv.conf`` may say; immutable, a change by request makes a new one."""

    listen_port: int = setting(9876, "listenPort", parse=integer(0, 65535))
    """TCP port; 0 lets the system choose."""
    bind_address: str = setting("0.0.0.0", "bindAddress")
    """Address listened on; by default all IPv4 addresses of the host."""
    kv_config_path: str = setting(lambda: _home("kvConfig.json"), "kvConfigPath", parse=file_path)
    """File of the key-value store."""
    config_store_path: str = setting(lambda: _home("namesrv.properties"), "configStorePath", parse=file_path)
    """File into which settings changed by UPDATE_NAMESRV_CONFIG (318) are written; with ``-c`` it is that file."""
    order_message_enable: bool = setting(False, "orderMessageEnable", parse=parse_bool)
    """Routes carry the fixed queue counts of ordered topics."""
    return_order_topic_config_to_broker: bool = setting(True, "returnOrderTopicConfigToBroker", parse=parse_bool)
    """A broker's registration is answered with the fixed queue counts."""
    support_acting_master: bool = setting(False, "supportActingMaster", parse=parse_bool)
    """The lowest slave of a group without master is shown as its (read-only) master."""
    enable_all_topic_list: bool = setting(True, "enableAllTopicList", parse=parse_bool)
    """Whether GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206) is answered."""
    enable_topic_list: bool = setting(True, "enableTopicList", parse=parse_bool)
    """Whether the topic lists by cluster and of system topics (224, 304) are answered."""
    delete_topic_with_broker_registration: bool = setting(False, "deleteTopicWithBrokerRegistration", parse=parse_bool)
    """Topics missing from a registration are removed, also when the broker does not say that it has named all (those of
    Apache RocketMQ do not)."""
    scan_not_active_broker_interval_ms: int = setting(5000, "scanNotActiveBrokerInterval", parse=integer(1, 3_600_000))
    """Time between two searches for silent brokers, milliseconds."""
    need_wait_for_service: bool = setting(False, "needWaitForService", parse=parse_bool)
    """Routes are refused after the start, until the brokers had time to register."""
    wait_seconds_for_service: int = setting(45, "waitSecondsForService", parse=integer(0, 86_400))
    """How long they are refused, seconds."""
    max_idle_seconds: int = setting(120, "serverChannelMaxIdleTimeSeconds", parse=integer(1, 86_400))
    """A connection that was silent for this long is closed, seconds."""
    config_black_list: str = setting("configBlackList;configStorePath;kvConfigPath", "configBlackList")
    """Keys that no request may change, separated by semicolons."""
    enable_controller: bool = setting(False, "enableControllerInNamesrv", parse=switched_off)
    """Controller mode (election by the name servers) does not exist here; replication groups elect their own leader."""
    notify_min_broker_id_changed: str = setting("false", "notifyMinBrokerIdChanged", parse=choice("false"))
    """Brokers learn about their group from registrations alone."""
    metrics_host: str = setting("0.0.0.0", "metricsPromExporterHost", "metricsHost")
    metrics_port: int = setting(-1, "metricsPort", "metricsPromExporterPort", parse=integer(-1, 65_535))
    """GET /metrics, /healthz and /readyz; 0 takes a free port, -1 serves none."""
    access: NameServerAccess = field(default_factory=NameServerAccess)
    tls: ServerTls | None = None
    """How peers may connect, None: plainly. Neither shown nor changed by requests, as in RocketMQ."""
    given: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The pairs that they come from."""

    @classmethod
    def from_pairs(cls, pairs: Mapping[str, str]) -> NameServerConfig:
        """Return the settings for RocketMQ ``key = value`` pairs.

        Raises:
            ConfigError: a value cannot be used.
        """
        return replace(load_settings(cls, pairs), tls=server_tls(pairs), given=dict(pairs))


def warnings_for(pairs: Mapping[str, str]) -> list[str]:
    """Return one line per key that neither this name server nor Apache RocketMQ knows."""
    return unknown_key_warnings(pairs, known_keys(NameServerConfig) | JVM_KEYS | TLS_KEYS)


def load_name_server_config(
    path: Path | None, overrides: Mapping[str, str] | None = None
) -> tuple[NameServerConfig, list[str]]:
    """Return the settings of a ``namesrv.conf`` (or the defaults) with ``overrides`` on top, and the warnings to print.

    Changes by request go into the same file unless it names another ``configStorePath``.

    Raises:
        ConfigError: the file cannot be read or a value cannot be used.
    """
    pairs = read_properties(path) if path is not None else {}
    pairs |= overrides or {}
    defaults = {"configStorePath": str(path)} if path is not None else {}
    return NameServerConfig.from_pairs(defaults | pairs), warnings_for(pairs)
