"""Revives popped messages that are not acknowledged in time: a copy goes to the group's retry topic
(``PopReviveService``).

A copy names its origin. If a crash comes between the copies of a checkpoint and the acknowledgement that follows them,
the first run after the start finds the copies in the log and writes no others. Messages of a batch share one log offset
and are revived a second time then.

A start reads the revive log from the progress of the last run on (group ``CID_RMQ_SYS_REVIVE_GROUP``; its offset is the
last record that is done). Pops wait until this has finished. A message is revived at most :data:`MAX_PAUSE_S` after its
revive time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raptormq.broker.config import PullSettings
from raptormq.broker.copy_properties import CopyProperties
from raptormq.broker.delivered.copies import Copies
from raptormq.broker.delivered.origin import origin_of
from raptormq.broker.internal_writer import InternalWriter, record_copy
from raptormq.broker.pop.outstanding import Key, Outstanding
from raptormq.broker.pop.revive_log import REVIVE_GROUP, REVIVE_QUEUES, ReviveLog
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.errors import BatchEncrypted, BodyError, RecordError, StorageError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.bodies.pop import ACK_TAG, BATCH_ACK_TAG, CHECKPOINT_TAG, Ack, CheckPoint
from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.protocol.pop_handle import pop_retry_topic
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties, find_property
from raptormq.protocol.record import StoredMessage, decode_record, iter_records
from raptormq.protocol.topic_names import is_system_topic
from raptormq.storage.fs import TableSaver
from raptormq.storage.queue import PendingRecord
from raptormq.storage.read import GetStatus, ReadOptions
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)

MAX_PAUSE_S = 0.25
_CHECKPOINT_BATCH = 64
_RETRY_MS = 1_000
_READ_COUNT, _READ_BYTES = 1_000, 1 << 20
_MAX_PROPERTIES_BYTES = MAX_PROPERTIES_BYTES - 512
"""Leaves room for the property with the pop handle of a message of a retry topic."""
_UNREADABLE = (RecordError, BatchEncrypted)
"""Permanent errors. Pops never return messages of encrypted batches; one can appear only in a topic that was deleted
and created again without an entry in the ledger of deletions (Apache RocketMQ has no such ledger).
"""
_GO_ON = frozenset({GetStatus.FOUND, GetStatus.OFFSET_TOO_SMALL, GetStatus.MESSAGE_WAS_REMOVING})


class PopReviveService:
    """Background service; ``ready`` is set when all outstanding checkpoints are loaded."""

    def __init__(
        self,
        store: MessageStore,
        writer: InternalWriter,
        topics: TopicTable,
        topics_saver: TableSaver,
        groups: GroupTable,
        outstanding: Outstanding,
        checkpoints: ReviveLog,
        revive_topic: str,
        copies: CopyProperties,
        pulling: PullSettings,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._writer = writer
        self._topics = topics
        self._topics_saver = topics_saver
        self._groups = groups
        self._outstanding = outstanding
        self._checkpoints = checkpoints
        self._revive_topic = revive_topic
        self._copy_properties = copies
        self._pulling = pulling
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._returned: dict[tuple[str, int], int] = {}
        self._checkpoint_offsets: dict[Key, int] = {}
        """Log offsets of the checkpoints of earlier runs."""
        self.needs_copies = True
        """True until the first run has revived what is due; it needs the copies of :meth:`load_copies`."""
        self.ready = asyncio.Event()

    def load_copies(self, copies: Copies, *, forgotten: bool) -> None:
        """Skip messages that have a copy after their checkpoint."""
        self._returned = copies.returned
        if forgotten:
            self._store.consumer_offsets.remove_group(REVIVE_GROUP)

    def start(self) -> None:
        """Load the outstanding checkpoints, then revive what is due."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop, and commit how far the revive log is done."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._commit()

    async def _run(self) -> None:
        while not self.ready.is_set():
            try:
                for queue_id in range(REVIVE_QUEUES):
                    await self._recover(queue_id)
                self.ready.set()
            except Exception:  # pops wait: messages popped in an earlier run would not be revived
                logger.exception("cannot read the revive log; retrying")
                await asyncio.sleep(_RETRY_MS / 1000)
        last_error = ""  # log each error once: a disk may be full for hours
        while True:
            try:
                await self.revive_due()
                self._settled()
                self._commit()
                last_error = ""
            except StorageError as error:
                if last_error != (last_error := str(error)):
                    logger.warning("cannot revive popped messages; retrying: %s", error)
            except Exception:
                logger.exception("cannot revive popped messages; retrying")
            await asyncio.sleep(MAX_PAUSE_S)

    # --- the start ---

    async def _recover(self, queue_id: int) -> None:
        offsets = self._store.consumer_offsets
        done = offsets.get(self._revive_topic, REVIVE_GROUP, queue_id)
        high = self._store.queue_end(self._revive_topic, queue_id)
        if done is not None and done >= high:  # a crash has truncated the log below it
            offsets.commit(self._revive_topic, REVIVE_GROUP, queue_id, done := high - 1)
        offset = 0 if done is None else done + 1
        while True:
            result = await self._store.load_messages(
                self._revive_topic, queue_id, offset, ReadOptions(_READ_COUNT, _READ_BYTES)
            )
            if result.status not in _GO_ON:
                return
            for record in iter_records(b"".join(result.buffers), check_crc=False):
                self._replay(record, queue_id)
            offset = result.next_offset
            await asyncio.sleep(0)

    def _replay(self, record: StoredMessage, queue_id: int) -> None:
        tag = find_property(record.properties, names.TAGS)
        try:
            if tag == CHECKPOINT_TAG:
                place, checkpoint = (queue_id, record.queue_offset), CheckPoint.from_json(record.body)
                self._checkpoints.track(checkpoint, place, record.physical_offset)
                if self._returned:
                    self._checkpoint_offsets.setdefault(checkpoint.key, record.physical_offset)
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                ack = Ack.from_json(record.body)
                self._outstanding.acknowledge(ack.key, ack.offsets)
        except BodyError as error:
            logger.warning("invalid record at offset %d of revive queue %d: %s", record.queue_offset, queue_id, error)

    def _settled(self) -> None:
        self._returned, self._checkpoint_offsets, self.needs_copies = {}, {}, False

    def _commit(self) -> None:
        if not self.ready.is_set():
            return
        offsets = self._store.consumer_offsets
        for queue_id in range(REVIVE_QUEUES):
            oldest, end = self._outstanding.oldest_needed(queue_id), self._store.queue_end(self._revive_topic, queue_id)
            done = (end if oldest is None else min(oldest, end)) - 1
            known = offsets.get(self._revive_topic, REVIVE_GROUP, queue_id)
            if done >= 0 and (known is None or done > known):
                offsets.commit(self._revive_topic, REVIVE_GROUP, queue_id, done)

    # --- reviving ---

    async def revive_due(self) -> None:
        """Revive everything that is due.

        Raises:
            StorageError: some messages could not be revived and are retried later. The other checkpoints of the same
                batch were tried; further batches wait, so that a failing disk is not tried for all of them.
        """
        failure: Exception | None = None
        while failure is None and (due := self._outstanding.due(self._clock(), _CHECKPOINT_BATCH)):
            for checkpoint, offsets in due:
                try:
                    await self._revive(checkpoint, offsets)
                except Exception as error:  # noqa: BLE001 - raised below: one must not keep the others from their groups
                    failure = failure or error
                    self._outstanding.reschedule(checkpoint, self._clock() + _RETRY_MS)
                else:
                    self._outstanding.remove(checkpoint)
        if failure is not None:
            raise failure

    async def _revive(self, checkpoint: CheckPoint, offsets: list[int]) -> None:
        """Append the copies and, in the same group, the acknowledgement of the messages: a start reads the revive log
        from the oldest checkpoint of a queue on, which may wait for a day or longer.
        """
        copies = await self._copies(checkpoint, offsets)
        found = self._outstanding.pending_offsets(checkpoint)
        if found is None:
            return
        queue, left = found  # without offsets that were acknowledged meanwhile
        done = Ack(
            checkpoint.topic, checkpoint.group, checkpoint.queue_id, checkpoint.start_offset, checkpoint.pop_time,
            tuple(left), checkpoint.broker_name,
        )  # fmt: skip
        records = [copies[offset] for offset in left if offset in copies]
        written = self._writer.write([*records, self._checkpoints.ack_record(done, queue, self._clock())])
        self._outstanding.mark_reviving(checkpoint)  # a concurrent change of the revive time would revive it again
        await self._writer.wait_confirmed(written)

    async def _copies(self, checkpoint: CheckPoint, offsets: list[int]) -> dict[int, PendingRecord]:
        """Return the copies to append, by offset, without messages that no longer exist."""
        if self._topics.get(checkpoint.topic) is None or self._groups.get(checkpoint.group) is None:
            return {}
        copies: dict[int, PendingRecord] = {}
        topic = pop_retry_topic(checkpoint.topic, checkpoint.group, v2=self._pulling.retry_topic_v2)
        for offset in offsets:
            try:
                message = await self._read(checkpoint, offset)
            except _UNREADABLE as error:
                logger.warning("cannot revive message %d of %s: %s", offset, checkpoint.topic, error)
                continue
            if message is not None:
                copy = self._copy(message, topic, checkpoint)
                if not self._is_written(copy, checkpoint):
                    copies[offset] = copy
        for each in {record.topic for record in copies.values()}:
            await self._ensure_topic(each, checkpoint.group)
        return copies

    def _copy(self, message: StoredMessage, topic: str, checkpoint: CheckPoint) -> PendingRecord:
        """Return the copy of a message, with room for the handle of the next pop."""
        found = decode_properties(message.properties)
        first = found.get(names.FIRST_POP_TIME) if message.reconsume_times else None
        needed = {names.FIRST_POP_TIME: first or str(checkpoint.pop_time)}
        text = self._copy_properties.fit(topic, found, needed, limit=_MAX_PROPERTIES_BYTES)
        retries = 0 if checkpoint.suspended else 1
        return record_copy(message, topic, 0, text, retries=retries, once=self._has_place(checkpoint.topic))

    def _has_place(self, topic: str) -> bool:
        """Whether a log offset identifies exactly one message of ``topic``."""
        return not (self._store.is_batch_topic(topic) or is_system_topic(topic))

    def _is_written(self, copy: PendingRecord, checkpoint: CheckPoint) -> bool:
        """Whether an earlier run has written this copy after its checkpoint."""
        origin, since = origin_of(copy.prepared_transaction_offset), self._checkpoint_offsets.get(checkpoint.key)
        return origin is not None and since is not None and self._returned.get((copy.topic, origin), -1) > since

    async def _read(self, checkpoint: CheckPoint, offset: int) -> StoredMessage | None:
        result = await self._store.load_messages(checkpoint.topic, checkpoint.queue_id, offset, ReadOptions(1, 1))
        if result.status is not GetStatus.FOUND:
            return None
        message = decode_record(result.buffers[0])
        return message if message.queue_offset == offset else None

    async def _ensure_topic(self, topic: str, group: str) -> None:
        if self._topics.get(topic) is None:
            self._topics.put(TopicConfig(topic, 1, 1))
        await self._topics_saver.saved()  # a topic lost in a crash would hide the message
        if self._store.consumer_offsets.get(topic, group, 0) is None:
            self._store.consumer_offsets.commit(topic, group, 0, 0)
