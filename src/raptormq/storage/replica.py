"""The store as one copy of several: what replication reads from the log, writes to it, cuts and confirms.

The unit of replication is the range of bytes between two ends of records. A member that leads appends messages as ever
(:meth:`~raptormq.storage.store.MessageStore.append`); one that follows writes ranges that it gets. On both, nothing
goes into queues and index before it is confirmed::

    0 ........... dispatched ........ confirmed ......... end
    | in queues and index | about to be |  on this copy, may be cut again  |

What has just been written waits in the dispatcher in the form that builders take. Where it is not there - after a
start, or after a cut through a group - it is read from the log again, :data:`STEP_BYTES` at a time.

Offsets in queues are handed out by the member that leads. So it takes messages only when all that was in the log before
is dispatched (:meth:`Replica.lead`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from raptormq.errors import NotLeader, RecordError, StorageError, StoreDamaged
from raptormq.storage.fs import Buffer
from raptormq.storage.parts import StoreParts
from raptormq.storage.queue import AppendResult, Arrival
from raptormq.storage.records import IndexBuilder, assign_queues, last_record_end, next_record_end, parse_range

STEP_BYTES = 4 << 20
"""Most bytes of the log that one step of the dispatch reads."""
_HEAD_BYTES = 8


class Replica:
    """One copy. Everything belongs to the event loop's thread, but for :meth:`truncate`."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._log = parts.log
        self._dispatcher = parts.dispatcher
        self._confirmation = parts.confirmation
        self.leads = False
        """Whether this member appends messages; else it takes ranges."""
        self.on_appended: Callable[[], None] = lambda: None
        """Called after each group of messages that this member has appended."""
        self.own_topic = ""
        """A topic whose records concern the members themselves: each ends a batch of the dispatch, so that what a
        builder does with it happens before the next record goes into a queue."""
        self._own_record_end = 0

    def opened(self, dispatched_offset: int) -> None:
        """Begin after a recovery: follow, with what is dispatched as confirmed."""
        self._confirmation.confirm(dispatched_offset)
        self.follow(NotLeader("the group of this broker has no leader that it knows yet"))

    # --- reading ---

    @property
    def start_offset(self) -> int:
        """The first byte that is still there."""
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """Behind the last byte."""
        return self._log.end_offset

    @property
    def dispatched_offset(self) -> int:
        """Everything below it is in queues and index."""
        return self._dispatcher.dispatched_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below it is on the disk."""
        return self._log.flushed_offset

    def align(self, start: int, limit: int) -> int:
        """Return the end of the last record that ends in ``(start, limit]``, or of the first one behind ``start`` where
        that is longer. ``start`` is the end of a record, or the beginning of the log. Waits for the disk.

        Raises:
            StoreDamaged: there is no record where one should be.
        """
        segment_size = self._log.segment_size
        limit = min(limit, self._log.end_offset)
        at = start
        try:
            while at < limit:
                stop = min(limit, at - at % segment_size + segment_size, at + STEP_BYTES)
                end = last_record_end(self._read(at, stop), at, segment_size)
                if end == at:  # cut by `stop`
                    end = at + next_record_end(self._read(at, at + _HEAD_BYTES), 0, at, segment_size)
                    if end > limit:
                        return at if at > start else end
                at = end
        except RecordError as error:
            raise StoreDamaged(f"the commit log is damaged: {error}") from error
        return at

    def read(self, begin: int, end: int, *, wait: bool) -> list[Buffer]:
        """Return the bytes ``[begin, end)`` of the log, a buffer for each segment; new ones are slices of the mapping.

        Raises:
            ValueError: the log does not have them.
            PagesMissing: without ``wait``, when the disk would have to be waited for.
            StorageError: the disk cannot read them.
        """
        if not self._log.min_offset <= begin <= end <= self._log.end_offset:
            have = f"[{self._log.min_offset}, {self._log.end_offset})"
            raise ValueError(f"the log has {have}, and not [{begin}, {end})")
        size = self._log.segment_size
        bounds = [begin, *range(begin - begin % size + size, end, size), end]
        return [self._log.read(low, high - low, wait=wait) for low, high in pairwise(bounds) if high > low]

    def _read(self, begin: int, end: int) -> bytes:
        return b"".join(map(bytes, self.read(begin, end, wait=True)))

    # --- writing ---

    def write(self, offset: int, data: bytes) -> None:
        """Write a range of another copy at the end of this one, after a look at each of its records.

        Raises:
            ValueError: it does not begin at the end of this copy, or this member leads.
            RecordError: it is damaged; nothing is written, and the range can be asked for again.
            StorageError: there is no room, the disk failed, or a batch came for a topic of another type; nothing is
                written.
        """
        if self.leads:
            raise ValueError("a member that leads writes no range of others")
        waiting = self._until_own_record(self._parse(data, offset))
        for batch in waiting:
            self._assign(batch)
        self._log.append_raw(offset, data)
        for batch in waiting:
            self._dispatcher.submit(batch)
        self._parts.flusher.appended()

    def _until_own_record(self, batches: list[AppendResult]) -> list[AppendResult]:
        """Return the batches whose queues can be known now. What is behind a record of :attr:`own_topic` is read from
        the log when that is dispatched: it may say of which type the queues of a topic are.
        """
        found: list[AppendResult] = []
        for batch in batches:
            if self._dispatcher.dispatched_offset < self._own_record_end:
                break
            if batch.sizes:
                found.append(batch)
                if batch.records[-1].topic == self.own_topic:
                    self._own_record_end = batch.end_offset
        return found

    def _parse(self, data: bytes, offset: int) -> list[AppendResult]:
        """Return the records of a range as batches, cut behind each record of :attr:`own_topic`.

        Raises:
            RecordError: it is damaged.
        """
        batch = parse_range(data, offset, self._log.segment_size, self.own_topic)
        places = zip(batch.records, batch.physical_offsets, batch.sizes, strict=True)
        cuts = [place + size for record, place, size in places if record.topic == self.own_topic]
        if not cuts or cuts == [batch.end_offset]:
            return [batch]
        bounds = sorted({offset, *cuts, offset + len(data)})
        return [
            parse_range(data[low - offset : high - offset], low, self._log.segment_size, self.own_topic)
            for low, high in pairwise(bounds)
        ]

    def truncate(self, end_offset: int) -> None:
        """Cut what is behind ``end_offset``, durably; it was never confirmed. For any thread, while nobody writes.

        Raises:
            ValueError: it has been dispatched, or the log does not reach so far.
            OSError: the disk failed.
        """
        if end_offset < self._dispatcher.dispatched_offset:
            raise ValueError(
                f"the log cannot be cut at {end_offset}: up to {self._dispatcher.dispatched_offset} it is dispatched"
            )
        self.discard_pending()
        self._log.truncate(end_offset)
        self._own_record_end = min(self._own_record_end, end_offset)

    def discard_pending(self) -> None:
        """Let :meth:`dispatch` read from the log what waits for a confirmation. Called on the loop before a thread
        truncates.
        """
        self._dispatcher.discard_pending()

    # --- confirming ---

    def confirm(self, offset: int) -> None:
        """Everything below ``offset`` is confirmed: who waits for it is told, and :meth:`dispatch` has more to do.

        An offset beyond the end of this copy counts as its end.
        """
        self._confirmation.confirm(min(offset, self._log.end_offset))

    def dispatch(self) -> list[Arrival]:
        """Bring what is confirmed into the queues, at most a step of it; returns what became visible.

        Raises:
            StoreDamaged: a record in the log is damaged, or belongs into a queue of another type.
        """
        dispatcher, confirmed = self._dispatcher, self._confirmation.offset
        pending = dispatcher.pending_range
        until = confirmed if pending is None else min(confirmed, pending[0])
        arrivals = self._dispatch_from_log(until) if dispatcher.dispatched_offset < until else []
        if pending is not None and dispatcher.dispatched_offset == pending[0]:
            arrivals += dispatcher.run(confirmed)
        return arrivals

    @property
    def has_more(self) -> bool:
        """Whether :meth:`dispatch` would find something. A batch that is confirmed in part waits for the rest, or for
        its truncation.
        """
        dispatched, confirmed = self._dispatcher.dispatched_offset, self._confirmation.offset
        pending = self._dispatcher.pending_range
        return dispatched < confirmed and (pending is None or dispatched < pending[0] or pending[1] <= confirmed)

    def _dispatch_from_log(self, until: int) -> list[Arrival]:
        """Dispatch from what is dispatched on, up to ``until`` or a step further."""
        begin = self._dispatcher.dispatched_offset
        data = self._read(begin, min(until, begin + STEP_BYTES))
        try:
            end = last_record_end(data, begin, self._log.segment_size)
            if end == begin:  # the first record is longer than a step
                end = self.align(begin, begin + 1)
                if end > until:
                    return []
                data = self._read(begin, end)
            batches = self._parse(data[: end - begin], begin)
        except RecordError as error:
            raise StoreDamaged(f"the commit log is damaged: {error}") from error
        arrivals: list[Arrival] = []
        for batch in batches:
            self._assign(batch)
            if batch.sizes:
                self._dispatcher.apply(batch)
            arrivals += batch.arrivals()
        self._dispatcher.dispatched_offset = end
        return arrivals

    def _assign(self, batch: AppendResult) -> None:
        if mistyped := assign_queues(batch, self._parts.queues):
            topics = ", ".join(sorted(mistyped))
            raise StoreDamaged(f"batches came for topics whose queues are of another type: {topics:.200}")

    # --- roles ---

    def lead(self) -> None:
        """Take messages from now on.

        Raises:
            ValueError: not all of the log is dispatched yet, so that nobody knows the next offsets of the queues.
        """
        end = self._log.end_offset
        if self._dispatcher.dispatched_offset != end:
            raise ValueError(f"the log is dispatched up to {self._dispatcher.dispatched_offset}, and ends at {end}")
        for queue in self._parts.queues:
            queue.next_offset = queue.max_offset
        appender = self._parts.appender
        appender.last_timestamp = max(appender.last_timestamp, self._dispatcher.last_timestamp)
        self.leads = True
        self._parts.gate.open()

    def pause(self, reason: StorageError) -> None:
        """Take no messages until :meth:`resume`; those that were taken are still confirmed. For a member that leads."""
        self._parts.gate.close(reason)

    def resume(self) -> None:
        """Take messages again."""
        self._parts.gate.open()

    def attach(self, builder: IndexBuilder) -> None:
        """Give ``builder`` what is dispatched from now on, too."""
        self._dispatcher.attach(builder)

    def follow(self, reason: StorageError) -> None:
        """Take no messages from now on: they are refused with ``reason``, and so is whoever waits for a confirmation.
        What was appended and not confirmed may be confirmed yet, or be cut.
        """
        self.leads = False
        self._parts.gate.close(reason)
        self._confirmation.abandon(reason)
