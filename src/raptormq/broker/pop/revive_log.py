"""Writes checkpoints and acknowledgements into the revive log, topic ``rmq_sys_REVIVE_LOG_<cluster>``
(``PopMessageProcessor.appendCheckPoint``, ``AckMessageProcessor.appendAck``).

A pop is answered when its checkpoint is stored, and only then does the group's offset go on: after a crash a message
has been handed out again or comes back, but it is never lost. Unlike Apache RocketMQ, which keeps checkpoints in
memory for some seconds and lets them arrive through its timer, records go straight into the log, in RocketMQ's form.
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
    """Writes down what is popped and what is done."""

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
        """Return the revive queue of the next pop."""
        return next(self._turn)

    @property
    def is_full(self) -> bool:
        """True while too much waits for acknowledgements for anything more to be popped."""
        return self._outstanding.is_full

    async def write_checkpoint(self, checkpoint: CheckPoint, revive_queue: int) -> bool:
        """Return when the checkpoint is stored; False when its topic was deleted meanwhile, so that it says nothing.

        Raises:
            StorageError: it is not.
        """
        unique = _unique(checkpoint.key, checkpoint.start_offset, checkpoint.broker_name, CHECKPOINT_TAG)
        due = checkpoint.revive_time - _ACK_INTERVAL_MS
        record = self._record(revive_queue, CHECKPOINT_TAG, checkpoint.to_json(), unique, due, checkpoint.pop_time)
        written = self._writer.write([record])
        place, noted = (revive_queue, written.queue_offsets[0]), False
        self._outstanding.hold(place)  # what is done with must not go past it
        try:
            await self._writer.wait_confirmed(written)
            noted = self.track(checkpoint, place, written.start_offset)
        finally:
            if not noted:
                self._outstanding.release(place)
        return noted

    def track(self, checkpoint: CheckPoint, place: Place, log_offset: int) -> bool:
        """Wait for the acknowledgements of a checkpoint that is in the log; False when it is of a topic that was
        deleted behind it, so that its offsets are those of other messages, if there are any.
        """
        if log_offset < self._store.tombstone_offset(checkpoint.topic):
            return False
        self._outstanding.add(checkpoint, place)
        return True

    async def replace_checkpoint(self, ack: Ack, checkpoint: CheckPoint, revive_queue: int, now_ms: int) -> None:
        """Let a checkpoint of its own take over the message that waits for ``ack``. What is acknowledged while that is
        written stays done; a second call in this time changes nothing, like one that comes too late: in the same
        millisecond its checkpoint would have the same name.

        Raises:
            StorageError: it cannot be written down.
        """
        message = ack.key, ack.offsets
        if message in self._being_replaced:
            return
        self._being_replaced.add(message)
        try:
            await self.write_checkpoint(checkpoint, revive_queue)
        finally:
            self._being_replaced.discard(message)
        if not self.is_pending(ack):  # any more: nor need the new one
            ack = replace(ack, start_offset=checkpoint.start_offset, pop_time=checkpoint.pop_time)
        self.acknowledge(ack, revive_queue, now_ms)

    def is_pending(self, ack: Ack) -> bool:
        """Return whether one of the messages is invisible still."""
        return self._outstanding.is_pending(ack.key, ack.offsets)

    def acknowledge(self, ack: Ack, revive_queue: int, now_ms: int) -> None:
        """Note that messages are done, if anyone still waits for that.

        Raises:
            StorageError: it cannot be written down.
        """
        if self.is_pending(ack):
            self._writer.write([self.ack_record(ack, revive_queue, now_ms)])  # first: who fails here asks once more
            self._outstanding.acknowledge(ack.key, ack.offsets)

    def ack_record(self, ack: Ack, revive_queue: int, now_ms: int) -> PendingRecord:
        """Return what the revive log says of messages that are done."""
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
