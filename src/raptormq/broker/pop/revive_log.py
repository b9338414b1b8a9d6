"""Writes checkpoints and acknowledgements to the revive log, topic ``rmq_sys_REVIVE_LOG_<cluster>``
(``PopMessageProcessor.appendCheckPoint``, ``AckMessageProcessor.appendAck``).

The broker stores the checkpoint of a pop before it answers the pop and advances the group's offset. A crash can
therefore cause a duplicate delivery but no loss. The records have RocketMQ's format. Apache RocketMQ keeps checkpoints
in memory for some seconds and writes them through its timer. This broker appends them immediately.

A message is acknowledged when the record of the acknowledgement is confirmed: flushed under SYNC_FLUSH, stored by a
majority of a Dledger group. Until then the message is pending, and it is not revived::

    acknowledge --append--> being acknowledged --confirmed--> acknowledged
                                  `--no longer leads, disk failed--> pending, revived when it is due
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from functools import partial

from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.loading import Loading
from raptormq.broker.pop.outstanding import Key, Outstanding, Position
from raptormq.errors import StorageError
from raptormq.protocol.bodies.pop import CHECKPOINT_TAG, Ack, CheckPoint
from raptormq.protocol.properties import TAGS, UNIQUE_KEY, encode_properties
from raptormq.protocol.tags import tag_hash
from raptormq.protocol.topic_names import REVIVE_PREFIX
from raptormq.storage.queue import PendingRecord
from raptormq.storage.store import MessageStore

REVIVE_QUEUES = 8
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
_TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
_ACK_INTERVAL_MS = 1_000


def revive_topic(cluster: str) -> str:
    """Return the topic of the revive log."""
    return f"{REVIVE_PREFIX}{cluster}"


class ReviveLog:
    """Writes checkpoints and acknowledgements."""

    def __init__(
        self, store: MessageStore, writer: InternalWriter, outstanding: Outstanding, cluster: str, store_host: bytes
    ) -> None:
        self._store = store
        self._writer = writer
        self.outstanding = outstanding
        self.topic = revive_topic(cluster)
        self.loading = Loading()
        """Whether the outstanding checkpoints of earlier runs are loaded."""
        self._host = store_host
        self._being_replaced: dict[tuple[Key, tuple[int, ...]], asyncio.Event] = {}
        self._next_queue = itertools.cycle(range(REVIVE_QUEUES))

    def next_queue(self) -> int:
        """Return the revive queue for the next pop, round-robin."""
        return next(self._next_queue)

    @property
    def is_full(self) -> bool:
        """True if the limit of unacknowledged pops is reached."""
        return self.outstanding.is_full

    async def write_checkpoint(self, checkpoint: CheckPoint, revive_queue: int) -> bool:
        """Store a checkpoint. Return False if its topic was deleted during the write, which invalidates it.

        Raises:
            StorageError: the checkpoint was not stored.
        """
        unique = _unique(checkpoint.key, checkpoint.start_offset, checkpoint.broker_name, CHECKPOINT_TAG)
        due = checkpoint.revive_time - _ACK_INTERVAL_MS
        record = self._record(revive_queue, CHECKPOINT_TAG, checkpoint.to_json(), unique, due, checkpoint.pop_time)
        written = self._writer.write([record])
        position, tracked = (revive_queue, written.queue_offsets[0]), False
        self.outstanding.hold(position)  # the committed offset of the revive queue must not pass it
        try:
            await self._writer.wait_confirmed(written)
            tracked = self.track(checkpoint, position, written.start_offset)
        finally:
            if not tracked:
                self.outstanding.release(position)
        return tracked

    def track(self, checkpoint: CheckPoint, position: Position, log_offset: int) -> bool:
        """Track the acknowledgements of a stored checkpoint. Return False if its topic was deleted after the checkpoint
        was stored, which invalidates the offsets.
        """
        if log_offset < self._store.tombstone_offset(checkpoint.topic):
            return False
        self.outstanding.add(checkpoint, position)
        return True

    async def replace_checkpoint(self, ack: Ack, checkpoint: CheckPoint, revive_queue: int, now_ms: int) -> bool:
        """Change the revive time of the message of ``ack``: write a new ``checkpoint`` and acknowledge the old one.
        Wait until both are confirmed.

        A message that is acknowledged during the write remains acknowledged. A second call for the same message during
        the write waits for the first one and has no effect, because its checkpoint could have the same key. It returns
        False if the message is still pending, because the first call has failed.

        Raises:
            StorageError: the new checkpoint or the acknowledgement cannot be written or confirmed.
        """
        message = ack.key, ack.offsets
        if (first := self._being_replaced.get(message)) is not None:
            await first.wait()
            return not self.is_pending(ack)
        self._being_replaced[message] = done = asyncio.Event()
        try:
            await self.write_checkpoint(checkpoint, revive_queue)
            if not self.is_pending(ack) or self.outstanding.is_being_acknowledged(ack.key, ack.offsets):
                # acknowledged during the write: acknowledge the new checkpoint, too
                ack = replace(ack, start_offset=checkpoint.start_offset, pop_time=checkpoint.pop_time)
            end = self.acknowledge(ack, revive_queue, now_ms)
            if end is not None:
                await self._store.wait_confirmed(end)
        finally:
            del self._being_replaced[message]
            done.set()
        return True

    def is_pending(self, ack: Ack) -> bool:
        """Return whether one of the messages is still unacknowledged and invisible."""
        return self.outstanding.is_pending(ack.key, ack.offsets)

    def acknowledge(self, ack: Ack, revive_queue: int, now_ms: int) -> int | None:
        """Append the acknowledgement of messages, if one of them is still pending. Return the log offset at which the
        record ends, or None if no message is pending. The messages are acknowledged when the record is confirmed.

        Raises:
            StorageError: the acknowledgement cannot be written.
        """
        if not self.is_pending(ack):
            return None
        written = self._writer.write([self.ack_record(ack, revive_queue, now_ms)])  # may fail; the client then retries
        self.outstanding.begin_acknowledgement(ack.key, ack.offsets, written.end_offset)
        self._store.on_confirmed(written.end_offset, partial(self._confirmed, ack))
        return written.end_offset

    def _confirmed(self, ack: Ack, error: StorageError | None) -> None:
        if error is None:
            self.outstanding.acknowledge(ack.key, ack.offsets)
        else:
            self.outstanding.lose_acknowledgement(ack.key, ack.offsets)

    def ack_record(self, ack: Ack, revive_queue: int, now_ms: int) -> PendingRecord:
        """Return the acknowledgement as a record of the revive log."""
        unique = _unique(ack.key, ack.offsets[0], ack.broker_name, ack.tag)
        return self._record(revive_queue, ack.tag, ack.to_json(), unique, now_ms, now_ms)

    def _record(self, queue: int, tag: str, body: bytes, unique: str, due_ms: int, born_ms: int) -> PendingRecord:
        properties = encode_properties({TAGS: tag, UNIQUE_KEY: unique, _TIMER_DELIVER_MS: str(due_ms)})
        return PendingRecord(
            self.topic, queue, body, properties.encode(), tag_hash(tag), born_timestamp=born_ms, born_host=self._host
        )


def _unique(key: tuple[str, str, int, int, int], offset: int, broker_name: str, tag: str) -> str:
    topic, group, queue_id, _, pop_time = key
    return f"{topic}@{queue_id}@{offset}@{group}@{pop_time}@{broker_name}@{tag}"
