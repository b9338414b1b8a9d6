"""Commits and publishes staged lists.

::

    stage    list --> rmq_sys_STAGED
    commit   checks --> commit record --> response when published
    publish  commit record --> the records of its lists, in the order of their offsets --> published record

A batch is committed when its commit record is in the log. After a crash, or on the next leader, publishing continues
where it stopped: records after the commit record whose origin is a staged list of the batch are already published. A
repeated commit of a batch returns the first decision, regardless of the lists that it names.

Lists are published one after the other to bound memory and unconfirmed data. Consumers see the messages of a batch
in this order while it is being published.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from logging import WARNING

from raptormq.broker.config import StagingSettings as Settings
from raptormq.broker.delivered.origin import origin_of
from raptormq.broker.in_thread import run_to_completion
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.service import cancel_and_wait
from raptormq.broker.staging.commit_record import CommitRecord, Outcome, batch_name, parse_commit, published_counts
from raptormq.broker.staging.staged_list import StagedList, describe, published
from raptormq.broker.tables import TopicTable
from raptormq.errors import RaptorMQError, RecordError, StorageError
from raptormq.log_throttle import LogThrottle
from raptormq.logs import get_logger
from raptormq.protocol.bodies.staging import Ranges, offsets_in
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.record import StoredMessage, decode_record
from raptormq.protocol.topic_names import STAGED_COMMITS_TOPIC, STAGED_TOPIC
from raptormq.storage.queue import PendingRecord, message_count
from raptormq.storage.read import GetStatus, ReadOptions
from raptormq.storage.store import MessageStore
from raptormq.transport.router import Refused

logger = get_logger(__name__)

MAX_QUERIES = 100_000
"""Maximum number of queries whose last commit is remembered. Commits of further queries are refused."""
MAX_REMEMBERED_LISTS = 32_768
"""Maximum number of staged lists whose descriptions are kept in memory until their commit, about 10 MB."""
_LIST_BYTES = 16 << 20
_SLICE_RECORDS = 512
_UNCONFIRMED_BYTES = 4 << 20
"""Maximum size of published records that are not confirmed yet."""
_RETRY_S = 1.0
_HOUR_MS = 3_600_000


@dataclass(slots=True)
class _Open:
    """A commit that is being published."""

    record: CommitRecord
    place: int
    """Log offset of the commit record."""
    end_offset: int
    """End of the commit record in the log."""
    published_before: dict[int, int] | None = None
    """Number of records published by earlier runs, by log offset of their list; None until the log is scanned."""
    done_lists: int = 0
    """Number of lists that are completely published, dropped or lost."""
    done_records: int = 0
    """Number of published records of the current list."""
    messages: int = 0
    dropped: int = 0
    lost: int = 0
    error: str = ""
    """Why the batch cannot be published, empty without an error."""
    retry_at: float = 0.0
    """Monotonic time in seconds before which the publication is not retried."""
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class _Published:
    """The last published batch of a query."""

    batch: int
    offset: int
    """Queue offset of the published record."""
    end_offset: int
    """End of the published record in the log."""
    committed_at: int


class StagingService:
    """Background service for the commits of staged lists."""

    def __init__(
        self,
        store: MessageStore,
        writer: InternalWriter,
        topics: TopicTable,
        settings: Settings,
        broker_name: str,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._failures: LogThrottle[str] = LogThrottle()
        self._writer = writer
        self._topics = topics
        self._settings = settings
        self._broker_name = broker_name
        self._clock = clock
        self._open: dict[str, _Open] = {}
        """Commits by batch name, in the order of the commits."""
        self._published: dict[str, _Published] = {}
        self._lists: dict[int, StagedList] = {}
        """The last staged lists by their offset, so that a commit need not read them twice."""
        self._deciding = asyncio.Lock()
        self._work = asyncio.Event()
        self._ready = asyncio.Event()
        self._epoch = 0
        """Incremented by every change of the leader, because the log may then be truncated."""
        self._renew_at = 0.0
        """Monotonic time in seconds at which the remembered commits are appended again."""
        self._task: asyncio.Task[None] | None = None

    # --- start and stop ---

    def start(self) -> None:
        """Load the commits of earlier runs and publish their remaining lists."""
        self._reset()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop. The next start continues the publication."""
        task = self._task
        self._reset()
        if task is not None:
            await cancel_and_wait(task)

    def role_changed(self, *, leads: bool) -> None:
        """Discard the state in memory when this member loses leadership."""
        if not leads:
            self._reset()

    def _reset(self) -> None:
        self._epoch += 1
        self._ready.clear()
        self._open, self._published, self._lists = {}, {}, {}
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while not self._ready.is_set():
            try:
                await self._load()
                self._renew_at = self._next_renewal
                self._ready.set()
            except Exception:  # commits wait until the load succeeds
                logger.exception("cannot load the commits of staged messages; retrying")
                await asyncio.sleep(_RETRY_S)
        while True:
            self._work.clear()
            try:
                await self._publish_all()
                await self._renew_if_due()
                await self._wait_for_work()
            except StorageError as error:
                self._failures.log(logger, WARNING, "", "cannot publish staged messages; retrying: %s", error)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                logger.exception("cannot publish staged messages; retrying")
                await asyncio.sleep(_RETRY_S)

    async def _publish_all(self) -> None:
        """Publish the open commits. A batch that cannot be published delays only the later batches of its query.

        Raises:
            StorageError: the store accepts no records, so no batch can be published.
        """
        delayed: set[str] = set()
        for commit in list(self._open.values()):
            query = commit.record.query
            if query in delayed:
                continue
            if time.monotonic() < commit.retry_at:
                delayed.add(query)
                continue
            try:
                await self._publish(commit)
            except Exception as error:
                if _is_state_of_store(error):
                    raise
                self._failed(commit, error)
                delayed.add(query)

    def _failed(self, commit: _Open, error: Exception) -> None:
        """Record the error of a batch, which its commits return until a retry succeeds."""
        text = str(error) if isinstance(error, RaptorMQError) else f"{type(error).__name__}: {error}"
        if text != commit.error:
            logger.error("batch %s cannot be published; retrying: %s", commit.record.batch_name, text, exc_info=error)
        commit.error, commit.retry_at = text, time.monotonic() + _RETRY_S

    async def _wait_for_work(self) -> None:
        """Wait for the next commit, the next retry or the next renewal."""
        until_renewal_s = self._renew_at - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_RETRY_S, until_renewal_s) if self._open else until_renewal_s):
                await self._work.wait()

    async def _load(self) -> None:
        low, _ = await self._store.queue_bounds(STAGED_COMMITS_TOPIC, 0)
        opened: dict[str, _Open] = {}
        for offset in range(low, self._store.queue_end(STAGED_COMMITS_TOPIC, 0)):
            await asyncio.sleep(0)
            stored = await self._read(STAGED_COMMITS_TOPIC, offset)
            if stored is None:
                logger.error("the commit record at offset %d of %s is lost", offset, STAGED_COMMITS_TOPIC)
                continue
            record = parse_commit(stored)
            if record.outcome is None:
                opened[record.batch_name] = _Open(record, stored.physical_offset, stored.physical_offset + 1)
            else:
                opened.pop(record.batch_name, None)
                self._remember(record, offset, stored.physical_offset + stored.total_size)
        self._open = opened
        self._expire()

    # --- commits ---

    def note_staged(self, offset: int, staged_list: StagedList) -> None:
        """Remember a list at an offset of the staging queue. Must be called in the same step as its append."""
        while len(self._lists) >= MAX_REMEMBERED_LISTS:
            del self._lists[next(iter(self._lists))]
        self._lists[offset] = staged_list

    async def commit(self, record: CommitRecord, may_publish: Callable[[str], bool], deadline: float) -> CommitRecord:
        """Commit a batch unless it is committed, and wait until it is published, at most until ``deadline``.

        Args:
            record: the commit.
            may_publish: returns whether the user may send to a topic.
            deadline: end of all waits, by the clock of the event loop.

        Returns:
            The effective commit. Without an outcome the batch is still being published. With an empty decision a later
            batch of the query is already published, and the lists are not.

        Raises:
            Refused: the lists cannot be published, or the batch is committed for another topic; nothing has changed.
            StorageError: the commit record was not stored, or it is not known yet whether it was, or the batch is
                committed and cannot be published now.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._ready.wait()
        async with self._deciding:
            if not self._ready.is_set():
                raise StorageError(
                    "the broker cannot read the commits of earlier batches yet: repeat the commit; the broker's log"
                    " gives the reason if this error persists"
                )
            known = await self._known(record.query, record.batch)
            if known is not None:
                _check_topic(record, known)
                return known
            commit = self._open.get(record.batch_name) or await self._decide(record, may_publish)
            _check_topic(record, commit.record)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await commit.done.wait()
        known = await self._known(record.query, record.batch)
        if known is None and commit.error:
            raise StorageError(
                f"batch {record.batch_name} is committed, but cannot be published; the broker retries: {commit.error}"
            )
        return commit.record if known is None else known

    def published_end(self, query: str) -> int:
        """Return the end in the log of the last published batch of a query, 0 if there is none."""
        last = self._published.get(query)
        return 0 if last is None else last.end_offset

    def progress(self, query: str, batch: int) -> int:
        """Return the number of published messages of a batch that is being published; otherwise 0."""
        commit = self._open.get(batch_name(query, batch))
        return 0 if commit is None else commit.messages

    async def _known(self, query: str, batch: int) -> CommitRecord | None:
        last = self._published.get(query)
        if last is None or batch > last.batch:
            return None
        if batch < last.batch:
            return CommitRecord(query, batch, {}, last.committed_at, Outcome(0, 0, 0))
        stored = await self._read(STAGED_COMMITS_TOPIC, last.offset)
        if stored is None:
            raise StorageError(f"the commit of batch {batch} of query {query} cannot be read")
        return parse_commit(stored)

    async def _decide(self, record: CommitRecord, may_publish: Callable[[str], bool]) -> _Open:
        if record.query not in self._published and len(self._published) >= MAX_QUERIES:
            raise _refused(
                f"the broker remembers commits of {MAX_QUERIES} queries, the maximum; they expire after"
                " commitRecordReservedTime"
            )
        epoch = self._epoch
        await self._check(record, record.decision.get(self._broker_name, []), may_publish)
        if epoch != self._epoch:
            raise StorageError("the leader of this broker's group changed during the commit: repeat the commit")
        result = self._writer.write([record.to_record(self._clock())])
        commit = _Open(record, result.physical_offsets[0], result.end_offset, published_before={})
        self._open[record.batch_name] = commit  # before the await: the record is in the log already
        self._work.set()
        await self._writer.wait_confirmed(result)
        return commit

    async def _check(self, record: CommitRecord, ranges: Ranges, may_publish: Callable[[str], bool]) -> None:
        oldest = self._clock() - self._settings.expiry_ms
        begin = self._store.stats().min_offset
        topics: set[str] = set()
        for offset in offsets_in(ranges):
            found = await self._staged_list(offset)
            if found is None or found.stored_at < oldest or found.place < begin:
                raise _refused(
                    f"staged list {offset} of batch {record.batch} of query {record.query} has expired"
                    " (stagedMessageExpiry, fileReservedTime): write the batch again"
                )
            if found.batch_name != record.batch_name:
                raise _refused(f"staged list {offset} belongs to {found.batch_name}, not to {record.batch_name}")
            if self._is_deleted(found.topic, found.place):
                raise _refused(f"topic {found.topic} was deleted after messages for it were staged")
            if found.topic not in topics and not may_publish(found.topic):
                raise _refused(f"the user has no permission to send to topic {found.topic}")
            topics.add(found.topic)
            await asyncio.sleep(0)  # thousands of lists would block all other requests

    async def _staged_list(self, offset: int) -> StagedList | None:
        if (known := self._lists.get(offset)) is not None:
            return known
        stored = await self._read(STAGED_TOPIC, offset)
        try:
            return None if stored is None else describe(stored)
        except RecordError as error:
            raise _refused(str(error)) from None

    def _is_deleted(self, topic: str, place: int) -> bool:
        return topic not in self._topics.configs or place < self._store.tombstone_offset(topic)

    # --- publishing ---

    async def _publish(self, commit: _Open) -> None:
        await self._store.wait_confirmed(commit.end_offset)
        if commit.published_before is None:
            commit.published_before = await run_to_completion(lambda: self._published_after(commit.place))
        offsets = list(offsets_in(commit.record.decision.get(self._broker_name, [])))
        unconfirmed = 0
        for offset in offsets[commit.done_lists :]:
            unconfirmed = await self._publish_list(commit, offset, unconfirmed)
            commit.done_lists, commit.done_records = commit.done_lists + 1, 0
        outcome = Outcome(commit.messages, commit.dropped, commit.lost)
        record = replace(commit.record, outcome=outcome)
        result = await self._writer.write_confirmed([record.to_record(self._clock())])
        self._remember(record, result.queue_offsets[0], result.end_offset)
        del self._open[record.batch_name]
        commit.done.set()
        if outcome.dropped or outcome.lost:
            logger.error(
                "batch %s was published without %d staged lists whose topic was deleted and %d that are damaged or no"
                " longer in the log",
                record.batch_name,
                outcome.dropped,
                outcome.lost,
            )

    async def _publish_list(self, commit: _Open, offset: int, unconfirmed: int) -> int:
        """Publish the rest of one list. Returns the number of bytes that may be unconfirmed."""
        self._lists.pop(offset, None)
        stored = await self._read(STAGED_TOPIC, offset)
        if stored is None:
            commit.lost += 1
            return unconfirmed
        try:
            if self._is_deleted(describe(stored).topic, stored.physical_offset):
                commit.dropped += 1
                return unconfirmed
            records = published(stored)
        except RecordError as error:
            logger.error("list %d of batch %s cannot be published: %s", offset, commit.record.batch_name, error)
            commit.lost += 1
            return unconfirmed
        assert commit.published_before is not None
        before = commit.published_before.pop(stored.physical_offset, 0)
        commit.done_records += before
        commit.messages += _messages(records[:before])
        while commit.done_records < len(records):
            part = records[commit.done_records : commit.done_records + _SLICE_RECORDS]
            result = self._writer.write(part)
            commit.done_records += len(part)
            commit.messages += result.message_count
            unconfirmed += result.end_offset - result.start_offset
            if unconfirmed > _UNCONFIRMED_BYTES:
                await self._writer.wait_confirmed(result)
                unconfirmed = 0
            await asyncio.sleep(0)
        return unconfirmed

    def _published_after(self, place: int) -> dict[int, int]:
        records = self._store.scan_log(max(place, self._store.stats().min_offset)).records_with_prepared_offset()
        origins = (origin_of(record.prepared_transaction_offset) for record in records)
        return published_counts(origin for origin in origins if origin is not None)

    # --- remembered commits ---

    def _remember(self, record: CommitRecord, offset: int, end_offset: int) -> None:
        last = self._published.get(record.query)
        if last is None or record.batch >= last.batch:
            self._published[record.query] = _Published(record.batch, offset, end_offset, record.committed_at)

    def _expire(self) -> None:
        oldest = self._clock() - self._settings.commit_hours * _HOUR_MS
        self._published = {query: last for query, last in self._published.items() if last.committed_at >= oldest}

    @property
    def _next_renewal(self) -> float:
        return time.monotonic() + self._store.config.file_reserved_hours * 900  # a quarter of the retention time

    async def _renew_if_due(self) -> None:
        if time.monotonic() >= self._renew_at:
            await self._renew()
            self._renew_at = self._next_renewal

    async def _renew(self) -> None:
        """Append the remembered commits again, because retention deletes old records."""
        self._expire()
        for query, last in list(self._published.items()):
            try:
                known = await self._known(query, last.batch)
                if known is None or self._published.get(query) is not last:
                    continue
                result = await self._writer.write_confirmed([known.to_record(self._clock())])
            except (RecordError, StorageError) as error:
                if _is_state_of_store(error):
                    raise
                logger.error("cannot renew the commit of batch %d of query %s: %s", last.batch, query, error)
                continue
            self._remember(known, result.queue_offsets[0], result.end_offset)

    async def _read(self, topic: str, offset: int) -> StoredMessage | None:
        found = await self._store.load_messages(topic, 0, offset, ReadOptions(1, _LIST_BYTES))
        if found.status is not GetStatus.FOUND:
            return None
        try:
            record = decode_record(found.buffers[0])
        except RecordError:
            return None
        return record if record.queue_offset == offset else None


def _is_state_of_store(error: Exception) -> bool:
    """Return whether an error concerns all records: a full or failed disk, or another leader."""
    return isinstance(error, StorageError) and type(error) is not StorageError


def _check_topic(repeated: CommitRecord, first: CommitRecord) -> None:
    """Refuse the commit of a query that writes to another topic: the two queries have copies of one checkpoint."""
    if None not in (repeated.topic, first.topic) and repeated.topic != first.topic:
        raise _refused(
            f"batch {first.batch} of query {first.query} is committed for {_described(first.topic)}, not for"
            f" {_described(repeated.topic)}: another query has a copy of the checkpoint, or the topic was changed"
            " before the batch was complete"
        )


def _described(topic: str | None) -> str:
    return f"topic {topic}" if topic else "the topics of its rows"


def _messages(records: list[PendingRecord]) -> int:
    return sum(map(message_count, records))


def _refused(remark: str) -> Refused:
    return Refused(ResponseCode.ILLEGAL_OPERATION, remark)
