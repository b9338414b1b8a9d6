"""Settings of clients, producers and consumers: plain values that are checked on creation and never change.

Times are in seconds as a float unless the name says otherwise. Defaults are RocketMQ's where it has one.
Neighbour: `cluster.client_instance`, of which there is one per `ClientConfig`. Source: RocketMQ `ClientConfig`,
`DefaultMQProducer`, `DefaultMQPushConsumer`.
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
from raptormq.errors import ConfigError
from raptormq.protocol.compression import Compression
from raptormq.protocol.message import MessageExt

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
    """What an ordered consumer does with a message that failed `max_reconsume_times` + 1 times."""

    DEAD_LETTER = "DEAD_LETTER"
    """The message goes to the dead letter queue, and the next one of its key or queue follows."""
    SKIP = "SKIP"
    """The message counts as consumed, and an error is logged."""
    STOP = "STOP"
    """The consumer stops; the offset of the message is not committed. `PushConsumer.wait` raises the error."""


class GeneratedName(str):
    """An instance name that was generated: the next process has another one."""

    __slots__ = ()


def _new_instance_name() -> str:
    return GeneratedName(f"{os.getpid()}#{time.time_ns()}#{next(_instances)}")


def _name_servers_from_environment() -> tuple[str, ...]:
    return parse_addresses(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"))


def parse_addresses(text: str | Sequence[str]) -> tuple[str, ...]:
    """Return the `host:port` addresses of `"host:port;host:port"` or of a sequence of such texts.

    Raises:
        ConfigError: there is no address, one is not `host:port`, or a value is not text.
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
    """How a process connects to one RaptorMQ (or RocketMQ) cluster.

    Producers and consumers with the same `ClientConfig` share connections, routes and heartbeats.
    """

    name_servers: Sequence[str] | str = field(default_factory=_name_servers_from_environment)
    """`"host:port;host:port"` or a sequence; default: environment variable NAMESRV_ADDR, else 127.0.0.1:9876."""
    instance_name: str = field(default_factory=_new_instance_name)
    """Second half of the client id, unique per host: two consumers of a group with the same id would share queues."""
    request_timeout: Seconds = 3.0
    """Timeout of every request without its own."""
    route_refresh_interval: Seconds = 30.0
    """Interval between two refreshes of a route, as in the Java client."""
    heartbeat_interval: Seconds = 30.0
    """Brokers forget a client after 120 s of silence."""
    close_timeout: Seconds = 5.0
    """`close()` waits at most this long for requests in flight."""
    client_ip: str = ""
    """First half of the client id; default: the address that this host uses towards the name server."""
    credentials: Credentials | None = field(default_factory=credentials_from_environment)
    """Credentials that requests are signed with; default: RAPTORMQ_ACCESS_KEY and RAPTORMQ_SECRET_KEY, else accessKey
    and secretKey of $ROCKETMQ_HOME/conf/tools.yml, else none.
    """
    tls: ClientTls | None = field(default_factory=tls_from_environment)
    """TLS of connections, None for none; default: from RAPTORMQ_TLS and the related variables."""

    keys: EncryptionKeys | None = field(default_factory=keys_from_environment)
    """Keys that messages are encrypted and decrypted with; default: those in RAPTORMQ_ENCRYPTION_KEYS, else those in
    the folder RAPTORMQ_ENCRYPTION_KEY_FOLDER, else none. Keys that cannot be read raise an error when they are needed.
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
        return tuple(self.name_servers)  # parsed when this was made


class WhenFull(enum.Enum):
    """What `submit` and `send_with_callback` do when as many messages are in flight as may be; `send` waits."""

    WAIT = "wait"
    """Return at once and send the message when there is room. It fails after `send_timeout` without room. The waiting
    messages stay in memory.
    """
    RAISE = "raise"
    """Raise `Backpressure`; nothing is sent."""


@dataclass(frozen=True)
class ProducerConfig:
    """How messages are sent."""

    send_timeout: Seconds = 3.0
    """Deadline over all attempts of a send; the time that a message waits for its batch does not count."""
    retries: CountOrZero = 2
    """Further attempts after the first failure (retryTimesWhenSendFailed). Attempts that reach no broker of the topic,
    for example during its restart, are not counted and continue until `send_timeout`; 0 allows none.
    """
    avoid_failed_broker: SecondsOrZero = 30.0
    """How long a broker that failed gets no messages while another one serves the topic."""
    default_topic_queues: Count = 4
    """Queues of a topic that is created by its first message (defaultTopicQueueNums)."""
    compress_over_bytes: CountOrZero = 4096
    """Bodies of at least this size are compressed (compressMsgBodyOverHowmuch), unless they do not shrink; 0 turns
    compression off.
    """
    compression: Compression = Compression.ZLIB
    """The compression (compressType)."""
    compress_batches: bool = False
    """Also compress batches: as a whole on topics of queue type BatchCQ, message by message on others."""
    encrypt: bool = False
    """Encrypt bodies, not properties, with the current key of `ClientConfig.keys`."""
    max_message_bytes: Count = 4 * 1024 * 1024
    """Largest body that the brokers accept (maxMessageSize)."""
    auto_batch: bool = False
    """Merge messages that are sent one by one into batches (autoBatch)."""
    batch_max_bytes: Annotated[int, Limits(_MAX_BATCH_BYTES)] = 32 * 1024
    """Size at which such a batch is sent (batchMaxBytes); at most 2 MiB."""
    batch_max_delay_ms: Annotated[float, Limits(_MAX_BATCH_DELAY_MS)] = 10.0
    """Age in milliseconds at which it is sent, whatever its size (batchMaxDelayMs); at most 30,000."""
    total_batch_max_bytes: Annotated[int, Limits(LONG_MAX)] = 32 * 1024 * 1024
    """While all batches of a client hold this many bytes, further messages are sent by themselves (totalBatchMaxBytes).
    """
    max_in_flight_messages: Count = 10_000
    """Messages without an outcome at which further ones wait, over all producers of a client
    (backPressureForAsyncSendNum).
    """
    max_in_flight_bytes: Annotated[int, Limits(LONG_MAX)] = 32 * 1024 * 1024
    """The same in bytes (backPressureForAsyncSendSize); a larger single message is sent alone."""
    when_full: WhenFull = WhenFull.WAIT
    """What `submit` and `send_with_callback` do at these limits; `send` waits for at most its timeout."""
    max_open_batches: Count = 1024
    """The same for the number of open batches, of which there is one per topic, queue, tag and wait flag; the batches
    for the queues of one broker count as one.
    """

    def __post_init__(self) -> None:
        check_settings(self)
        if self.auto_batch and self.batch_max_bytes > self.max_message_bytes:
            raise ConfigError("batch_max_bytes must not be larger than max_message_bytes")

    def with_settings(self, settings: ProducerSettings) -> ProducerConfig:
        """Return this configuration with the values of `settings` that are not `None`.

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
    """The fields of `ProducerConfig`, which producers also take as keyword arguments; `None` changes nothing."""

    send_timeout: float | None
    retries: int | None
    avoid_failed_broker: float | None
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


@dataclass(frozen=True)
class ConsumerConfig:
    """How a `PushConsumer` fetches, consumes and commits."""

    consume_from: ConsumeFromWhere = ConsumeFromWhere.LAST
    """Where a new group starts. A young topic, whose first message is still stored, is read from that message in any
    case, except with BROADCASTING: there LAST skips the messages that a topic or a queue got before this member found
    it, even if it was created after the member had started. FIRST skips nothing.
    """
    consume_from_ms: Milliseconds = 0
    """With `TIMESTAMP`: milliseconds since 1970."""
    message_model: MessageModel = MessageModel.CLUSTERING
    """Whether members share the messages or each gets all of them."""
    start_timeout: Seconds = 10.0
    """How long `start()` waits for the routes of the subscribed topics and for the members of the group, before it
    raises.
    """
    allow_missing_topics: bool = False
    """`start()` does not wait: topics need not exist yet, and servers may be down. While a topic cannot be read, a
    warning is logged every 30 s.
    """
    offset_folder: str | Path = "~/.rocketmq_offsets"
    """Folder for the offsets of a broadcasting member, in subfolders for its address and instance name, `DEFAULT` if
    none is set.
    """
    order: Order = Order.NONE
    """The order of listener calls. All members of a group need the same value: ordered members take queue locks, which
    others do not respect.
    """
    order_key: Callable[[MessageExt], Hashable] | None = None
    """With `BY_KEY`: returns the key of a message, `None` for a message without one; default: the sharding key, else
    the text of all keys. Messages of a topic without a key are consumed one after the other.
    """
    on_failure: OnFailure = OnFailure.DEAD_LETTER
    """With an order: what happens to a message whose retries are used up."""
    retry_pause: Seconds = 1.0
    """With an order: pause before a failed message is retried (suspendCurrentQueueTimeMillis); it doubles with each
    retry. Later messages of the same queue or key wait, others do not.
    """
    longest_retry_pause: Seconds = 30.0
    """Limit of that pause."""
    concurrency: Annotated[int, Limits(_MAX_CONCURRENCY)] = 20
    """Concurrent listener calls, over all queues (consumeThreadMin); at most 10,000."""
    consume_batch: Annotated[int, Limits(_MAX_CONSUME_BATCH)] = 1
    """Most messages per listener call (consumeMessageBatchMaxSize), at most 32,767; with an order they have one queue
    or one key.
    """
    consume_timeout: Seconds = 900.0
    """A listener call that takes longer is cancelled and its messages are retried (consumeTimeout, 15 minutes)."""
    max_reconsume_times: CountOrZero = 16
    """Redeliveries before a message goes to the dead letter queue; with an order, retries before `on_failure`."""
    pull_batch: Count = 32
    """Messages per pull (pullBatchSize)."""
    pull_interval: SecondsOrZero | None = None
    """Pause before the next pull of a queue whose end was reached (pullInterval), so that a pull returns more; default:
    0.005 for batch listeners, up to 0.025 at a high rate of pulls, else 0.
    """
    pull_suspend: Seconds = 15.0
    """How long the broker holds a pull of an empty queue; up to four times as long for a consumer of thousands of
    queues, so that it sends about 200 pulls of idle queues a second.
    """
    pull_timeout: Seconds = 30.0
    """A pull without a response for this long has failed; for a pull that is held longer, this time is longer as well.
    """
    commit_interval: Seconds = 5.0
    """Interval between two commits of offsets; offsets are also committed on stop."""
    rebalance_interval: Seconds = 20.0
    """Interval between two rebalances; queues are also rebalanced when the group changes."""
    hand_over_timeout: Seconds = 5.0
    """How long a queue that goes to another member waits for running listener calls. Duplicates are possible after this
    time, after a crash, or with mixed client types.
    """
    max_messages_per_queue: Count = 1000
    """Unfinished messages per queue at which fetching pauses (pullThresholdForQueue)."""
    max_bytes_per_queue: Annotated[int, Limits(LONG_MAX)] = 100 * 1024 * 1024
    """The same in bytes of bodies (pullThresholdSizeForQueue)."""
    max_span_per_queue: Count | None = None
    """The same as the distance between the first unfinished and the next offset (consumeConcurrentlyMaxSpan); default:
    2,000, and 100,000 with `BY_KEY`, so that a key that is retried does not stop its queue. After a crash, at most so
    many messages are delivered again.
    """

    def __post_init__(self) -> None:
        check_settings(self)
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


def local_address(towards: str) -> str:
    """Return the IPv4 address of this host on the way to `towards` (`host:port`), 127.0.0.1 when there is no route.

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
