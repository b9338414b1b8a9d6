"""The store as a replica: the operations that replication needs to read, write, truncate and confirm the log.

The unit of replication is a range of log bytes that begins and ends at record boundaries. The leader appends messages
with :meth:`~raptormq.storage.store.MessageStore.append`. A follower writes the ranges that the leader sends. On both,
records enter the consume queues and the index only after they are confirmed::

    0 ........... dispatched ........ confirmed ......... end
    | in queues and index | to be dispatched | on this replica only, may be truncated |

Records that were just written are pending in the dispatcher in parsed form. After a start, or after a truncation in the
middle of an append group, :meth:`Replica.dispatch` reads them from the log instead, :data:`STEP_BYTES` at a time.

The leader assigns queue offsets. Therefore it accepts messages only after every earlier record is dispatched
(:meth:`Replica.lead`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from raptormq.errors import NotLeader, RecordError, StorageError, StoreDamaged
from raptormq.storage.fs import Buffer
from raptormq.storage.log import CommitLog
from raptormq.storage.parts import StoreParts
from raptormq.storage.queue import AppendResult, Arrival
from raptormq.storage.records import IndexBuilder, assign_queues, last_record_end, next_record_end, parse_range

STEP_BYTES = 4 << 20
"""Maximum number of log bytes that one step of the dispatch reads."""
EVERYTHING = 1 << 62
"""An offset beyond the end of every log: the confirmed offset of a replica whose whole log is confirmed."""
_HEAD_BYTES = 8


def read_log(log: CommitLog, begin: int, end: int, *, wait: bool) -> list[Buffer]:
    """Return the bytes ``[begin, end)`` of the log, one buffer for each segment. Buffers of resident bytes are
    slices of the mapped file.

    Raises:
        ValueError: the range is not within the log.
        PagesMissing: ``wait`` is false and the pages are not resident.
        StorageError: reading from the disk failed.
    """
    if not log.min_offset <= begin <= end <= log.end_offset:
        have = f"[{log.min_offset}, {log.end_offset})"
        raise ValueError(f"the range [{begin}, {end}) is not within the log {have}")
    size = log.segment_size
    bounds = [begin, *range(begin - begin % size + size, end, size), end]
    return [log.read(low, high - low, wait=wait) for low, high in pairwise(bounds) if high > low]


class Replica:
    """The replica of this member. All methods except :meth:`truncate` run on the event loop's thread."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._log = parts.log
        self._dispatcher = parts.dispatcher
        self._confirmation = parts.confirmation
        self.leads = False
        """True on the leader, which appends messages; False on a follower, which writes ranges."""
        self.on_appended: Callable[[], None] = lambda: None
        """Called after each group of messages that this member has appended."""
        self.metadata_topic = ""
        """Topic of the replicated metadata. Each of its records ends a dispatched batch, so that builders apply the
        record before the next one is assigned to a queue."""
        self.group_begin = EVERYTHING
        """Log offset before which this replica may delete while it does not lead: the begin of the group's log. A slave
        deletes what it likes.
        """
        self.knows_topics = True
        """Whether the queue types of the topics are known. Until then, written records are not assigned to queues."""
        self._metadata_end = 0
        """Log offset up to which records of :attr:`metadata_topic` may exist that are not dispatched."""

    def opened(self, dispatched_offset: int) -> None:
        """Start as a follower after a recovery, with everything below ``dispatched_offset`` confirmed."""
        self._confirmation.confirm(dispatched_offset)
        self.follow(NotLeader("no leader of the broker group is known yet"))

    def deletable_offset(self) -> int:
        """Return the log offset before which retention may delete now."""
        return EVERYTHING if self.leads else self.group_begin

    # --- reading ---

    @property
    def segment_size(self) -> int:
        """Size of a segment in bytes, the same on all replicas."""
        return self._log.segment_size

    @property
    def last_queued_record(self) -> int | None:
        """Log offset of the last record that is in a queue; None when all queues are empty."""
        last = max((queue.max_physical for queue in self._parts.queues), default=-1)
        return last if last >= 0 else None

    @property
    def dispatched_offset(self) -> int:
        """Offset below which all records are in the queues and the index."""
        return self._dispatcher.dispatched_offset

    def align(self, start: int, limit: int) -> int:
        """Return the end of the last record that ends in ``(start, limit]``. If the first record after ``start`` ends
        beyond ``limit``, return the end of that record. ``start`` is the end of a record or the beginning of the log.
        May block on disk reads.

        Raises:
            StoreDamaged: the bytes at a record boundary are not a valid record.
        """
        segment_size = self._log.segment_size
        limit = min(limit, self._log.end_offset)
        at = start
        try:
            while at < limit:
                stop = min(limit, at - at % segment_size + segment_size, at + STEP_BYTES)
                end = last_record_end(self._read(at, stop), at, segment_size)
                if end == at:  # the bytes read end within the record
                    end = at + next_record_end(self._read(at, at + _HEAD_BYTES), 0, at, segment_size)
                    if end > limit:
                        return at if at > start else end
                at = end
        except RecordError as error:
            if at > start:
                return at
            raise StoreDamaged(f"the commit log is damaged: {error}") from error
        return at

    def read(self, begin: int, end: int, *, wait: bool) -> list[Buffer]:
        """Return the bytes ``[begin, end)`` of the log; arguments and errors as of :func:`read_log`."""
        return read_log(self._log, begin, end, wait=wait)

    def _read(self, begin: int, end: int) -> bytes:
        return b"".join(map(bytes, self.read(begin, end, wait=True)))

    # --- writing ---

    def begin_at(self, offset: int) -> None:
        """Start the log of this replica, which is empty, at ``offset``, because no replica has the bytes before it.

        Raises:
            ValueError: the replica is not empty, or ``offset`` is not a multiple of the segment size.
        """
        log = self._log
        if log.segments or offset % log.segment_size:
            raise ValueError(f"a log of [{log.min_offset}, {log.end_offset}) cannot begin at {offset}")
        log.start_at(offset, truncate=False)
        self._dispatcher.dispatched_offset = offset
        self._confirmation.confirm(offset)

    def whole_records(self, data: Buffer) -> int:
        """Return the size in bytes of the complete records at the beginning of ``data``, which continues the log.

        Raises:
            RecordError: ``data`` contains bytes that are not a record.
        """
        end = self._log.end_offset
        return last_record_end(data, end, self._log.segment_size) - end

    def parse(self, data: bytes) -> list[AppendResult]:
        """Parse and validate the records of a range that continues the log.

        Raises:
            RecordError: a record is damaged.
        """
        return self._parse(data, self._log.end_offset)

    def write(self, offset: int, data: bytes, parsed: list[AppendResult] | None = None) -> list[AppendResult]:
        """Append a range that the leader sent to the log, after validating each of its records. ``parsed`` is the
        result of :meth:`parse` for the range, if the caller has it. Return that result. If an error is raised, nothing
        is written.

        Raises:
            ValueError: the range does not begin at the end of the log, or this member is the leader.
            RecordError: a record is damaged; the range can be requested again.
            StorageError: the disk is full or failed, or a batch belongs to a topic of another queue type.
        """
        if self.leads:
            raise ValueError("the leader accepts no ranges from other members")
        if parsed is None:
            parsed = self._parse(data, offset)
        if not self.knows_topics:
            self._metadata_end = offset + len(data)
        waiting = self._until_metadata(parsed)
        for batch in waiting:
            self._assign(batch)
        self._log.append_raw(offset, data)
        for batch in waiting:
            self._dispatcher.submit(batch)
        self._parts.flusher.appended()
        return parsed

    def _until_metadata(self, batches: list[AppendResult]) -> list[AppendResult]:
        """Return the batches that can be assigned to queues now: those up to the first record of
        :attr:`metadata_topic` that is not dispatched. The record may change the queue type of a topic, or delete it, so
        :meth:`dispatch` reads later batches from the log after the record is dispatched.
        """
        found: list[AppendResult] = []
        for batch in batches:
            if not batch.sizes:
                continue
            if self._dispatcher.dispatched_offset >= self._metadata_end:
                found.append(batch)
            if batch.records[-1].topic == self.metadata_topic:
                self._metadata_end = batch.end_offset  # even if the batch cannot be assigned yet
        return found

    def _parse(self, data: bytes, offset: int) -> list[AppendResult]:
        """Return the records of a range as batches, split after each record of :attr:`metadata_topic`.

        Raises:
            RecordError: a record is damaged.
        """
        batch = parse_range(data, offset, self._log.segment_size, self.metadata_topic)
        places = zip(batch.records, batch.physical_offsets, batch.sizes, strict=True)
        cuts = [place + size for record, place, size in places if record.topic == self.metadata_topic]
        if not cuts or cuts == [batch.end_offset]:
            return [batch]
        bounds = sorted({offset, *cuts, offset + len(data)})
        return [
            parse_range(data[low - offset : high - offset], low, self._log.segment_size, self.metadata_topic)
            for low, high in pairwise(bounds)
        ]

    def truncate(self, end_offset: int) -> None:
        """Durably truncate the log, whose bytes from ``end_offset`` on were never confirmed, to ``end_offset``. May run
        in any thread while no other thread writes.

        Raises:
            ValueError: records beyond ``end_offset`` are dispatched, or the log ends before ``end_offset``.
            OSError: the disk failed.
        """
        dispatched = self._dispatcher.dispatched_offset
        if end_offset < dispatched:
            raise ValueError(f"the log cannot be truncated to {end_offset}: it is dispatched up to {dispatched}")
        self.discard_pending()
        self._log.truncate(end_offset)
        self._metadata_end = min(self._metadata_end, end_offset)

    def discard_pending(self) -> None:
        """Drop the pending batches of the dispatcher; :meth:`dispatch` reads their records from the log. Called on the
        loop before a thread truncates the log.
        """
        self._dispatcher.discard_pending()

    # --- confirming ---

    def confirm(self, offset: int) -> None:
        """Confirm all records below ``offset``: call the callbacks that wait for them, and let :meth:`dispatch` process
        them. An offset beyond the end of the log is lowered to the end.
        """
        self._confirmation.confirm(min(offset, self._log.end_offset))

    def dispatch(self) -> list[Arrival]:
        """Dispatch confirmed records to the queues and the index, and return the arrivals. One call reads at most one
        step from the log.

        Raises:
            StoreDamaged: a record in the log is damaged, or its topic has another queue type.
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
        """Whether :meth:`dispatch` has work. A pending batch that is confirmed only in part is not dispatched before
        the rest is confirmed or truncated.
        """
        dispatched, confirmed = self._dispatcher.dispatched_offset, self._confirmation.offset
        pending = self._dispatcher.pending_range
        return dispatched < confirmed and (pending is None or dispatched < pending[0] or pending[1] <= confirmed)

    def _dispatch_from_log(self, until: int) -> list[Arrival]:
        """Read and dispatch the next records below ``until``, at most one step."""
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
            raise StoreDamaged(f"the queue types of these topics do not allow their batches: {topics:.200}")

    # --- roles ---

    def lead(self) -> None:
        """Become the leader and accept messages.

        Raises:
            ValueError: the log is not dispatched to its end, so the next queue offsets are unknown.
        """
        end = self._log.end_offset
        if self._dispatcher.dispatched_offset != end:
            raise ValueError(f"the log is dispatched up to {self._dispatcher.dispatched_offset}, but ends at {end}")
        for queue in self._parts.queues:
            queue.next_offset = queue.max_offset
        appender = self._parts.appender
        appender.last_timestamp = max(appender.last_timestamp, self._dispatcher.last_timestamp)
        self.leads = True
        self._confirmation.resume()
        self._parts.gate.open()

    def pause(self, reason: StorageError) -> None:
        """Refuse messages with ``reason`` until :meth:`resume`. Messages that were appended can still be confirmed.
        Only the leader pauses.
        """
        self._parts.gate.close(reason)

    def resume(self) -> None:
        """Accept messages again."""
        self._parts.gate.open()

    def attach(self, builder: IndexBuilder) -> None:
        """Pass all records that are dispatched from now on to ``builder`` as well."""
        self._dispatcher.attach(builder)

    def follow(self, reason: StorageError) -> None:
        """Become a follower: refuse messages with ``reason``, and fail all callbacks that wait for a confirmation.
        Records that are not confirmed may still be confirmed or truncated later.
        """
        self.leads = False
        self.discard_pending()  # records that this member appended as the leader are assigned to queues again
        # If such a record created a queue and is truncated, the next leader may create the topic with another type.
        self._parts.queues.forget_empty()
        self._metadata_end = self._log.end_offset  # from before a restart, or appended by this member as the leader
        self._parts.gate.close(reason)
        self._confirmation.abandon(reason)
