"""Writes checkpoints and acknowledgements to the revive log, topic ``rmq_sys_REVIVE_LOG_<cluster>``
(``PopMessageProcessor.appendCheckPoint``, ``AckMessageProcessor.appendAck``).

A pop is answered, and the group's offset advances, only after its checkpoint is stored. After a crash a message may be
delivered again, but it is never lost. Apache RocketMQ keeps checkpoints in memory for some seconds and writes them
through its timer; here the records, in RocketMQ's format, are appended at once.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.pop.outstanding import Key, Outstanding, Place
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
    """Records pops and acknowledgements."""

    def __init__(
        self, store: MessageStore, writer: InternalWriter, outstanding: Outstanding, cluster: str, store_host: bytes
    ) -> None:
        self._store = store
        self._writer = writer
        self._outstanding = outstanding
        self._topic = revive_topic(cluster)
        self._host = store_host
        self._being_replaced: set[tuple[Key, tuple[int, ...]]] = set()
        self._turn = itertools.cycle(range(REVIVE_QUEUES))

    def next_queue(self) -> int:
        """Return the revive queue for the next pop, round-robin."""
        return next(self._turn)

    @property
    def is_full(self) -> bool:
        """True while too many pops are unacknowledged to allow another one."""
        return self._outstanding.is_full

    async def write_checkpoint(self, checkpoint: CheckPoint, revive_queue: int) -> bool:
        """Store a checkpoint. Return False when its topic was deleted during the write, which makes it void.

        Raises:
            StorageError: the checkpoint is not stored.
        """
        unique = _unique(checkpoint.key, checkpoint.start_offset, checkpoint.broker_name, CHECKPOINT_TAG)
        due = checkpoint.revive_time - _ACK_INTERVAL_MS
        record = self._record(revive_queue, CHECKPOINT_TAG, checkpoint.to_json(), unique, due, checkpoint.pop_time)
        written = self._writer.write([record])
        place, noted = (revive_queue, written.queue_offsets[0]), False
        self._outstanding.hold(place)  # the done offset must not pass it
        try:
            await self._writer.wait_confirmed(written)
            noted = self.track(checkpoint, place, written.start_offset)
        finally:
            if not noted:
                self._outstanding.release(place)
        return noted

    def track(self, checkpoint: CheckPoint, place: Place, log_offset: int) -> bool:
        """Track the acknowledgements of a stored checkpoint. Return False when its topic was deleted after the
        checkpoint was stored: its offsets are void then.
        """
        if log_offset < self._store.tombstone_offset(checkpoint.topic):
            return False
        self._outstanding.add(checkpoint, place)
        return True

    async def replace_checkpoint(self, ack: Ack, checkpoint: CheckPoint, revive_queue: int, now_ms: int) -> None:
        """Move the message that waits for ``ack`` to a new ``checkpoint`` with another revive time. A message that is
        acknowledged during the write stays acknowledged. A second call during the write has no effect: within the same
        millisecond its checkpoint would have the same key.

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
        if not self.is_pending(ack):  # it was acknowledged meanwhile: acknowledge the new checkpoint too
            ack = replace(ack, start_offset=checkpoint.start_offset, pop_time=checkpoint.pop_time)
        self.acknowledge(ack, revive_queue, now_ms)

    def is_pending(self, ack: Ack) -> bool:
        """Return whether one of the messages is still unacknowledged and invisible."""
        return self._outstanding.is_pending(ack.key, ack.offsets)

    def acknowledge(self, ack: Ack, revive_queue: int, now_ms: int) -> None:
        """Record that messages are acknowledged, if one of them is still pending.

        Raises:
            StorageError: the acknowledgement cannot be written.
        """
        if self.is_pending(ack):
            self._writer.write([self.ack_record(ack, revive_queue, now_ms)])  # first: if this fails, the client retries
            self._outstanding.acknowledge(ack.key, ack.offsets)

    def ack_record(self, ack: Ack, revive_queue: int, now_ms: int) -> PendingRecord:
        """Return the acknowledgement as a record of the revive log."""
        unique = _unique(ack.key, ack.offsets[0], ack.broker_name, ack.tag)
        return self._record(revive_queue, ack.tag, ack.to_json(), unique, now_ms, now_ms)

    def _record(self, queue: int, tag: str, body: bytes, unique: str, due_ms: int, born_ms: int) -> PendingRecord:
        properties = encode_properties({TAGS: tag, UNIQUE_KEY: unique, _TIMER_DELIVER_MS: str(due_ms)})
        return PendingRecord(
            self._topic, queue, body, properties.encode(), tag_hash(tag), born_timestamp=born_ms, born_host=self._host
        )


def _unique(key: tuple[str, str, int, int, int], offset: int, broker_name: str, tag: str) -> str:
    topic, group, queue_id, _, pop_time = key
    return f"{topic}@{queue_id}@{offset}@{group}@{pop_time}@{broker_name}@{tag}"
