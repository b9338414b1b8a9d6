"""Settings of a broker, with RocketMQ's keys and defaults (``BrokerConfig``, ``MessageStoreConfig``,
``NettyServerConfig``).

:meth:`BrokerConfig.from_pairs` creates the settings from ``broker.conf``, the command line and tests.
:mod:`raptormq.broker.config.ignored_keys` lists RocketMQ keys without effect in this broker, such as thread pool sizes.
They are accepted silently. A setting that enables an unsupported feature (controller mode) is an error, because
ignoring the setting could lose messages.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from raptormq.broker.addresses import own_address
from raptormq.broker.config.ha import SYNC_MASTER, HaSettings
from raptormq.broker.config.ignored_keys import IGNORED_KEYS, refuse_unsupported
from raptormq.broker.config.names import host, name_servers
from raptormq.broker.config.old_queue_size import (
    OLD_QUEUE_SIZE,
    QUEUE_FILE_BYTES,
    QUEUE_SIZE,
    is_size_of_queue_files,
)
from raptormq.broker.config.replication import ReplicationSettings
from raptormq.config_file import (
    choice,
    clamped,
    count,
    integer,
    known_keys,
    load_settings,
    parse_bool,
    parse_setting,
    setting,
    size,
    size_or_none,
    size_up_to,
    unknown_key_warnings,
)
from raptormq.config_paths import file_path, home_path, path_or_none
from raptormq.errors import ConfigError
from raptormq.protocol.delay_levels import DEFAULT_LEVELS, parse_delay_levels
from raptormq.security.settings import AccessControl
from raptormq.transport.tls import TLS_KEYS, ClientTls, ServerTls, client_tls, server_tls

MAX_ANSWER_BYTES = 15 << 20
"""Maximum size of a response with more than one message. Clients accept frames of up to 16 MiB."""
_TRANSFER = size_up_to(MAX_ANSWER_BYTES)
_PORT = integer(0, 65_535)
_COUNT = count(1, 1_000_000)
_PERIOD_MS = integer(1, 86_400_000)
_PERCENT = integer(0, 100)
QUEUE_LOCK_MS = 60_000
PEER_TRANSITION_KEY = "peerSecurityTransition"
_QUEUE_FILE_BYTES = 6_000_000
_LEAST_KEPT_BYTES = 96 << 20
"""Minimum of ``logBytesKeptInPageCache``. The newest 64 to 80 MiB of the log are always mapped, so no page could be
released with a smaller value.
"""


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


def _name_servers_of_environment() -> str:
    return str(parse_setting("NAMESRV_ADDR", os.environ.get("NAMESRV_ADDR", ""), name_servers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Identity of the broker, and the name servers it registers with."""

    cluster_name: str = setting("DefaultCluster", "brokerClusterName", parse=str)
    broker_name: str = setting(socket.gethostname, "brokerName", parse=str)
    broker_id: int = 0
    """0 for a master, ``brokerId`` for a slave."""
    name_servers: str = setting(_name_servers_of_environment, "namesrvAddr", parse=name_servers)
    """``host:port`` entries separated by ``;``. Names are resolved at every registration. The broker registers with all
    addresses of a name."""
    register_period_ms: int = setting(30_000, "registerNameServerPeriod", parse=clamped(10_000, 60_000))
    register_timeout_ms: int = setting(24_000, "registerBrokerTimeoutMills", parse=_PERIOD_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Listening addresses, and limits for connections."""

    bind_address: str = setting("0.0.0.0", "bindAddress")
    listen_port: int = setting(10_911, "listenPort", parse=_PORT)
    """0 selects a free port (tests, embedding)."""
    advertised_host: str = setting(own_address, "brokerIP1", parse=host)
    """Host name or address in routes and message ids. Clients connect to it."""
    max_connections: int = setting(20_000, "maxConnections", parse=_COUNT)
    idle_seconds: int = setting(120, "serverChannelMaxIdleTimeSeconds", parse=integer(1, 86_400))
    max_unfinished_bytes: int = setting(256 << 20, "maxUnfinishedRequestBytes", parse=size(32 << 20))
    """Memory limit for partially received requests of all connections, in bytes."""
    unfinished_patience_ms: int = setting(3_000, "unfinishedRequestPatience", parse=_PERIOD_MS)
    max_unread_bytes: int = setting(256 << 20, "maxUnreadAnswerBytes", parse=size(32 << 20))
    """Memory limit for responses that clients have not read yet, for all connections, in bytes."""
    unread_patience_ms: int = setting(3_000, "unreadAnswerPatience", parse=_PERIOD_MS)
    metrics_host: str = setting("0.0.0.0", "metricsPromExporterHost", "metricsHost")
    metrics_port: int = setting(5_557, "metricsPort", "metricsPromExporterPort", parse=integer(-1, 65_535))
    """Port of GET /metrics, /healthz and /readyz. 0 selects a free port, -1 disables the server."""


@dataclass(slots=True, kw_only=True)
class Policies:
    """Permissions and behaviour for clients."""

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
    """Whether replies are also stored in the reply topic."""
    server_side_reset: bool = setting(True, "useServerSideResetOffset", parse=parse_bool, live=True)
    """Whether the broker resets the offsets of a group itself. Otherwise it notifies the members of the group."""
    property_filters: bool = setting(False, "enablePropertyFilter", parse=parse_bool, live=True)
    """Whether consumers may filter with SQL92 expressions."""
    mixed_topics: bool = setting(False, "enableMixedMessageType", parse=parse_bool, live=True)
    """Whether topics may have the attribute ``message.type=MIXED``."""
    lite_pull: bool = setting(True, "litePullMessageEnable", parse=parse_bool, live=True)
    notify_consumer_changes: bool = setting(True, "notifyConsumerIdsChangedEnable", parse=parse_bool, live=True)
    client_expiry_ms: int = setting(120_000, "channelExpiredTimeout", parse=_PERIOD_MS, live=True)
    queue_lock_ms: int = setting(QUEUE_LOCK_MS, "rocketmq.broker.rebalance.lockMaxLiveTime", parse=_PERIOD_MS)
    """Lifetime of a queue lock after its last renewal, in ms. RocketMQ reads it from a JVM system property."""
    region_id: str = setting("DefaultRegion", "regionId")
    trace_on: bool = setting(True, "traceOn", parse=parse_bool)
    max_message_bytes: int = setting(4_194_304, "maxMessageSize", parse=size(1, 8 << 20), live=True)


@dataclass(slots=True, kw_only=True)
class PullSettings:
    """Limits of pulls and pops."""

    long_polling: bool = setting(True, "longPollingEnable", parse=parse_bool, live=True)
    short_polling_ms: int = setting(1_000, "shortPollingTimeMills", parse=_PERIOD_MS, live=True)
    max_held: int = setting(100_000, "maxHeldPulls", parse=_COUNT)
    """Maximum number of held pulls. Further pulls are answered immediately with PULL_NOT_FOUND."""
    max_outstanding_pops: int = setting(100_000, "maxOutstandingPops", parse=_COUNT)
    """Maximum number of pops with unacknowledged messages. Further pops are answered with POLLING_FULL."""
    filter_notifications: bool = setting(True, "useMessageFilterForNotification", parse=parse_bool, live=True)
    """Whether a notification (200054) with a filter waits for a message that matches the filter."""
    filtered_notification_count: int = setting(64, "maxMessageFilterNumForNotification", parse=_COUNT, live=True)
    """A notification does not apply its filter to a queue with at least this number of messages to pop."""
    retry_topic_v2: bool = setting(False, "enableRetryTopicV2", parse=parse_bool)
    """Whether expired pops go to ``%RETRY%group+topic`` instead of ``%RETRY%group_topic``."""
    retry_topic_v1_too: bool = setting(True, "retrieveMessageFromPopRetryTopicV1", parse=parse_bool)
    """Whether pops also read the retry topic of version 1, which may contain older messages."""
    memory_bytes: int = setting(262_144, "maxTransferBytesOnMessageInMemory", parse=_TRANSFER, live=True)
    memory_count: int = setting(32, "maxTransferCountOnMessageInMemory", parse=_COUNT, live=True)
    asked_bytes: int = setting(8 << 20, "maxTransferBytesAsked", parse=size_up_to(8 << 20), live=True)
    """Maximum size of a response to a pull with ``maxMsgBytes``, in bytes. A single larger message is still returned.
    """
    asked_count: int = setting(32_768, "maxTransferCountAsked", parse=_COUNT, live=True)
    """Maximum number of messages for a pull with ``maxMsgBytes``."""
    disk_bytes: int = setting(65_536, "maxTransferBytesOnMessageInDisk", parse=_TRANSFER, live=True)
    disk_count: int = setting(8, "maxTransferCountOnMessageInDisk", parse=_COUNT, live=True)


@dataclass(slots=True, kw_only=True)
class PopOrderSettings:
    """Order in which a pop reads the queues of its topic and of the group's retry topic."""

    retry_first_percent: int = setting(20, "popFromRetryProbability", parse=_PERCENT, live=True)
    """Percentage of pops that read the retry topic first."""
    retry_first_percent_by_priority: int = setting(0, "popFromRetryProbabilityForPriority", parse=_PERCENT, live=True)
    """Percentage of pops in the order of priority that read the retry topic first."""
    highest_first: bool = setting(True, "priorityOrderAsc", parse=parse_bool, live=True)
    """Whether 0 is the lowest priority in a PRIORITY topic. Otherwise 0 is the highest priority."""


@dataclass(slots=True, kw_only=True)
class MetadataSettings:
    """Paging of responses that list topics or groups."""

    paged: bool = setting(True, "enableSplitMetadata", parse=parse_bool, live=True)
    """Whether a request for a page of topics or groups returns one page. Otherwise the response contains all of them.
    """
    page_size: int = setting(2_000, "splitMetadataSize", parse=_COUNT, live=True)
    """Maximum number of topics or groups in a page."""


@dataclass(slots=True, kw_only=True)
class TransactionSettings:
    """Time and number of the checks of open transactions."""

    timeout_ms: int = setting(6_000, "transactionTimeOut", parse=_PERIOD_MS, live=True)
    """Age of a half message at its first check, in ms. A message may set its own value."""
    check_max: int = setting(15, "transactionCheckMax", parse=_COUNT, live=True)
    check_interval_ms: int = setting(30_000, "transactionCheckInterval", parse=integer(100, 86_400_000), live=True)


@dataclass(slots=True, kw_only=True)
class StagingSettings:
    """Staged messages, by which batches of Spark are published exactly once."""

    enabled: bool = setting(False, "stagedMessagesEnable", parse=parse_bool)
    expiry_ms: int = setting(86_400_000, "stagedMessageExpiry", parse=_PERIOD_MS)
    """Age in ms after which staged messages can no longer be committed."""
    commit_hours: int = setting(168, "commitRecordReservedTime", parse=integer(1, 8_760))
    """Time in hours for which the last commit of a query is remembered."""


@dataclass(slots=True, kw_only=True)
class TimerSettings:
    """Timer messages, which are delivered at a given time."""

    enabled: bool = setting(True, "timerWheelEnable", parse=parse_bool, live=True)
    max_delay_s: int = setting(259_200, "timerMaxDelaySec", parse=integer(1, 315_360_000), live=True)
    precision_ms: int = setting(1_000, "timerPrecisionMs", parse=clamped(100, 60_000))
    """Granularity of delivery times, in ms. A message is delivered at most this late, and never early."""
    recall: bool = setting(False, "recallMessageEnable", parse=parse_bool, live=True)
    recall_names_topic: bool = setting(True, "appendTopicForTimerDeleteKey", parse=parse_bool, live=True)
    """Whether a stored recall identifies its message by topic and unique key, as in RocketMQ up to 5.3. Otherwise the
    unique key alone identifies it, the default of RocketMQ 5.5. This broker reads both forms. The setting matters only
    to a RocketMQ broker that opens the store later.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(AccessControl):
    """Access control, and keys that no request may change."""

    config_black_list: str = setting("configBlackList;brokerConfigPath", "configBlackList")
    """Keys that no request may change, separated by semicolons."""
    peers_in_transition: bool = setting(False, PEER_TRANSITION_KEY, parse=parse_bool)
    """Whether brokers of the same group that do not sign or encrypt yet, or any more, are accepted, for the time in
    which access control or TLS is changed on one broker after another."""


@dataclass(slots=True, kw_only=True)
class StorageSettings:
    """Location and retention of the messages, converted to a :class:`raptormq.storage.config.StoreConfig`."""

    root_dir: str = setting(lambda: home_path("store"), "storePathRootDir", parse=file_path)
    commit_log_dir: str = setting("", "storePathCommitLog", parse=path_or_none)
    """Empty selects ``commitlog`` below the root directory."""
    segment_bytes: int = setting(
        1 << 30, "mappedFileSizeCommitLog", "mapedFileSizeCommitLog", parse=size(1 << 16, 1 << 31)
    )
    queue_file_bytes: int = setting(_QUEUE_FILE_BYTES, QUEUE_SIZE, OLD_QUEUE_SIZE, parse=QUEUE_FILE_BYTES)
    batch_queue_file_bytes: int = setting(13_800_000, "mapperFileSizeBatchConsumeQueue", parse=size(46, 1 << 31))
    flush_disk_type: str = setting("ASYNC_FLUSH", "flushDiskType", parse=choice("ASYNC_FLUSH", "SYNC_FLUSH"))
    flush_interval_ms: int = setting(500, "flushIntervalCommitLog", parse=_PERIOD_MS)
    sync_flush_timeout_ms: int = setting(5_000, "syncFlushTimeout", parse=_PERIOD_MS)
    flush_offsets_ms: int = setting(5_000, "flushConsumerOffsetInterval", parse=_PERIOD_MS)
    retention_hours: int = setting(72, "fileReservedTime", parse=integer(1, 1_000_000), live=True)
    delete_when: str = setting("04", "deleteWhen", parse=_hours, live=True)
    clean_period_ms: int = setting(10_000, "cleanResourceInterval", parse=_PERIOD_MS)
    disk_used_percent_clean: int = setting(75, "diskMaxUsedSpaceRatio", parse=clamped(10, 95), live=True)
    disk_used_percent_forced: int = setting(85, "diskSpaceCleanForciblyRatio", parse=clamped(30, 99), live=True)
    disk_used_percent_full: int = setting(90, "diskSpaceWarningLevelRatio", parse=clamped(35, 100), live=True)
    delay_levels: str = setting(DEFAULT_LEVELS, "messageDelayLevel", parse=_delay_levels)
    max_open_queue_files: int = setting(16_384, "maxOpenQueueFiles", parse=_COUNT)
    kept_page_bytes: int = setting(1 << 30, "logBytesKeptInPageCache", parse=size_or_none(_LEAST_KEPT_BYTES))
    index_enabled: bool = setting(True, "messageIndexEnable", parse=parse_bool)
    concurrent_build: bool = setting(False, "enableBuildConsumeQueueConcurrently", parse=parse_bool)
    index_slots: int = setting(5_000_000, "maxHashSlotNum", parse=count(1, 100_000_000))
    index_entries: int = setting(20_000_000, "maxIndexNum", parse=count(1_000, 400_000_000))
    check_crc: bool = setting(True, "checkCRCOnRecover", parse=parse_bool)
    scrub_rate: int = setting(4 << 20, "scrubBytesPerSecond", parse=size_or_none(1 << 20), live=True)
    """Maximum rate at which closed segments are checked for damage, in bytes per second. 0 disables the checks."""
    scrub_hours: int = setting(168, "scrubIntervalHours", parse=integer(0, 8_760), live=True)
    """Minimum time between the beginnings of two checks of the whole log, in hours."""

    def settle_queue_file_size(self, pairs: Mapping[str, str]) -> None:
        """Return to the default size of queue files if only the old key sets it and no file has that size."""
        old = pairs.get(OLD_QUEUE_SIZE)
        if old is not None and QUEUE_SIZE not in pairs and not is_size_of_queue_files(old, self.root_dir):
            self.queue_file_bytes = _QUEUE_FILE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All settings of one broker, in groups.

    Components have a reference to their group and read it on every use. A live setting therefore takes effect
    immediately (:mod:`raptormq.broker.config.dynamic`).
    """

    identity: Identity = field(default_factory=Identity)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    policies: Policies = field(default_factory=Policies)
    pulling: PullSettings = field(default_factory=PullSettings)
    pop_order: PopOrderSettings = field(default_factory=PopOrderSettings)
    metadata: MetadataSettings = field(default_factory=MetadataSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    staging: StagingSettings = field(default_factory=StagingSettings)
    timers: TimerSettings = field(default_factory=TimerSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    ha: HaSettings = field(default_factory=HaSettings)
    given: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Key-value pairs from which the settings were created."""
    path: Path | None = field(default=None, compare=False)
    """File to which dynamic changes are written."""
    tls: ServerTls | None = None
    """TLS of the listening port. None accepts plain connections only. As in RocketMQ, clients cannot query this
    setting.
    """
    outgoing_tls: ClientTls | None = None
    """TLS of connections to name servers and other brokers. None uses plain connections."""

    @classmethod
    def from_pairs(cls, pairs: Mapping[str, str], path: Path | None = None) -> BrokerConfig:
        """Return the settings for RocketMQ ``key = value`` pairs from the file ``path``.

        Raises:
            ConfigError: a value is invalid or enables an unsupported feature.
        """
        refuse_unsupported(pairs)
        tls, outgoing_tls = server_tls(pairs), client_tls(pairs)
        settings = load_settings(cls, pairs)
        settings.replication.check()
        if settings.replication.leader_port == settings.network.listen_port != 0:
            raise ConfigError("dLegerLeaderPort must differ from listenPort, on which every member listens")
        security = settings.security
        has_credentials = security.own_credentials is not None or security.own_credentials_path
        if settings.replication.enabled and security.is_on and not has_credentials:
            raise ConfigError(
                "enableDLegerCommitLog = true with access control needs innerClientAuthenticationCredentials or"
                " innerClientCredentialsPath: the members of the group sign their requests with them"
            )
        if security.peers_in_transition:
            tls = tls and replace(tls, in_transition=True)
            outgoing_tls = outgoing_tls and replace(outgoing_tls, in_transition=True)
        settings = replace(settings, tls=tls, outgoing_tls=outgoing_tls, given=dict(pairs), path=path)
        settings.storage.settle_queue_file_size(pairs)
        _check_ha(settings)
        if settings.ha.is_slave:
            settings = replace(settings, identity=replace(settings.identity, broker_id=settings.ha.broker_id))
        return settings

    @property
    def names(self) -> dict[str, str]:
        """The settings that name the broker, its cluster and its group, by key."""
        names = {"brokerName": self.identity.broker_name, "brokerClusterName": self.identity.cluster_name}
        return names | ({"dLegerGroup": self.replication.group} if self.replication.enabled else {})

    @property
    def needs_ha_port(self) -> bool:
        """Whether the start of this master fails if its HA port is in use: ``haListenPort`` is set, or it is a
        SYNC_MASTER.
        """
        return not self.ha.is_slave and (self.ha.role == SYNC_MASTER or "haListenPort" in self.given)

    @property
    def serves_slaves(self) -> bool:
        """Whether slaves may connect to this master. ``brokerRole`` or ``haListenPort`` must be set. With access
        control or enforced TLS, ``haSlaveAddresses`` must be set, too.
        """
        is_master = bool({"brokerRole", "haListenPort"} & self.given.keys()) and not self.ha.is_slave
        is_guarded = self.security.is_on or (self.tls is not None and self.tls.enforcing)
        return is_master and not self.replication.enabled and not (is_guarded and not self.ha.slave_addresses)


def _check_ha(config: BrokerConfig) -> None:
    """Check the settings of master and slave against other settings.

    Raises:
        ConfigError: settings contradict each other.
    """
    ha, security = config.ha, config.security
    ha.check(in_group=config.replication.enabled, name_servers=config.identity.name_servers)
    if ha.is_slave and security.is_on and not (security.own_credentials or security.own_credentials_path):
        raise ConfigError(
            "brokerRole = SLAVE with access control needs innerClientAuthenticationCredentials, with which a slave"
            " asks its master for topics, groups and offsets"
        )
    if config.needs_ha_port and not config.serves_slaves and not config.replication.enabled:
        raise ConfigError(
            "access control or enforced TLS with brokerRole = SYNC_MASTER or haListenPort needs haSlaveAddresses:"
            " slaves neither sign nor encrypt, so list the addresses they connect from, such as 10.1.0.0/16"
        )


def warnings_for(pairs: Mapping[str, str]) -> list[str]:
    """Return one warning for each key that neither this broker nor Apache RocketMQ supports."""
    return unknown_key_warnings(pairs, known_keys(BrokerConfig) | IGNORED_KEYS | TLS_KEYS)
