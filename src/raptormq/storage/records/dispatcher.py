"""Dispatch: from the log to the queues and indexes that are derived from it (Apache RocketMQ ``ReputMessageService``).

Each builder gets every batch once, in the order of the log, and never a batch beyond the confirmed offset. The batch of
an append is still in memory, so nothing is read from the log. Recovery reads batches from the log and passes them to
the same builders, which therefore skip records that they have already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from raptormq.protocol.record import SysFlag
from raptormq.storage.queue import Appended, AppendedLists, AppendResult, Arrival, QueueTable
from raptormq.storage.records.appender import NOT_IN_QUEUE

_INNER_BATCH = int(SysFlag.INNER_BATCH)


class DispatchLag(NamedTuple):
    """Distance of the queues and indexes from the end of the log."""

    bytes: int
    """Bytes of log that are not dispatched; an estimate during a recovery."""
    milliseconds: int
    """Age in ms of the oldest message that is not dispatched."""


class IndexBuilder(Protocol):
    """Builds a structure that is derived from the log: the queues, the key index, or the queues of a conversion."""

    def build(self, batch: AppendResult) -> None:
        """Add the records of ``batch``. Records may be passed more than once."""

    def build_lists(self, batch: AppendedLists) -> None:
        """Add lists that have just been appended."""


class Dispatcher:
    """Queues batches until they are confirmed, then passes them to each of ``builders``."""

    def __init__(self, builders: Sequence[IndexBuilder]) -> None:
        self._builders = tuple(builders)
        self._waiting: deque[Appended] = deque()
        self.dispatched_offset = 0
        self.last_timestamp = 0
        """Store time of the last dispatched record, in ms."""
        self.expected_end = 0
        """The probable end of the log during a recovery; 0 otherwise."""

    def attach(self, builder: IndexBuilder) -> None:
        """Pass later batches to ``builder`` as well, after all others."""
        self._builders = (*self._builders, builder)

    def detach(self, builder: IndexBuilder) -> None:
        """Stop passing batches to ``builder``."""
        self._builders = tuple(each for each in self._builders if each is not builder)

    @property
    def pending_range(self) -> tuple[int, int] | None:
        """Start and end of the first batch that waits for confirmation; None without one."""
        return (self._waiting[0].start_offset, self._waiting[0].end_offset) if self._waiting else None

    def discard_pending(self) -> None:
        """Drop the batches that wait for confirmation. Their bytes are read from the log again, or are truncated."""
        self._waiting.clear()

    def submit(self, batch: Appended) -> None:
        """Queue a batch that has just been appended."""
        self._waiting.append(batch)

    def run(self, confirmed: int) -> list[Arrival]:
        """Dispatch every batch that ends at or before ``confirmed``. Return the messages that became visible."""
        waiting = self._waiting
        arrivals: list[Arrival] = []
        while waiting and waiting[0].end_offset <= confirmed:
            batch = waiting[0]
            if isinstance(batch, AppendedLists):
                self._apply_lists(batch)
            else:
                self.apply(batch)
            waiting.popleft()
            arrivals += batch.arrivals()
        return arrivals

    def lag(self, log_end: int, now: int) -> DispatchLag:
        """Return how far the builders are behind a log that ends at ``log_end``, at ``now`` (ms)."""
        behind = max(log_end, self.expected_end) - self.dispatched_offset
        if behind <= 0:
            return DispatchLag(0, 0)
        oldest = self._waiting[0].store_timestamp if self._waiting else self.last_timestamp
        return DispatchLag(behind, max(0, now - oldest) if oldest else 0)

    def drop_topic(self, topic: str) -> None:
        """Exclude the pending records of ``topic`` from queues and indexes."""
        for batch in self._waiting:
            batch.drop_topic(topic)

    def apply(self, batch: AppendResult) -> None:
        """Pass one batch to all builders."""
        for builder in self._builders:
            builder.build(batch)
        self.dispatched_offset = batch.end_offset
        self.last_timestamp = batch.store_timestamps[-1]

    def _apply_lists(self, batch: AppendedLists) -> None:
        for builder in self._builders:
            builder.build_lists(batch)
        self.dispatched_offset = batch.end_offset
        self.last_timestamp = batch.store_timestamp


def assign_queues(batch: AppendResult, queues: QueueTable) -> set[str]:
    """Fill in ``batch.queues`` for records that were read from the log or sent by another replica. Records that belong
    to no queue (half messages and rolled back ones) and those of deleted topics get None.

    A topic with an inner batch is of type BatchCQ, even if the topic table does not declare it: a crash may have
    followed the creation of the topic, or the table was lost or replaced by an older one. Return the topics with an
    inner batch that already have SimpleCQ queues.
    """
    find, dead = queues.get_or_create, queues.topic_tombstones
    mistyped: set[str] = set()
    for record, place in zip(batch.records, batch.physical_offsets, strict=True):
        topic = record.topic
        if (
            record.sys_flag & _INNER_BATCH
            and place >= dead.get(topic, 0)
            and topic not in queues.batch_topics
            and topic not in queues.conversions
        ):
            (mistyped if queues.queue_ids(topic) else queues.batch_topics).add(topic)
    batch.queues = [
        None
        if record.sys_flag & NOT_IN_QUEUE or place < dead.get(record.topic, 0)
        else find(record.topic, record.queue_id)
        for record, place in zip(batch.records, batch.physical_offsets, strict=True)
    ]
    return mistyped
