"""Dispatch: from the log to everything that is derived from it (Apache RocketMQ ``ReputMessageService``).

A pipeline of builders, each of which gets every batch once and in the order of the log, but never one beyond the
confirmed offset. Right after an append the batch is at hand and nothing is read back; recovery reads batches from the
log and gives them to the same builders, which therefore leave alone what they have already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from raptormq.storage.queue import Appended, AppendedLists, AppendResult, Arrival


class DispatchLag(NamedTuple):
    """How far what is derived from the log is behind it."""

    bytes: int
    """Bytes of log that no queue and no index has yet; while a recovery runs, an estimate."""
    milliseconds: int
    """Age of the oldest message among them."""


class IndexBuilder(Protocol):
    """Derives something from the records of the log: the queues, the key index, queues that are being converted."""

    def build(self, batch: AppendResult) -> None:
        """Take in the records of ``batch``; records that were taken in before may come again."""

    def build_lists(self, batch: AppendedLists) -> None:
        """Take in lists that have just been appended."""


class Dispatcher:
    """Holds batches back until they are confirmed, then gives them to ``builders`` one after another."""

    def __init__(self, builders: Sequence[IndexBuilder]) -> None:
        self._builders = tuple(builders)
        self._waiting: deque[Appended] = deque()
        self.dispatched_offset = 0
        self.last_timestamp = 0
        """Store time of the last record that was dispatched, in ms."""
        self.expected_end = 0
        """Where the log probably ends, while a recovery walks through it; else 0."""

    def attach(self, builder: IndexBuilder) -> None:
        """Give what comes from now on to ``builder`` as well, after all others."""
        self._builders = (*self._builders, builder)

    def detach(self, builder: IndexBuilder) -> None:
        """Give ``builder`` nothing more."""
        self._builders = tuple(each for each in self._builders if each is not builder)

    def submit(self, batch: Appended) -> None:
        """Queue a batch that has just become part of the log."""
        self._waiting.append(batch)

    def run(self, confirmed: int) -> list[Arrival]:
        """Dispatch every whole batch that ends at or before ``confirmed``; return the messages that became visible."""
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
        """Let the records of ``topic`` that wait for confirmation stay out of everything derived."""
        for batch in self._waiting:
            batch.drop_topic(topic)

    def apply(self, batch: AppendResult) -> None:
        """Give one batch to all builders."""
        for builder in self._builders:
            builder.build(batch)
        self.dispatched_offset = batch.end_offset
        self.last_timestamp = batch.store_timestamps[-1]

    def _apply_lists(self, batch: AppendedLists) -> None:
        for builder in self._builders:
            builder.build_lists(batch)
        self.dispatched_offset = batch.end_offset
        self.last_timestamp = batch.store_timestamp
