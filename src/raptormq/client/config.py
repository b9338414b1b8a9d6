"""Settings of clients, producers and consumers: immutable values that are validated on creation.

Times are in seconds as a float unless the name says otherwise. If RocketMQ has the same setting, its default is used.
There is one `cluster.client_instance` per `ClientConfig`. Source: RocketMQ `ClientConfig`, `DefaultMQProducer`,
`DefaultMQPushConsumer`.
"""

from __future__ import annotations

import enum
import itertools
import os
import re
import socket
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

from raptormq.client.allocation import AllocateStrategy, Averagely
from raptormq.client.interceptors import ConsumerInterceptor, ProducerInterceptor, check_interceptors
from raptormq.client.rebalance_listener import RebalanceListener, check_rebalance_listener
from raptormq.client.security import (
    ClientTls,
    Credentials,
    EncryptionKeys,
    credentials_from_environment,
    keys_from_environment,
    tls_from_environment,
)
from raptormq.client.settings import (
    LONG_MAX,
    Count,
    CountOrZero,
    Limits,
    Milliseconds,
    Seconds,
    SecondsOrZero,
    check_setting,
    check_settings,
)
from raptormq.errors import ConfigError, MessageError
from raptormq.protocol.compression import Compression
from raptormq.protocol.message import MessageExt
from raptormq.protocol.topic_names import TRACE_TOPIC, check_topic

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\s\[\]]+):(?P<port>\d{1,5})")
_IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_SOMEWHERE_ELSE = "192.0.2.1"  # reserved for documentation (RFC 5737), so never this host
_DISCARD_PORT = 9
_MAX_BATCH_BYTES, _MAX_BATCH_DELAY_MS = 2 * 1024 * 1024, 30_000  # as in the Java client
_MAX_CONCURRENCY, _MAX_CONSUME_BATCH = 10_000, 32_767
_SPAN, _SPAN_BY_KEY = 2000, 100_000
_instances = itertools.count(1)


class ConsumeFromWhere(enum.Enum):
    """Where a group starts in a queue without a committed offset."""

    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    LAST = "CONSUME_FROM_LAST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageModel(enum.Enum):
    """How the members of a group share messages."""

    CLUSTERING = "CLUSTERING"
    """Each message goes to one member; failed messages are delivered again."""
    BROADCASTING = "BROADCASTING"
    """Each message goes to every member; offsets are stored on the member's machine, failed messages are not delivered
    again.
    """


class Order(enum.Enum):
    """In which order a `PushConsumer` calls its listeners for the messages of a topic."""

    NONE = "NONE"
    """Messages are consumed concurrently; a failed message is delivered again later, after newer ones."""
    BY_QUEUE = "BY_QUEUE"
    """The messages of a queue are consumed one after the other."""
    BY_KEY = "BY_KEY"
    """Messages with the same key are consumed one after the other, messages with different keys in parallel."""


class OnFailure(enum.Enum):
    """How an ordered consumer handles a message that failed `max_reconsume_times` + 1 times."""

    DEAD_LETTER = "DEAD_LETTER"
    """The message goes to the dead letter queue, and the next one of its key or queue follows."""
    SKIP = "SKIP"
    """The message counts as consumed, and an error is logged."""
    STOP = "STOP"
    """The consumer stops; the offset of the message is not committed. `PushConsumer.wait` raises the error."""


class GeneratedName(str):
    """A generated instance name, which differs in every process."""

    __slots__ = ()


def _new_instance_name() -> str:
    return GeneratedName(f"{os.getpid()}#{time.time_ns()}#{next(_instances)}")


def _name_servers_from_environment() -> tuple[str, ...]:
    return parse_addresses(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"))


def parse_addresses(text: str | Sequence[str]) -> tuple[str, ...]:
    """Parse `"host:port;host:port"` or a sequence of such strings into `host:port` addresses.

    Raises:
        ConfigError: There is no address, an address is not `host:port`, or a value is not a string.
    """
    given: Any = text
    texts = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if not all(isinstance(item, str) for item in texts):
        raise ConfigError(f"name_servers must be text or a sequence of texts, not {text!r}")
    addresses = tuple(part.strip() for item in texts for part in re.split("[;,]", item) if part.strip())
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match["port"]) < 65536:
            raise ConfigError(f"address {address!r} is not host:port")
    if not addresses:
        raise ConfigError("no name server address: pass name_servers or set NAMESRV_ADDR=host:port;host:port")
    return tuple(dict.fromkeys(addresses))


@dataclass(frozen=True)
class ClientConfig:
    """Connection settings for one RaptorMQ or RocketMQ cluster.

    Producers and consumers with the same `ClientConfig` share connections, routes and heartbeats.
    """

    name_servers: Sequence[str] | str = field(default_factory=_name_servers_from_environment)
    """`"host:port;host:port"` or a sequence; default: environment variable NAMESRV_ADDR, or else 127.0.0.1:9876."""
    instance_name: str = field(default_factory=_new_instance_name)
    """Second half of the client id. Must be unique per host, since two consumers of a group with the same id would read
    the same queues."""
    request_timeout: Seconds = 3.0
    """Default timeout of requests in seconds."""
    route_refresh_interval: Seconds = 30.0
    """Interval between two refreshes of a route, as in the Java client."""
    heartbeat_interval: Seconds = 30.0
    """Interval of heartbeats. Brokers remove a client after 120 s without a heartbeat."""
    close_timeout: Seconds = 5.0
    """Maximum time that `close()` waits for requests in flight."""
    client_ip: str = ""
    """First half of the client id; default: the address of the network interface towards the name server."""
    credentials: Credentials | None = field(default_factory=credentials_from_environment)
    """Credentials for signing requests; default: RAPTORMQ_ACCESS_KEY and RAPTORMQ_SECRET_KEY, or else accessKey and
    secretKey of $ROCKETMQ_HOME/conf/tools.yml, or else none.
    """
    tls: ClientTls | None = field(default_factory=tls_from_environment)
    """TLS settings; None disables TLS. Default: from RAPTORMQ_TLS and the related variables."""

    keys: EncryptionKeys | None = field(default_factory=keys_from_environment)
    """Keys for encrypting and decrypting messages; default: the keys in RAPTORMQ_ENCRYPTION_KEYS, or else those in the
    folder RAPTORMQ_ENCRYPTION_KEY_FOLDER, or else none. Unreadable keys raise an error when they are first needed.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "name_servers", parse_addresses(self.name_servers))
        check_settings(self)

    @classmethod
    def choose(cls, config: ClientConfig | None, name_servers: Sequence[str] | str | None) -> ClientConfig:
        """Return `config`, or a new one for `name_servers`, or one with defaults.

        Raises:
            ConfigError: both are given, or one is invalid.
        """
        if config is not None and name_servers is not None:
            raise ConfigError("pass either name_servers or client_config, which has its own")
        check_setting("client_config", config, cls | None)
        if config is not None:
            return config
        return cls() if name_servers is None else cls(name_servers)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The name servers, in the given order."""
        return tuple(self.name_servers)  # parsed on creation


class WhenFull(enum.Enum):
    """Behaviour of `submit` and `send_with_callback` when the limit of messages in flight is reached. `send` always
    waits."""

    WAIT = "wait"
    """Return immediately and send the message when the limit permits. The send fails after `send_timeout`. Waiting
    messages are kept in memory.
    """
    RAISE = "raise"
    """Raise `Backpressure`; nothing is sent."""


@dataclass(frozen=True)
class ProducerConfig:
    """Settings for sending messages."""

    send_timeout: Seconds = 3.0
    """Time limit of a send: its wait for the limits of messages in flight and all attempts, without the time that a
    message waits for its batch.
    """
    retries: CountOrZero = 2
    """Number of retries (retryTimesWhenSendFailed). Attempts that reach no broker of the topic, for example during its
    restart, are not counted: the send waits for a broker until `send_timeout`. With 0 the send does not wait, either.
    """
    avoid_failed_broker: SecondsOrZero = 30.0
    """Seconds for which a failed broker is avoided if another broker serves the topic."""
    avoid_slow_brokers: bool = False
    """Also avoid brokers that answer slowly (sendLatencyFaultEnable): for 2 s after a response that took 0.55 s, 5 s
    after 1.8 s, 6 s after 3 s, 10 s after 5 s, 30 s after 15 s, as in the Java client, and not after a faster response.
    """
    default_topic_queues: Count = 4
    """Number of queues of automatically created topics (defaultTopicQueueNums)."""
    compress_over_bytes: CountOrZero = 4096
    """Minimum size in bytes of bodies to compress (compressMsgBodyOverHowmuch). Bodies that do not shrink are not
    compressed. 0 disables compression.
    """
    compression: Compression = Compression.ZLIB
    """The compression (compressType)."""
    compress_batches: bool = False
    """Also compress batches: as a whole on topics of queue type BatchCQ, message by message on others."""
    encrypt: bool = False
    """Encrypt bodies, not properties, with the current key of `ClientConfig.keys`."""
    max_message_bytes: Count = 4 * 1024 * 1024
    """Maximum body size in bytes; should equal maxMessageSize of the brokers."""
    auto_batch: bool = False
    """Merge single messages into batches (autoBatch)."""
    batch_max_bytes: Annotated[int, Limits(_MAX_BATCH_BYTES)] = 32 * 1024
    """Size in bytes at which a merged batch is sent (batchMaxBytes); at most 2 MiB."""
    batch_max_delay_ms: Annotated[float, Limits(_MAX_BATCH_DELAY_MS)] = 10.0
    """Age in ms at which a merged batch is sent, regardless of its size (batchMaxDelayMs); at most 30,000."""
    total_batch_max_bytes: Annotated[int, Limits(LONG_MAX)] = 32 * 1024 * 1024
    """Limit on the bytes in all merged batches of a client (totalBatchMaxBytes). Above this limit messages are sent
    individually.
    """
    max_in_flight_messages: Count = 10_000
    """Maximum number of messages in flight over all producers of a client (backPressureForAsyncSendNum).
    """
    max_in_flight_bytes: Annotated[int, Limits(LONG_MAX)] = 32 * 1024 * 1024
    """Maximum bytes of the messages in flight (backPressureForAsyncSendSize); a larger message is sent alone."""
    when_full: WhenFull = WhenFull.WAIT
    """Behaviour of `submit` and `send_with_callback` at these limits; `send` waits for at most its timeout."""
    max_open_batches: Count = 1024
    """Maximum number of open batches. There is one batch per topic, queue, tag and wait flag; the batches for the
    queues of one broker count as one.
    """

    message_trace: bool = False
    """Record sends and ends of transactions in the message trace (enableMsgTrace), for `mqadmin queryMsgTraceById`."""
    trace_topic: str = TRACE_TOPIC
    """Topic of the message trace (customizedTraceTopic). Brokers have the default one with `traceTopicEnable=true`."""
    interceptors: Sequence[ProducerInterceptor] = ()
    """Code around each send, see `raptormq.client.interceptors`; the first one is the outermost."""

    def __post_init__(self) -> None:
        check_settings(self)
        _check_trace_topic(self.trace_topic)
        object.__setattr__(self, "interceptors", check_interceptors(self.interceptors, ProducerInterceptor))
        if self.auto_batch and self.batch_max_bytes > self.max_message_bytes:
            raise ConfigError("batch_max_bytes must not be larger than max_message_bytes")

    def with_settings(self, settings: ProducerSettings) -> ProducerConfig:
        """Return a copy with the values of `settings` that are not None.

        Raises:
            ConfigError: a value is invalid.
            TypeError: a setting is unknown.
        """
        given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        unknown = sorted(settings.keys() - {each.name for each in fields(self)})
        if unknown:
            known = ", ".join(ProducerSettings.__annotations__)
            raise TypeError(f"a producer has no argument {', '.join(unknown)}; settings are {known}")
        return replace(self, **given)


class ProducerSettings(TypedDict, total=False):
    """The fields of `ProducerConfig` as keyword arguments of producers. None keeps the configured value."""

    send_timeout: float | None
    retries: int | None
    avoid_failed_broker: float | None
    avoid_slow_brokers: bool | None
    default_topic_queues: int | None
    compress_over_bytes: int | None
    compression: Compression | None
    compress_batches: bool | None
    encrypt: bool | None
    max_message_bytes: int | None
    auto_batch: bool | None
    batch_max_bytes: int | None
    batch_max_delay_ms: float | None
    total_batch_max_bytes: int | None
    max_in_flight_messages: int | None
    max_in_flight_bytes: int | None
    when_full: WhenFull | None
    max_open_batches: int | None
    message_trace: bool | None
    trace_topic: str | None
    interceptors: Sequence[ProducerInterceptor] | None


@dataclass(frozen=True)
class ConsumerConfig:
    """Settings of a `PushConsumer`, `Consumer` or `LitePullConsumer`."""

    consume_from: ConsumeFromWhere = ConsumeFromWhere.LAST
    """Where a new group starts. A young topic, whose first message is still stored, is always read from that message,
    except with BROADCASTING. There, LAST skips the messages that were stored before this member discovered the topic or
    queue, even if it was created after the member started.
    """
    consume_from_ms: Milliseconds = 0
    """With `TIMESTAMP`: store time at which a new group starts, in milliseconds since 1970."""
    message_model: MessageModel = MessageModel.CLUSTERING
    """Whether the members share the messages, or each member receives all messages."""
    start_timeout: Seconds = 10.0
    """Timeout of `start()` for the routes of the subscribed topics and the members of the group.
    """
    allow_missing_topics: bool = False
    """Let `start()` return without waiting: topics need not exist, and servers may be unavailable. While a topic cannot
    be read, a warning is logged every 30 s.
    """
    offset_folder: str | Path = "~/.rocketmq_offsets"
    """Folder for the offsets of a broadcasting member. Its subfolder is named `<client address>@<instance name>`, with
    `DEFAULT` in place of a generated instance name.
    """
    order: Order = Order.NONE
    """Order of listener calls. All members of a group must use the same value, because only ordered members use queue
    locks.
    """
    order_key: Callable[[MessageExt], Hashable] | None = None
    """With `BY_KEY`: function that returns the key of a message, or None. Default: the sharding key, or else the text
    of all keys. Messages of a topic without a key are consumed sequentially.
    """
    on_failure: OnFailure = OnFailure.DEAD_LETTER
    """With an order: handling of a message whose retries are exhausted."""
    retry_pause: Seconds = 1.0
    """With an order: pause before a failed message is retried (suspendCurrentQueueTimeMillis); it doubles with each
    retry. Later messages of the same queue or key wait, others do not.
    """
    longest_retry_pause: Seconds = 30.0
    """Maximum of `retry_pause` after doubling."""
    concurrency: Annotated[int, Limits(_MAX_CONCURRENCY)] = 20
    """Maximum number of concurrent listener calls over all queues (consumeThreadMin); at most 10,000."""
    consume_batch: Annotated[int, Limits(_MAX_CONSUME_BATCH)] = 1
    """Maximum number of messages per listener call (consumeMessageBatchMaxSize), at most 32,767. With an order all
    messages of a call have the same queue or key.
    """
    consume_timeout: Seconds = 900.0
    """Timeout of a listener call (consumeTimeout, 15 minutes). The call is then cancelled, and its messages are
    retried."""
    max_reconsume_times: CountOrZero = 16
    """Maximum number of redeliveries before a message is moved to the dead letter queue; with an order, of retries
    before `on_failure`."""
    pull_batch: Count = 32
    """Messages per pull (pullBatchSize)."""
    pull_interval: SecondsOrZero | None = None
    """Pause before the next pull at the end of a queue (pullInterval), so that a pull returns more messages. Default:
    0.005 for batch listeners, up to 0.025 at a high rate of pulls, else 0.
    """
    pull_suspend: Seconds = 15.0
    """Seconds for which the broker holds a pull of an empty queue; up to four times as long for a consumer of thousands
    of queues, so that the consumer sends about 200 pulls of idle queues a second.
    """
    pull_timeout: Seconds = 30.0
    """Timeout of a pull. For a pull that the broker holds longer, the timeout is extended.
    """
    commit_interval: Seconds = 5.0
    """Interval between two commits of offsets; offsets are also committed on stop."""
    rebalance_interval: Seconds = 20.0
    """Interval between two rebalances; queues are also rebalanced when the group changes."""
    hand_over_timeout: Seconds = 5.0
    """Maximum time for which running listener calls delay the handover of a queue to another member. Duplicates are
    possible after this time, after a crash, or with mixed client types.
    """
    max_messages_per_queue: Count = 1000
    """Unfinished messages per queue at which fetching pauses (pullThresholdForQueue)."""
    max_bytes_per_queue: Annotated[int, Limits(LONG_MAX)] = 100 * 1024 * 1024
    """The same limit in bytes of bodies (pullThresholdSizeForQueue)."""
    max_span_per_queue: Count | None = None
    """The same limit as the distance between the first unfinished and the next offset (consumeConcurrentlyMaxSpan).
    Default: 2,000, or 100,000 with `BY_KEY`, so that a key that is retried does not block its queue. This is also the
    maximum number of redelivered messages after a crash.
    """

    allocate_strategy: AllocateStrategy = field(default_factory=Averagely)
    """How the queues of a topic are divided among the members (allocateMessageQueueStrategy), see
    `raptormq.client.allocation`. All members of a group must use the same strategy with the same settings.
    """
    rebalance_listener: RebalanceListener | None = None
    """Listener that is called when queues are assigned, revoked or lost."""
    message_trace: bool = False
    """Record the consumption of each message in the message trace (enableMsgTrace), for `mqadmin queryMsgTraceById`."""
    trace_topic: str = TRACE_TOPIC
    """Topic of the message trace (customizedTraceTopic). Brokers have the default one with `traceTopicEnable=true`."""
    interceptors: Sequence[ConsumerInterceptor] = ()
    """Code around each listener call, or each message of a loop, see `raptormq.client.interceptors`; the first one is
    the outermost.
    """

    def __post_init__(self) -> None:
        check_settings(self)
        _check_trace_topic(self.trace_topic)
        object.__setattr__(self, "interceptors", check_interceptors(self.interceptors, ConsumerInterceptor))
        check_rebalance_listener(self.rebalance_listener)
        if self.pull_timeout <= self.pull_suspend:
            raise ConfigError("pull_timeout must be longer than pull_suspend")
        if self.order_key is not None and self.order is not Order.BY_KEY:
            raise ConfigError("order_key needs order=Order.BY_KEY")
        if self.longest_retry_pause < self.retry_pause:
            raise ConfigError("longest_retry_pause must not be shorter than retry_pause")

    @property
    def span_limit(self) -> int:
        """`max_span_per_queue`, or its default."""
        if self.max_span_per_queue is not None:
            return self.max_span_per_queue
        return _SPAN_BY_KEY if self.order is Order.BY_KEY else _SPAN


def _check_trace_topic(topic: str) -> None:
    try:
        check_topic(topic)
    except MessageError as error:
        raise ConfigError(f"trace_topic: {error}") from None


def local_address(towards: str) -> str:
    """Return the IPv4 address of the network interface towards `towards` (`host:port`); 127.0.0.1 without a route.

    A host name is not resolved, because that may take seconds: the default route is used instead.
    """
    host = towards.rpartition(":")[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket only looks up the route; nothing is sent.
            probe.connect((host if _IPV4.fullmatch(host) else _SOMEWHERE_ELSE, _DISCARD_PORT))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
