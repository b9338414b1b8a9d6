"""Settings of a broker, under RocketMQ's keys and with its defaults (``BrokerConfig``, ``MessageStoreConfig``,
``NettyServerConfig``).

:meth:`BrokerConfig.from_pairs` is the only way in: from ``broker.conf``, from the command line and from tests alike.
Keys of RocketMQ that mean nothing here (thread pools and the like) are in :mod:`raptormq.broker.config.ignored_keys`
and pass in silence; what a later version brings (replication, controller mode) is refused when it is switched on,
because ignoring it would lose messages.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from raptormq.broker.addresses import own_address
from raptormq.broker.config.ignored_keys import IGNORED_KEYS, refuse_unsupported
from raptormq.config_file import (
    choice,
    count,
    file_path,
    integer,
    known_keys,
    load_settings,
    parse_bool,
    parse_setting,
    read_properties,
    setting,
    size,
    size_or_none,
    size_up_to,
    unknown_key_warnings,
)
from raptormq.errors import ConfigError
from raptormq.security.settings import AccessControl
from raptormq.storage.queue import DEFAULT_LEVELS, parse_delay_levels
from raptormq.transport.tls import TLS_KEYS, ClientTls, ServerTls, client_tls, server_tls

MAX_ANSWER_BYTES = 15 << 20
"""What one answer brings at most, if it is more than one message: clients take frames of 16 MiB."""
_TRANSFER = size_up_to(MAX_ANSWER_BYTES)
_CAPPED_KEYS = ("maxTransferBytesOnMessageInMemory", "maxTransferBytesOnMessageInDisk")
_PORT = integer(0, 65_535)
_COUNT = count(1, 1_000_000)
_PERIOD_MS = integer(1, 86_400_000)
QUEUE_LOCK_MS = 60_000
_LEAST_KEPT_BYTES = 96 << 20
"""The newest 64 to 80 MiB of the log are mapped and stay in any case; with less, nothing would ever be old enough."""


def _permission(text: str) -> int:
    if text not in ("2", "4", "6"):
        raise ValueError("2 (write), 4 (read) or 6 (both)")
    return int(text)


def _hours(text: str) -> str:
    hours = text.split(";")
    if not all(hour.isdecimal() and int(hour) < 24 for hour in hours):
        raise ValueError("hours from 00 to 23, separated by ;")
    return text


def _delay_levels(text: str) -> str:
    try:
        parse_delay_levels(text)
    except ConfigError:
        raise ValueError("times such as 1s 5s 10m 2h 1d, one for each level") from None
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who the broker is, and where name servers and clients find it."""

    cluster_name: str = setting("DefaultCluster", "brokerClusterName")
    broker_name: str = setting(socket.gethostname, "brokerName")
    broker_id: int = 0
    """A master's, the only kind until replication arrives; ``brokerId`` is ignored, as RocketMQ does for masters."""
    name_servers: str = setting(lambda: os.environ.get("NAMESRV_ADDR", ""), "namesrvAddr")
    """``host:port`` separated by ``;``; each name is resolved again at every registration, and all its addresses are
    registered with."""
    register_period_ms: int = setting(30_000, "registerNameServerPeriod", parse=integer(10_000, 60_000))
    register_timeout_ms: int = setting(24_000, "registerBrokerTimeoutMills", parse=_PERIOD_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Where the broker listens and what it grants one peer."""

    bind_address: str = setting("0.0.0.0", "bindAddress")
    listen_port: int = setting(10_911, "listenPort", parse=_PORT)
    """0 takes a free port (tests, embedding)."""
    advertised_host: str = setting(own_address, "brokerIP1")
    """Goes into routes and into message ids: clients must reach the broker by it."""
    max_connections: int = setting(20_000, "maxConnections", parse=_COUNT)
    idle_seconds: int = setting(120, "serverChannelMaxIdleTimeSeconds", parse=integer(1, 86_400))
    max_unfinished_bytes: int = setting(256 << 20, "maxUnfinishedRequestBytes", parse=size(32 << 20))
    """What requests that are not all there yet may take, of all connections together."""
    unfinished_patience_ms: int = setting(3_000, "unfinishedRequestPatience", parse=_PERIOD_MS)
    max_unread_bytes: int = setting(256 << 20, "maxUnreadAnswerBytes", parse=size(32 << 20))
    """What answers that clients have not read yet may take, of all connections together."""
    unread_patience_ms: int = setting(3_000, "unreadAnswerPatience", parse=_PERIOD_MS)
    metrics_host: str = setting("0.0.0.0", "metricsPromExporterHost", "metricsHost")
    metrics_port: int = setting(5_557, "metricsPort", "metricsPromExporterPort", parse=integer(-1, 65_535))
    """GET /metrics, /healthz and /readyz; 0 takes a free port, -1 serves none."""


@dataclass(slots=True, kw_only=True)
class Policies:
    """What clients may do."""

    permission: int = setting(6, "brokerPermission", parse=_permission, live=True)
    auto_create_topic: bool = setting(True, "autoCreateTopicEnable", parse=parse_bool, live=True)
    auto_create_group: bool = setting(True, "autoCreateSubscriptionGroup", parse=parse_bool, live=True)
    default_queue_count: int = setting(8, "defaultTopicQueueNums", parse=_COUNT)
    cluster_topic: bool = setting(True, "clusterTopicEnable", parse=parse_bool)
    broker_topic: bool = setting(True, "brokerTopicEnable", parse=parse_bool)
    trace_topic: bool = setting(False, "traceTopicEnable", parse=parse_bool)
    validate_system_topics: bool = setting(True, "validateSystemTopicWhenUpdateTopic", parse=parse_bool, live=True)
    reject_transactions: bool = setting(False, "rejectTransactionMessage", parse=parse_bool, live=True)
    store_replies: bool = setting(True, "storeReplyMessageEnable", parse=parse_bool, live=True)
    """Whether replies are kept in the reply topic beside being handed to who asked."""
    server_side_reset: bool = setting(True, "useServerSideResetOffset", parse=parse_bool, live=True)
    """Whether an administrator's reset of a group works without its members; else they are told."""
    property_filters: bool = setting(False, "enablePropertyFilter", parse=parse_bool, live=True)
    """Whether consumers may filter by SQL92 expressions."""
    lite_pull: bool = setting(True, "litePullMessageEnable", parse=parse_bool, live=True)
    notify_consumer_changes: bool = setting(True, "notifyConsumerIdsChangedEnable", parse=parse_bool, live=True)
    client_expiry_ms: int = setting(120_000, "channelExpiredTimeout", parse=_PERIOD_MS, live=True)
    queue_lock_ms: int = setting(QUEUE_LOCK_MS, "rocketmq.broker.rebalance.lockMaxLiveTime", parse=_PERIOD_MS)
    """How long an orderly consumer that went silent keeps its queues; a system property of the JVM in RocketMQ."""
    region_id: str = setting("DefaultRegion", "regionId")
    trace_on: bool = setting(True, "traceOn", parse=parse_bool)
    max_message_bytes: int = setting(4_194_304, "maxMessageSize", parse=size(1, 8 << 20), live=True)


@dataclass(slots=True, kw_only=True)
class PullSettings:
    """How much one pull gets and how long it may wait."""

    long_polling: bool = setting(True, "longPollingEnable", parse=parse_bool, live=True)
    short_polling_ms: int = setting(1_000, "shortPollingTimeMills", parse=_PERIOD_MS, live=True)
    max_held: int = setting(100_000, "maxHeldPulls", parse=_COUNT)
    """Pulls waiting at a time; one more is answered at once with PULL_NOT_FOUND."""
    max_outstanding_pops: int = setting(100_000, "maxOutstandingPops", parse=_COUNT)
    """Pops whose messages are not all acknowledged yet; one more is answered with POLLING_FULL."""
    retry_topic_v2: bool = setting(False, "enableRetryTopicV2", parse=parse_bool)
    """Whether what was popped in vain comes back by ``%RETRY%group+topic`` instead of ``%RETRY%group_topic``."""
    retry_topic_v1_too: bool = setting(True, "retrieveMessageFromPopRetryTopicV1", parse=parse_bool)
    """Whether the latter is popped from, too, for what is still in it."""
    memory_bytes: int = setting(262_144, "maxTransferBytesOnMessageInMemory", parse=_TRANSFER, live=True)
    memory_count: int = setting(32, "maxTransferCountOnMessageInMemory", parse=_COUNT, live=True)
    asked_bytes: int = setting(8 << 20, "maxTransferBytesAsked", parse=size_up_to(8 << 20), live=True)
    """Most bytes for a pull that carries ``maxMsgBytes``, however much it asks for (one message is always sent
    whole)."""
    asked_count: int = setting(32_768, "maxTransferCountAsked", parse=_COUNT, live=True)
    """Most messages for a pull that carries ``maxMsgBytes``."""
    disk_bytes: int = setting(65_536, "maxTransferBytesOnMessageInDisk", parse=_TRANSFER, live=True)
    disk_count: int = setting(8, "maxTransferCountOnMessageInDisk", parse=_COUNT, live=True)


@dataclass(slots=True, kw_only=True)
class TransactionSettings:
    """When and how often producers are asked about transactions that they left open."""

    timeout_ms: int = setting(6_000, "transactionTimeOut", parse=_PERIOD_MS, live=True)
    """Age from which a half is asked about, unless the message itself says another."""
    check_max: int = setting(15, "transactionCheckMax", parse=_COUNT, live=True)
    check_interval_ms: int = setting(30_000, "transactionCheckInterval", parse=integer(100, 86_400_000), live=True)


@dataclass(slots=True, kw_only=True)
class TimerSettings:
    """Messages that name the time of their delivery."""

    enabled: bool = setting(True, "timerWheelEnable", parse=parse_bool, live=True)
    max_delay_s: int = setting(259_200, "timerMaxDelaySec", parse=integer(1, 315_360_000), live=True)
    precision_ms: int = setting(1_000, "timerPrecisionMs", parse=integer(100, 60_000))
    """Times are multiples of it; a message comes up to this much late and never early."""
    recall: bool = setting(False, "recallMessageEnable", parse=parse_bool, live=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(AccessControl):
    """Who may send requests, and what no request may change."""

    config_black_list: str = setting("configBlackList;brokerConfigPath", "configBlackList")
    """Keys of settings that no request may change, separated by semicolons."""


@dataclass(slots=True, kw_only=True)
class StorageSettings:
    """Where and for how long messages are kept; handed on to :class:`raptormq.storage.config.StoreConfig`."""

    root_dir: str = setting(lambda: str(Path.home() / "store"), "storePathRootDir", parse=file_path)
    commit_log_dir: str = setting("", "storePathCommitLog")
    """Empty means ``commitlog`` below the root directory."""
    segment_bytes: int = setting(
        1 << 30, "mappedFileSizeCommitLog", "mapedFileSizeCommitLog", parse=size(1 << 16, 1 << 31)
    )
    queue_file_bytes: int = setting(
        6_000_000, "mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue", parse=size(20, 1 << 31)
    )
    batch_queue_file_bytes: int = setting(13_800_000, "mapperFileSizeBatchConsumeQueue", parse=size(46, 1 << 31))
    flush_disk_type: str = setting("ASYNC_FLUSH", "flushDiskType", parse=choice("ASYNC_FLUSH", "SYNC_FLUSH"))
    flush_interval_ms: int = setting(500, "flushIntervalCommitLog", parse=_PERIOD_MS)
    sync_flush_timeout_ms: int = setting(5_000, "syncFlushTimeout", parse=_PERIOD_MS)
    flush_offsets_ms: int = setting(5_000, "flushConsumerOffsetInterval", parse=_PERIOD_MS)
    retention_hours: int = setting(72, "fileReservedTime", parse=integer(1, 1_000_000), live=True)
    delete_when: str = setting("04", "deleteWhen", parse=_hours, live=True)
    clean_period_ms: int = setting(10_000, "cleanResourceInterval", parse=_PERIOD_MS)
    disk_used_percent_clean: int = setting(75, "diskMaxUsedSpaceRatio", parse=integer(10, 95), live=True)
    disk_used_percent_forced: int = setting(85, "diskSpaceCleanForciblyRatio", parse=integer(30, 99), live=True)
    disk_used_percent_full: int = setting(90, "diskSpaceWarningLevelRatio", parse=integer(35, 100), live=True)
    delay_levels: str = setting(DEFAULT_LEVELS, "messageDelayLevel", parse=_delay_levels)
    max_open_queue_files: int = setting(16_384, "maxOpenQueueFiles", parse=_COUNT)
    kept_page_bytes: int = setting(1 << 30, "logBytesKeptInPageCache", parse=size_or_none(_LEAST_KEPT_BYTES))
    index_enabled: bool = setting(True, "messageIndexEnable", parse=parse_bool)
    concurrent_build: bool = setting(False, "enableBuildConsumeQueueConcurrently", parse=parse_bool)
    index_slots: int = setting(5_000_000, "maxHashSlotNum", parse=count(1, 100_000_000))
    index_entries: int = setting(20_000_000, "maxIndexNum", parse=count(1_000, 400_000_000))
    check_crc: bool = setting(True, "checkCRCOnRecover", parse=parse_bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All settings of one broker, in groups.

    Parts hold on to a group and ask it each time: that is how a change of a live setting reaches them
    (:mod:`raptormq.broker.config.dynamic`).
    """

    identity: Identity = field(default_factory=Identity)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    policies: Policies = field(default_factory=Policies)
    pulling: PullSettings = field(default_factory=PullSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    timers: TimerSettings = field(default_factory=TimerSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    given: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The pairs that they come from."""
    path: Path | None = field(default=None, compare=False)
    """The file that changes by request are written to."""
    tls: ServerTls | None = None
    """How clients may connect, None: plainly. Not shown to those who ask for the settings, as in RocketMQ."""
    outgoing_tls: ClientTls | None = None
    """How the broker connects to name servers, None: plainly."""

    @classmethod
    def from_pairs(cls, pairs: Mapping[str, str], path: Path | None = None) -> BrokerConfig:
        """Return the settings for RocketMQ ``key = value`` pairs; ``path`` is their file.

        Raises:
            ConfigError: a value cannot be used, or asks for something that this version does not have.
        """
        refuse_unsupported(pairs)
        tls, outgoing_tls = server_tls(pairs), client_tls(pairs)
        return replace(load_settings(cls, pairs), tls=tls, outgoing_tls=outgoing_tls, given=dict(pairs), path=path)


def warnings_for(pairs: Mapping[str, str]) -> list[str]:
    """Return one line per key that neither this broker nor Apache RocketMQ knows."""
    return unknown_key_warnings(pairs, known_keys(BrokerConfig) | IGNORED_KEYS | TLS_KEYS)


def start_warnings(pairs: Mapping[str, str]) -> list[str]:
    """Return what a start says of settings: unknown keys, and sizes that count as smaller ones."""
    capped = [
        f"setting {key} = {pairs[key]!r} counts as {MAX_ANSWER_BYTES >> 20}M, since clients take frames of 16M"
        for key in _CAPPED_KEYS
        if key in pairs and parse_setting(key, pairs[key], size(1)) > MAX_ANSWER_BYTES
    ]
    return warnings_for(pairs) + capped


def load_broker_config(path: Path | None, overrides: Mapping[str, str] | None = None) -> tuple[BrokerConfig, list[str]]:
    """Return the settings of a ``broker.conf`` (or the defaults) with ``overrides`` on top, and the warnings to print.

    Raises:
        ConfigError: the file cannot be read or a value cannot be used.
    """
    pairs = read_properties(path) if path is not None else {}
    pairs |= overrides or {}
    return BrokerConfig.from_pairs(pairs, path), start_warnings(pairs)
