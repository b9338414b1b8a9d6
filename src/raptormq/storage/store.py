"""The message store: the facade that the broker uses (Apache RocketMQ ``DefaultMessageStore``).

All methods are called on one thread, the event loop. Only :meth:`MessageStore.open` and :meth:`MessageStore.close` wait
for the disk. A read whose pages are not in memory awaits a thread that loads them
(:mod:`~raptormq.storage.fs.page_cache` limits the attempts). Data flow: ``append`` packs a group of records and writes
it to the log, ``dispatch`` adds it to the queues once it is confirmed, ``get_messages`` reads queues and log.

Without :meth:`MessageStore.set_loop` the store has no threads and no timers. Tests then call :meth:`MessageStore.flush`
to make the log durable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from raptormq.errors import NotLeader
from raptormq.storage.background import Background
from raptormq.storage.config import StoreConfig
from raptormq.storage.conversion import QueueConverter
from raptormq.storage.fs import Buffer, FileSystem, PagesMissing, RealFileSystem, with_pages
from raptormq.storage.index import KeyQueries
from raptormq.storage.lifecycle import OpenStore, clamp_offsets, open_store, to_storage_error
from raptormq.storage.log import RATIO, OffsetCallback, PageWarmer, wait_for_offset
from raptormq.storage.maintenance import ClosedSegments, Retention
from raptormq.storage.parts import build_parts
from raptormq.storage.queue import (
    Appended,
    AppendedLists,
    AppendResult,
    Arrival,
    PendingList,
    PendingRecord,
    TopicHistory,
)
from raptormq.storage.read import (
    BatchUnpacker,
    Boundary,
    GetResult,
    GetStatus,
    KeyQuery,
    KnownDamage,
    MessageLookup,
    QueueReader,
    ReadOptions,
    StoreStats,
)
from raptormq.storage.records import DispatchLag, LogScanner
from raptormq.storage.recovery import RecoveryReport, start_over
from raptormq.storage.replica import EVERYTHING, Replica, read_log

T = TypeVar("T")


def now_ms() -> int:
    """Return the time of day in ms since 1970."""
    return time.time_ns() // 1_000_000


class MessageStore:
    """A store in ``config.root_dir``."""

    def __init__(self, config: StoreConfig, *, fs: FileSystem | None = None, clock: Callable[[], int] = now_ms) -> None:
        self.config = config
        self._parts = parts = build_parts(config, fs or RealFileSystem(), clock)
        self._fs = parts.filesystem
        self._clock = clock
        self._gate = parts.gate
        self._log = parts.log
        self._queues = parts.queues
        self.is_at_end = parts.queues.is_at_end
        self._index = parts.index
        self._appender = parts.appender
        self._dispatcher = parts.dispatcher
        self._flusher = parts.flusher
        self._confirmation = parts.confirmation
        unpacker = BatchUnpacker()
        self.damage = KnownDamage()
        """Damage of the log that another copy may repair; reads of it fail."""
        self._reader = QueueReader(parts.log, parts.queues, unpacker, self.damage)
        self._lookup = MessageLookup(parts.log, parts.queues, unpacker, self.damage)
        self._key_queries = KeyQueries(parts.index, self._lookup, self._fs) if parts.index is not None else None
        self._page_warmer = PageWarmer(self._fs, parts.log)
        self.replica = Replica(parts) if config.replicated else None
        """The interface for replication; None without replicas."""
        deletable = self.replica.deletable_offset if self.replica is not None else lambda: EVERYTHING
        self._retention = Retention(config, self._fs, parts.log, parts.queues, parts.gate, deletable)
        self.converter = QueueConverter(parts)
        """Converts the queues of a topic from one type to the other."""
        self.consumer_offsets = parts.consumer_offsets
        """Committed offsets of the consumer groups; :meth:`open` loads them and a timer saves them."""
        self._opened: OpenStore | None = None
        self._background: Background | None = None

    # --- open and close ---

    def open(self, confirmed_offset: int | None = None) -> RecoveryReport:
        """Lock the folder and recover. The store accepts writes afterwards. On a full volume it accepts them when there
        is enough room for the writes of the recovery.

        ``confirmed_offset`` is given for a replica: its log is not dispatched beyond it, ends at the first damage, and
        accepts writes when the member leads.

        Raises:
            StoreLocked: another process uses the folder.
            StoreReadOnly: the volume is read-only.
            DiskFull: there is no room for the names of new files, or for a rebuild of all queues.
            StoreDamaged: files are missing, unreadable or not of the configured size.
        """
        assert (confirmed_offset is None) is (self.replica is None)
        self._opened, report = open_store(self._parts, self._retention, self.converter, confirmed_offset)
        if self.replica is not None:
            self.replica.opened(report.dispatched_offset)
        self._appender.last_timestamp = self._dispatcher.last_timestamp
        return report

    def start_over(self, offset: int, tables: Collection[str] = ()) -> None:
        """Empty the store, which is not open, so that its log begins at ``offset``; see
        :func:`raptormq.storage.recovery.start_over`.

        Raises:
            StorageError: the store cannot be emptied.
        """
        try:
            start_over(self._fs, self._parts.paths, self.config.segment_size, offset, tables)
        except OSError as error:
            raise to_storage_error(error, self._parts.paths.root) from error

    def set_loop(
        self, loop: asyncio.AbstractEventLoop, on_confirmed_offset: Callable[[], object] | None = None
    ) -> None:
        """Start the threads and timers; ``on_confirmed_offset`` is called on ``loop`` when the confirmed offset has
        advanced without an append, so that :meth:`dispatch` has to be called.
        """
        assert self._opened is not None
        self._background = Background(loop)
        self._opened.maintenance.start(self._background, self._page_warmer.skip_ahead)
        self.converter.start(self._background, self._opened.maintenance.checkpointer)
        self._page_warmer.start(self._background)

        self._confirmation.listen(on_confirmed_offset)
        self._flusher.start(loop)

    def close(self) -> None:
        """Stop the background work, make everything durable and release the lock.

        Raises:
            StorageError: something could not be written; the next start recovers as after a crash.
        """
        self._page_warmer.stop()
        if self._background is not None:
            self._background.stop()
            self._background = None
        self._confirmation.listen(None)
        self._flusher.stop()
        try:
            if self._opened is not None:
                opened, self._opened = self._opened, None
                opened.close(self.dispatch)
        finally:
            self._confirmation.close()

    def set_store_host(self, host: bytes) -> None:
        """Set the STOREHOST field of later records: ip (4 or 16 bytes) and port (4 bytes)."""
        self._appender.set_store_host(host)

    # --- writing ---

    def append(self, batch: Sequence[PendingRecord]) -> AppendResult:
        """Write a group to the log with one write. If an error is raised, nothing is written.

        Raises:
            DiskFull: the volume is full.
            StoreReadOnly: a write or a flush has failed.
            StorageError: a record does not fit a segment.
        """
        group = self._appender.append(batch)
        self._submit(group)
        return group

    def append_lists(self, lists: Sequence[PendingList]) -> AppendedLists:
        """Write lists of messages with one write; all or nothing, as :meth:`append`."""
        group = self._appender.append_lists(lists)
        self._submit(group)
        return group

    def _submit(self, group: Appended) -> None:
        self._dispatcher.submit(group)
        self._flusher.appended()
        self._page_warmer.appended()
        if self.replica is not None:
            self.replica.on_appended()

    def dispatch(self) -> list[Arrival]:
        """Add everything up to the confirmed offset to the queues and return what became visible."""
        if self.replica is None:
            return self._dispatcher.run(self._confirmation.offset)
        arrivals = self.replica.dispatch()
        if self.replica.has_more:
            self._confirmation.notify()
        return arrivals

    @property
    def confirmed_offset(self) -> int:
        """Offset below which all records may be acknowledged to producers. Consumers see these records after
        :meth:`dispatch`; see :mod:`~raptormq.storage.log.confirmation`.
        """
        return self._confirmation.offset

    @property
    def start_offset(self) -> int:
        """Offset of the oldest byte in the log."""
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""
        return self._log.end_offset

    @property
    def is_follower(self) -> bool:
        """Whether another replica decides what the log contains, so that this one may lack records of a queue."""
        return self.replica is not None and not self.replica.leads

    @property
    def is_volume_full(self) -> bool:
        """Whether the volume is fuller than ``diskSpaceWarningLevelRatio``, and retention may delete nothing."""
        return self._gate.is_full(RATIO)

    def has_room_for(self, size: int) -> bool:
        """Whether the volume remains below ``diskSpaceWarningLevelRatio`` with ``size`` bytes more."""
        return self._retention.has_room_for(size)

    @property
    def flushed_offset(self) -> int:
        """Offset below which the log is durable."""
        return self._log.flushed_offset

    def on_confirmed(self, end_offset: int, callback: OffsetCallback) -> None:
        """Call ``callback`` with None when everything below ``end_offset`` is confirmed, or with the error that
        prevents it. If the result is known already, the callback is called immediately.
        """
        self._confirmation.on_confirmed(end_offset, callback)

    async def wait_flushed(self, end_offset: int) -> None:
        """Wait until everything below ``end_offset`` is on disk, under ASYNC_FLUSH too. Called before a file that
        depends on these records is written.

        Raises:
            StorageError: the records will never be on disk, because the log cannot be written.
        """
        await self._flusher.wait_flushed(end_offset)

    async def wait_confirmed(self, end_offset: int) -> None:
        """Wait until everything below ``end_offset`` is confirmed.

        Raises:
            StorageError: the records will never be confirmed, because the log cannot be written or confirmed.
        """
        if self.replica is not None or end_offset > self._confirmation.offset:  # in a group, offsets may be reused
            await wait_for_offset(self.on_confirmed, end_offset)

    @property
    def leadership(self) -> int:
        """The leadership under which records are appended now, for :meth:`check_leadership`."""
        return self._confirmation.leadership

    def check_leadership(self, leadership: int) -> None:
        """Raise an error if this replica has ceased to lead since ``leadership`` was read, even if it leads again. Call
        this after every wait between an append and :meth:`on_confirmed`.

        Raises:
            NotLeader: the records that were appended then may be lost.
        """
        if leadership != self._confirmation.leadership:
            raise NotLeader(
                "this member has ceased to lead its group meanwhile: whether the change is made is not known"
            )

    def flush(self) -> None:
        """Make the log durable, in this thread.

        Raises:
            StoreReadOnly: the disk failed.
        """
        self._flusher.flush()

    async def promote(self) -> None:
        """Leave the group as its only replica, with the whole log confirmed, and accept messages.

        Raises:
            StorageError: the disk failed; nothing has changed.
        """
        assert self.replica is not None
        await self.wait_flushed(self._log.end_offset)
        while self._dispatcher.dispatched_offset < self._log.end_offset:
            self.replica.dispatch()
            await asyncio.sleep(0)
        self.replica.lead()
        self._confirmation.confirm_alone()
        self.replica = None
        clamp_offsets(self.consumer_offsets, self._queues)

    def check_writable(self) -> None:
        """Raise the error that an append would raise now.

        Raises:
            DiskFull: the volume is full.
            StoreReadOnly: a write or a flush has failed.
        """
        if self._gate.refusal is not None:
            raise self._gate.error()

    # --- reading ---

    def get_messages(self, topic: str, queue_id: int, offset: int, options: ReadOptions) -> GetResult:
        """Read messages of a queue from ``offset`` on.

        Never waits for the disk. When the read would have to wait, the result is ``non_resident``. Buffers of resident
        messages are slices of the mapped log and stay valid as long as they are referenced.
        """
        try:
            return self._reader.get(topic, queue_id, offset, options, wait=False)
        except PagesMissing as missing:
            return GetResult(GetStatus.FOUND, [], offset, 0, 0, total_bytes=missing.size, non_resident=True)

    async def load_messages(self, topic: str, queue_id: int, offset: int, options: ReadOptions) -> GetResult:
        """Read as :meth:`get_messages`, after a thread has loaded the missing pages. The result is never
        ``non_resident``, so ``options`` have to allow copies.
        """
        return await self._with_pages(lambda wait: self._reader.get(topic, queue_id, offset, options, wait=wait))

    async def _with_pages(self, attempt: Callable[[bool], T]) -> T:
        return await with_pages(attempt, self._background, self._fs)

    def queue_end(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last message of a queue; 0 for a queue without messages."""
        queue = self._queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def tombstone_offset(self, topic: str) -> int:
        """Return the log offset at which the records of a deleted topic of this name end; 0 if there was none."""
        return self._queues.topic_tombstones.get(topic, 0)

    async def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first available offset and the offset after the last message; zeros for a queue without messages.
        After a retention run the first offset is searched again, for which queue items may have to be loaded.
        """
        return await self._with_pages(lambda wait: self._queue_bounds(topic, queue_id, wait=wait))

    def _queue_bounds(self, topic: str, queue_id: int, *, wait: bool) -> tuple[int, int]:
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0, 0
        return self._queues.min_offset(queue, self._log.min_offset, wait=wait), queue.max_offset

    async def tag_codes(self, topic: str, queue_id: int, offset: int, count: int) -> list[int]:
        """Return the tag codes of up to ``count`` messages of a queue from ``offset`` on. In a queue of delayed
        messages the tag codes are due times.
        """
        return [code for _, _, code in await self.queue_items(topic, queue_id, offset, count)]

    async def queue_items(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return up to ``count`` items (log offset, size, tag code) of a queue from ``offset`` on; an empty list when
        ``offset`` is outside the queue.
        """
        return await self._with_pages(lambda wait: self._reader.items(topic, queue_id, offset, count, wait=wait))

    async def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Return the offset of the first message stored at or after a time (LOWER), or of the last message stored at or
        before it (UPPER); 0 when the queue does not exist.
        """
        return await self._with_pages(
            lambda wait: self._offset_by_time(topic, queue_id, timestamp_ms, boundary, wait=wait)
        )

    def _offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary, *, wait: bool) -> int:
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        return self._reader.offset_by_time(queue, timestamp_ms, upper=boundary is Boundary.UPPER, wait=wait)

    async def message_at(
        self,
        physical_offset: int,
        unique_key: str | None = None,
        *,
        allow_encrypted: bool = False,
        include_deleted: bool = False,
        whole: bool = False,
    ) -> Buffer | None:
        """Return the stored record of the message at a log offset, None when there is none.

        For the offset of a batch the result is the message with ``unique_key``, or the first message when no key is
        given. With ``allow_encrypted`` an encrypted batch is returned whole, also for the offsets of its messages. With
        ``include_deleted`` messages of deleted topics are returned too. With ``whole`` every batch is returned as it is
        stored. A message that is not confirmed yet is not returned, because a power cut or a new leader may remove it.
        """
        if physical_offset >= self._confirmation.offset:
            return None
        return await self._with_pages(
            lambda wait: self._lookup.message_at(
                physical_offset, unique_key,
                allow_encrypted=allow_encrypted, include_deleted=include_deleted, whole=whole, wait=wait,
            )
        )  # fmt: skip

    async def store_timestamp_at(self, physical_offset: int, size: int | None = None) -> int | None:
        """Return the store time (ms) of the record at a log offset; None when there is no record, or not one of
        ``size`` bytes.
        """
        return await self._with_pages(lambda wait: self._lookup.store_timestamp_at(physical_offset, size, wait=wait))

    async def find_by_key(
        self, topic: str, key: str, begin: int, end: int, limit: int, *, whole_batches: bool = False
    ) -> list[Buffer]:
        """Return up to ``limit`` records of ``topic``, the newest first, that were stored between ``begin`` and ``end``
        (ms) and have ``key`` as their unique key or as a word of KEYS. With ``whole_batches`` a batch is returned whole
        when it is encrypted or when ``key`` is its own unique key.
        """
        if self._key_queries is None:
            return []
        return await self._key_queries.find(KeyQuery(topic, key, begin, end, whole_batches), limit, self._background)

    def read_log(self, begin: int, end: int, *, wait: bool) -> list[Buffer]:
        """Return the bytes ``[begin, end)`` of the log; arguments and errors as of
        :func:`raptormq.storage.replica.read_log`.
        """
        return read_log(self._log, begin, end, wait=wait)

    def age_ms(self, store_timestamp: int) -> int:
        """Return how long ago a record with this store time was stored, by the clock of this machine."""
        return self._clock() - store_timestamp

    def closed_segments(self) -> ClosedSegments:
        """Return the segments that are complete, dispatched and flushed, for one check or repair in a thread."""
        return ClosedSegments(self._log, min(self._dispatcher.dispatched_offset, self._log.flushed_offset))

    def scan_log(self, start: int) -> LogScanner:
        """Return a scanner of the log from the record at ``start`` on. The scanner blocks on the disk."""
        return LogScanner(self._log, start)

    def index_position(self) -> tuple[int, int]:
        """Return store time (ms) and log offset of the newest message in the key index."""
        return self._index.end if self._index is not None else (0, 0)

    # --- topics and maintenance ---

    def topics(self) -> list[str]:
        """Return the topics that have queues, including those that a replay after a crash restored."""
        return self._queues.topics()

    def queue_ids(self, topic: str) -> list[int]:
        """Return the ids of the queues of ``topic`` that ever had a message, ascending."""
        return self._queues.queue_ids(topic)

    def is_batch_topic(self, topic: str) -> bool:
        """Return whether the queues of ``topic`` are of type BatchCQ."""
        return topic in self._queues.batch_topics

    def set_batch_topic(self, topic: str) -> None:
        """Create the queues of ``topic`` as BatchCQ queues, until the topic is deleted. No effect on a topic with
        queues.
        """
        if not self._queues.queue_ids(topic):
            self._queues.batch_topics.add(topic)

    def forget_batch_topic(self, topic: str) -> None:
        """Create the first queues of ``topic`` as SimpleCQ queues. No effect on a topic with queues."""
        if not self._queues.queue_ids(topic):
            self._queues.batch_topics.discard(topic)

    def expired_queue_ends(self) -> dict[str, dict[int, int]]:
        """Return the next offset of each queue whose messages have all been deleted, by topic and queue id. Other
        replicas cannot derive them from the log.
        """
        log_min = self._log.min_offset
        found: dict[str, dict[int, int]] = {}
        for queue in self._queues:
            if queue.max_offset and queue.max_physical < log_min:
                found.setdefault(queue.topic, {})[queue.queue_id] = queue.max_offset
        return found

    def begin_queue_at(self, topic: str, queue_id: int, offset: int) -> None:
        """Set the first offset of a queue that has no messages on this replica to that of the other replicas.

        Raises:
            StorageError: the file of the queue cannot be written.
        """
        try:
            self._queues.begin_at(topic, queue_id, offset)
        except OSError as error:
            raise to_storage_error(error, self._parts.paths.root) from error

    def topic_history(self) -> TopicHistory:
        """Return the topic state that another replica needs before it assigns records to queues."""
        return TopicHistory(sorted(self._queues.batch_topics), dict(self._queues.topic_tombstones))

    def adopt_history(self, history: TopicHistory) -> None:
        """Adopt the topic state of another replica. Call before records are dispatched."""
        for topic, end in history.tombstones.items():
            if self.tombstone_offset(topic) < end:
                self.delete_topic(topic, end)
        for topic in history.batch_topics:
            self.set_batch_topic(topic)

    def delete_topic(self, topic: str, at: int | None = None) -> None:
        """Remove queues and consumer offsets of ``topic``. Its records stay in the log until retention deletes them.
        Records from ``at`` on, by default the end of the log, belong to a later topic of this name. A queue that has
        such records is kept: a crash had prevented that this deletion was saved, and the first of them emptied the
        queue.
        """
        end = self._log.end_offset if at is None else at
        queues = self._queues.queues_of(topic)
        if any(queue.max_physical >= end for queue in queues):
            for queue in queues:
                if queue.max_physical < end:
                    self._queues.reset(queue)
        else:
            self._dispatcher.drop_topic(topic)
            self.converter.drop_topic(topic)
            self._queues.remove_topic(topic)
        self.consumer_offsets.remove_topic(topic)
        if self._opened is not None:
            self._parts.deletions.add(topic, end)

    def rebuild_topic(self, topic: str, begin: int) -> None:
        """Remove queues and consumer offsets of ``topic`` on a follower, and dispatch the log from ``begin`` on again,
        which is the end of a record. Queues are created again in the type that the topic has then. A new topic of the
        same name begins its queues at 0, so its records replace those of the earlier topic.
        """
        assert self.replica is not None
        begin = max(begin, self.start_offset, self.tombstone_offset(topic))
        self._queues.remove_topic(topic)
        self.consumer_offsets.remove_topic(topic)
        if self._opened is not None:
            self._parts.deletions.add(topic, begin)
        self.replica.discard_pending()
        self._dispatcher.dispatched_offset = min(begin, self._dispatcher.dispatched_offset)
        self._confirmation.notify()

    async def save_deletions(self) -> None:
        """Make deletions durable, see :meth:`OpenStore.save_deletions`. The caller awaits this before it responds to
        the deletion, and before a file is written in which the topic exists again.
        """
        if self._opened is not None and self._background is not None:
            await self._opened.save_deletions(self._background)

    async def clean(self, *, any_hour: bool) -> None:
        """Make a checkpoint and run retention now; with ``any_hour`` also outside the hours of ``deleteWhen``."""
        if self._opened is not None and self._background is not None:
            await self._opened.maintenance.clean_now(self._background, any_hour=any_hour)

    def lag(self) -> DispatchLag:
        """Return how far queues and index lag behind the log. May be called while :meth:`open` runs in another
        thread.
        """
        return self._dispatcher.lag(self._log.end_offset, self._clock())

    def stats(self) -> StoreStats:
        """Return the current figures of the store."""
        log = self._log
        return StoreStats(
            min_offset=log.min_offset,
            end_offset=log.end_offset,
            flushed_offset=log.flushed_offset,
            confirmed_offset=self._confirmation.offset,
            dispatched_offset=self._dispatcher.dispatched_offset,
            segments=len(log.segments),
            topics=len(self._queues.topics()),
            queues=len(self._queues),
            open_queue_files=len(self._queues.files),
            appended_records=self._appender.record_count,
            appended_bytes=self._appender.byte_count,
            disk_usage=self._retention.disk_usage,
            skipped_records=self._reader.skipped.records,
            deleted_segments=self._retention.deleted_segments,
            writable=self._gate.refusal is None,
            refusal=self._gate.refusal or "",
        )
