"""Results of `describe()` of producers and consumers: snapshots for people, logs and dashboards. A snapshot consists of
plain values and needs no request to a server. Offsets are those of the last response of the broker, so the lag of a
queue that cannot be read stays that of its last pull. `as_dict` returns a snapshot as JSON values. See also:
`consumer.group_member`, `producer.producer` create them. Source: RocketMQ `ConsumerRunningInfo`,
`LatencyFaultTolerance`; none for the rest.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from raptormq.protocol.message import MessageQueue


class ReadState(enum.Enum):
    """State of the reader of a queue."""

    STARTING = "starting"
    """The reader does not know its start offset yet, or waits for `on_queues_assigned`."""
    READING = "reading"
    PAUSED = "paused"
    """The application has paused the queue."""
    FULL = "full"
    """Messages that are not finished have reached a limit (`max_messages_per_queue` and others)."""
    FAILING = "failing"
    """The last pull has failed and is retried."""


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """One assigned queue. Offsets are `None` while they are not known."""

    queue: MessageQueue
    state: ReadState
    commit_offset: int | None
    """Offset of the first message that is not finished; it is committed next."""
    next_offset: int | None
    """Offset of the next message to fetch."""
    max_offset: int | None
    """End of the queue at the last pull."""
    unfinished_messages: int
    """Messages that were fetched and not finished."""
    unfinished_bytes: int
    running_calls: int
    """Number of running listener calls, or of messages that a loop has received and not settled."""
    error: str | None
    """Error of the last pull; `None` if it succeeded."""

    @property
    def lag(self) -> int | None:
        """Messages that are not finished, including those that were not fetched; an upper bound with a filter."""
        if self.max_offset is None or self.commit_offset is None:
            return None
        return max(self.max_offset - self.commit_offset, 0)


@dataclass(frozen=True, slots=True)
class WorkerDescription:
    """One task that calls listeners."""

    name: str
    topic: str | None
    """Topic of the running call; `None` while the worker is idle."""
    queue: MessageQueue | None
    messages: int
    """Number of messages of the call."""
    seconds: float
    """Seconds since the call began."""


@dataclass(frozen=True, slots=True)
class ConsumerDescription:
    """State of one member of a consumer group."""

    group: str
    client_id: str | None
    """`None` while the consumer is not started."""
    subscriptions: dict[str, str]
    """Expressions by topic."""
    queues: tuple[QueueDescription, ...]
    """The assigned queues, in order."""
    workers: tuple[WorkerDescription, ...]
    """The tasks that call listeners; empty for a consumer without listeners."""

    @property
    def is_started(self) -> bool:
        """Whether the consumer is started."""
        return self.client_id is not None

    @property
    def lag(self) -> int:
        """Sum of the known lags."""
        return sum(queue.lag or 0 for queue in self.queues)

    @property
    def waiting_messages(self) -> int:
        """Fetched messages that wait for a worker or for the loop of the application."""
        fetched = sum(queue.unfinished_messages for queue in self.queues)
        if self.workers:
            return max(fetched - sum(worker.messages for worker in self.workers), 0)
        return fetched - sum(queue.running_calls for queue in self.queues)

    @property
    def busy_workers(self) -> int:
        """Number of running listener calls."""
        return sum(worker.topic is not None for worker in self.workers)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker as observed by a producer."""

    name: str
    address: str | None
    """Address of the master; `None` if it has none now."""
    avoided_seconds: float
    """Seconds for which other brokers are still preferred; 0 if the broker is not avoided."""
    latency: float | None
    """Seconds that the last response took; `None` before the first one, or if latencies are not observed."""


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """State of a producer."""

    group: str
    client_id: str | None
    """`None` while the producer is not started."""
    in_flight_messages: int
    """Messages without an outcome, of all producers with the same `ClientConfig`."""
    in_flight_bytes: int
    waiting_messages: int
    """Messages, and lists of `send_batch`, of this producer that wait for the limits of messages in flight."""
    brokers: tuple[BrokerDescription, ...]
    """Brokers of the topics that were sent to, in the order of their names."""

    @property
    def is_started(self) -> bool:
        """Whether the producer is started."""
        return self.client_id is not None


def as_dict(described: Any) -> Any:
    """Return a description as JSON values, including properties such as `lag`."""
    if is_dataclass(described) and not isinstance(described, type):
        kind = type(described)
        names = [each.name for each in fields(described)]
        names += [name for name in vars(kind) if isinstance(vars(kind)[name], property)]
        return {name: as_dict(getattr(described, name)) for name in names}
    if isinstance(described, enum.Enum):
        return described.value
    if isinstance(described, tuple | list):
        return [as_dict(each) for each in described]
    if isinstance(described, dict):
        return {str(name): as_dict(value) for name, value in described.items()}
    return described
