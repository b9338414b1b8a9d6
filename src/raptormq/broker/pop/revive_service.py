"""Revives popped messages whose invisible time has expired: copies them to the group's retry topic
(``PopReviveService``).

A copy records its origin. If a crash separates the copies of a checkpoint from their acknowledgement, the next start
finds the copies in the log and writes no others. The messages of a batch share one log offset, so after such a crash
they are revived a second time.

A start reads the revive log after the offset that group ``CID_RMQ_SYS_REVIVE_GROUP`` has committed, the offset of the
last completed record. Pops wait for the end of this read. A message is revived within :data:`MAX_PAUSE_S` of its revive
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raptormq.broker.config import PullSettings
from raptormq.broker.delivered.copies import Copies
from raptormq.broker.delivered.origin import origin_of
from raptormq.broker.internal_writer import InternalWriter, record_copy
from raptormq.broker.pop.held_pops import HeldPops
from raptormq.broker.pop.outstanding import Key
from raptormq.broker.pop.popped_messages import PoppedMessages
from raptormq.broker.pop.revive_log import REVIVE_GROUP, REVIVE_QUEUES
from raptormq.broker.retries import RetryTopics
from raptormq.errors import BatchEncrypted, BodyError, RecordError, StorageError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.bodies.pop import ACK_TAG, BATCH_ACK_TAG, CHECKPOINT_TAG, Ack, CheckPoint
from raptormq.protocol.pop_handle import pop_retry_topic
from raptormq.protocol.properties import (
    MAX_PROPERTIES_BYTES,
    decode_properties,
    find_property,
    without_pop_properties,
)
from raptormq.protocol.record import StoredMessage, decode_record, iter_records
from raptormq.protocol.topic_names import is_system_topic
from raptormq.storage.queue import PendingRecord
from raptormq.storage.read import GetStatus, ReadOptions
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)

MAX_PAUSE_S = 0.25
_CHECKPOINT_BATCH = 64
_RETRY_MS = 1_000
_READ_COUNT, _READ_BYTES = 1_000, 1 << 20
_MAX_PROPERTIES_BYTES = MAX_PROPERTIES_BYTES - 512
"""Reserves space for the pop handle, which a pop of the retry topic adds as a property."""
_UNREADABLE = (RecordError, BatchEncrypted)
"""Permanent errors. Pops return no messages of encrypted batches. A checkpoint can refer to such a message only if its
topic was deleted and created again without an entry in the deletion ledger, which Apache RocketMQ does not have.
"""
_CONTINUE = frozenset({GetStatus.FOUND, GetStatus.OFFSET_TOO_SMALL, GetStatus.MESSAGE_WAS_REMOVING})


class PopReviveService:
    """Background service that loads the outstanding checkpoints, then revives messages that are due."""

    def __init__(
        self,
        store: MessageStore,
        writer: InternalWriter,
        retries: RetryTopics,
        popped: PoppedMessages,
        held_pops: HeldPops,
        pulling: PullSettings,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._writer = writer
        self._retries = retries
        self._log = log = popped.revive_log
        self._outstanding = log.outstanding
        self._pulling = pulling
        self._clock = clock
        self._popped, self._held_pops = popped, held_pops
        self._task: asyncio.Task[None] | None = None
        self._copied: dict[tuple[str, int], int] = {}
        self._checkpoint_offsets: dict[Key, int] = {}
        """Log offsets of the checkpoints of earlier runs."""
        self.needs_copies = True
        """True until the messages that became due before the start are revived with the copies of
        :meth:`load_copies`.
        """

    def load_copies(self, copies: Copies, *, forgotten: bool) -> None:
        """Use ``copies`` to skip messages that were copied after their checkpoint. ``forgotten``: the saved progress
        was discarded, so read the revive log from its beginning.
        """
        self._copied = copies.returned
        if forgotten:
            self._store.consumer_offsets.remove_group(REVIVE_GROUP)

    def start(self) -> None:
        """Start the task. It loads the outstanding checkpoints, then revives due messages."""
        self._log.loading.begin()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def role_changed(self, *, leads: bool) -> None:
        """Discard the outstanding checkpoints, and refuse held pops, because the next leader serves pops."""
        if leads:
            self._log.loading.begin()
            return
        self._log.loading.refuse("this member no longer leads the group of this broker: pop again at the leader")
        if self._task is not None:
            self._task.cancel()
        self._popped.clear()
        self._held_pops.wake_all()

    async def stop(self) -> None:
        """Stop the task and commit the progress in the revive log."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._commit()

    async def _run(self) -> None:
        while not self._log.loading.is_done:
            try:
                for queue_id in range(REVIVE_QUEUES):
                    await self._recover(queue_id)
                self._log.loading.finish()
            except Exception:  # pops keep waiting: without its checkpoints, no message is revived
                logger.exception("cannot read the revive log; retrying")
                await asyncio.sleep(_RETRY_MS / 1000)
        last_error = ""  # repeated errors are logged once, because a disk may be full for hours
        while True:
            try:
                await self.revive_due()
                self._recovered()
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
        done = offsets.get(self._log.topic, REVIVE_GROUP, queue_id)
        high = self._store.queue_end(self._log.topic, queue_id)
        if done is not None and done >= high:  # a crash truncated the queue below the committed offset
            offsets.commit(self._log.topic, REVIVE_GROUP, queue_id, done := high - 1)
        offset = 0 if done is None else done + 1
        while True:
            result = await self._store.load_messages(
                self._log.topic, queue_id, offset, ReadOptions(_READ_COUNT, _READ_BYTES)
            )
            if result.status not in _CONTINUE:
                return
            for record in iter_records(b"".join(result.buffers), check_crc=False):
                self._replay(record, queue_id)
            offset = result.next_offset
            await asyncio.sleep(0)

    def _replay(self, record: StoredMessage, queue_id: int) -> None:
        tag = find_property(record.properties, names.TAGS)
        try:
            if tag == CHECKPOINT_TAG:
                position, checkpoint = (queue_id, record.queue_offset), CheckPoint.from_json(record.body)
                self._log.track(checkpoint, position, record.physical_offset)
                if self._copied:
                    self._checkpoint_offsets.setdefault(checkpoint.key, record.physical_offset)
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                ack = Ack.from_json(record.body)
                self._outstanding.acknowledge(ack.key, ack.offsets)
        except BodyError as error:
            logger.warning("invalid record at offset %d of revive queue %d: %s", record.queue_offset, queue_id, error)

    def _recovered(self) -> None:
        self._copied, self._checkpoint_offsets, self.needs_copies = {}, {}, False

    def _commit(self) -> None:
        if not self._log.loading.is_done:
            return
        offsets = self._store.consumer_offsets
        for queue_id in range(REVIVE_QUEUES):
            oldest, end = self._outstanding.oldest_needed(queue_id), self._store.queue_end(self._log.topic, queue_id)
            done = (end if oldest is None else min(oldest, end)) - 1
            known = offsets.get(self._log.topic, REVIVE_GROUP, queue_id)
            if done >= 0 and (known is None or done > known):
                offsets.commit(self._log.topic, REVIVE_GROUP, queue_id, done)

    # --- reviving ---

    async def revive_due(self) -> None:
        """Revive all due messages.

        Raises:
            StorageError: some messages could not be revived and are retried later. The other checkpoints of the same
                batch of 64 were processed. Further batches are not tried, because the disk may have failed.
        """
        failure: Exception | None = None
        while failure is None and (due := self._outstanding.due(self._clock(), _CHECKPOINT_BATCH)):
            for checkpoint, offsets in due:
                try:
                    await self._revive(checkpoint, offsets)
                except Exception as error:  # noqa: BLE001 - raised below; other checkpoints are processed first
                    failure = failure or error
                    self._outstanding.reschedule(checkpoint, self._clock() + _RETRY_MS)
                else:
                    self._outstanding.remove(checkpoint)
        if failure is not None:
            raise failure

    async def _revive(self, checkpoint: CheckPoint, offsets: list[int]) -> None:
        """Append the copies and the acknowledgement of the messages as one group.

        Without the acknowledgement in the log, a start would revive the messages again. A start reads a revive queue
        from its oldest pending checkpoint, which may be older than a day.
        """
        copies = await self._copies(checkpoint, offsets)
        while (end := self._outstanding.unconfirmed_end(checkpoint)) is not None:
            await self._store.wait_confirmed(end)  # messages whose acknowledgement is confirmed are not revived
        found = self._outstanding.pending_offsets(checkpoint)
        if found is None:
            return
        queue, left = found  # without offsets that were acknowledged during the read
        done = Ack(
            checkpoint.topic, checkpoint.group, checkpoint.queue_id, checkpoint.start_offset, checkpoint.pop_time,
            tuple(left), checkpoint.broker_name,
        )  # fmt: skip
        records = [copies[offset] for offset in left if offset in copies]
        written = self._writer.write([*records, self._log.ack_record(done, queue, self._clock())])
        self._outstanding.mark_reviving(checkpoint)  # a concurrent change of the revive time would revive them again
        await self._writer.wait_confirmed(written)

    async def _copies(self, checkpoint: CheckPoint, offsets: list[int]) -> dict[int, PendingRecord]:
        """Return the copies to append, by queue offset. Messages that no longer exist are left out."""
        if not self._retries.exists(checkpoint.topic, checkpoint.group):
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
        """Return the copy of a message, with space for the pop handle."""
        found = decode_properties(message.properties)
        first = found.get(names.FIRST_POP_TIME) if message.reconsume_times else None
        needed = {names.FIRST_POP_TIME: first or str(checkpoint.pop_time)}
        kept = without_pop_properties(found)
        text = self._writer.properties.fit(topic, kept, needed, limit=_MAX_PROPERTIES_BYTES)
        retries = 0 if checkpoint.suspended else 1
        return record_copy(message, topic, 0, text, retries=retries, once=self._is_identified(checkpoint.topic))

    def _is_identified(self, topic: str) -> bool:
        """Return whether a log offset identifies exactly one message of ``topic``."""
        return not (self._store.is_batch_topic(topic) or is_system_topic(topic))

    def _is_written(self, copy: PendingRecord, checkpoint: CheckPoint) -> bool:
        """Return whether an earlier run wrote this copy after the checkpoint."""
        origin, since = origin_of(copy.prepared_transaction_offset), self._checkpoint_offsets.get(checkpoint.key)
        return origin is not None and since is not None and self._copied.get((copy.topic, origin), -1) > since

    async def _read(self, checkpoint: CheckPoint, offset: int) -> StoredMessage | None:
        result = await self._store.load_messages(checkpoint.topic, checkpoint.queue_id, offset, ReadOptions(1, 1))
        if result.status is not GetStatus.FOUND:
            return None
        message = decode_record(result.buffers[0])
        return message if message.queue_offset == offset else None

    async def _ensure_topic(self, topic: str, group: str) -> None:
        self._retries.ensure_pop_topic(topic)
        await self._retries.saved()
        if self._store.consumer_offsets.get(topic, group, 0) is None:
            self._store.consumer_offsets.commit(topic, group, 0, 0)
