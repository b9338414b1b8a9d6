"""Writes checkpoints and acknowledgements to the revive log, topic ``rmq_sys_REVIVE_LOG_<cluster>``
(``PopMessageProcessor.appendCheckPoint``, ``AckMessageProcessor.appendAck``).

The broker stores the checkpoint of a pop before it answers the pop and advances the group's offset. A crash can
therefore cause a duplicate delivery but no loss. The records have RocketMQ's format. Apache RocketMQ keeps checkpoints
in memory for some seconds and writes them through its timer. This broker appends them immediately.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.loading import Loading
from raptormq.broker.pop.outstanding import Key, Outstanding, Position
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
        self._being_replaced: set[tuple[Key, tuple[int, ...]]] = set()
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

    async def replace_checkpoint(self, ack: Ack, checkpoint: CheckPoint, revive_queue: int, now_ms: int) -> None:
        """Change the revive time of the message of ``ack``: write a new ``checkpoint`` and acknowledge the old one.

        A message that is acknowledged during the write remains acknowledged. A second call for the same message during
        the write has no effect, because its checkpoint could have the same key.

        Raises:
            StorageError: the new checkpoint cannot be written.
        """
        message = ack.key, ack.offsets
        if message in self._being_replaced:
            return
        self._being_replaced.add(message)
        try:
            await self.write_checkpoint(checkpoint, revive_queue)
        finally:
            self._being_replaced.discard(message)
        if not self.is_pending(ack):  # acknowledged during the write: acknowledge the new checkpoint, too
            ack = replace(ack, start_offset=checkpoint.start_offset, pop_time=checkpoint.pop_time)
        self.acknowledge(ack, revive_queue, now_ms)

    def is_pending(self, ack: Ack) -> bool:
        """Return whether one of the messages is still unacknowledged and invisible."""
        return self.outstanding.is_pending(ack.key, ack.offsets)

    def acknowledge(self, ack: Ack, revive_queue: int, now_ms: int) -> None:
        """Record that messages are acknowledged, if one of them is still pending.

        Raises:
            StorageError: the acknowledgement cannot be written.
        """
        if self.is_pending(ack):
            self._writer.write([self.ack_record(ack, revive_queue, now_ms)])  # may fail; the client then retries
            self.outstanding.acknowledge(ack.key, ack.offsets)

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
