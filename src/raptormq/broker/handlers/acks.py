"""ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) and CHANGE_MESSAGE_INVISIBLETIME (200053) (``AckMessageProcessor``,
``ChangeInvisibleTimeProcessor``).

An acknowledgement of a message that is visible again is answered with success but has no effect, as in Apache RocketMQ.
The consumer receives the message again. A change of the invisible time is likewise answered with success but ignored if
the message is visible again, acknowledged, or being changed. Apache RocketMQ creates another copy in this case.

The response waits until the record is confirmed: flushed under SYNC_FLUSH, stored by a majority of a Dledger group. A
record that is not confirmed within :data:`CONFIRM_S` is answered with 14, and the message stays pending until the
record is confirmed. Orderly pops have no records: their acknowledgements commit offsets, which members of a group
replicate within a second. Requests without a record are answered after a majority has confirmed the leadership, because
another member may have replaced this leader without its knowledge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raptormq.broker.pop.held_pops import HeldPops
from raptormq.broker.pop.popped_messages import PoppedMessages
from raptormq.broker.pop.request_validator import check_invisible_time
from raptormq.broker.pop.revive_log import REVIVE_QUEUES
from raptormq.broker.roles import ConfirmLeadership
from raptormq.broker.tables import TopicTable
from raptormq.broker.validation import no_read_queue, require_topic
from raptormq.errors import MessageError
from raptormq.protocol.bodies.pop import Ack, CheckPoint, decode_batch_acks
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from raptormq.protocol.pop_handle import POP_ORDER_REVIVE_QUEUE, PopHandle, parse_handle, real_topic
from raptormq.storage.background import cooperatively
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

CONFIRM_S = 2.0
"""Maximum time in seconds that a response waits for the confirmation of its record. Clients time out after 3 s."""


class AckHandlers:
    """Handles acknowledgements of popped messages, and changes of their invisible time."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        popped: PoppedMessages,
        held_pops: HeldPops,
        clock: Callable[[], int],
        confirm_leadership: ConfirmLeadership | None = None,
        replicate_offsets: Callable[[], None] | None = None,
    ) -> None:
        """``confirm_leadership`` is None without a group, and so is ``replicate_offsets``, which appends the changed
        consumer offsets to the log.
        """
        self._confirm_leadership = confirm_leadership
        self._replicate_offsets = replicate_offsets
        self._store = store
        self._topics = topics
        self._popped = popped
        self._revive_log, self._orderly = popped.revive_log, popped.orderly
        self._held_pops = held_pops
        self._clock = clock

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.ACK_MESSAGE, AckMessageRequestHeader, self.ack)
        router.add(RequestCode.BATCH_ACK_MESSAGE, None, self.batch_ack)
        router.add(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequestHeader, self.change)

    async def ack(
        self, connection: Connection, command: RemotingCommand, header: AckMessageRequestHeader
    ) -> RemotingCommand:
        """200051: acknowledge one message."""
        await self._require_offset(connection, header.topic, header.queue_id, header.offset)
        handle = _handle(header.extra_info)
        await self._popped.loaded()
        if handle.is_orderly:
            place = header.topic, header.consumer_group, header.queue_id
            self._ack_orderly(place, header.offset, handle.pop_time)
            end = None
        else:
            ack = Ack(
                header.topic, header.consumer_group, header.queue_id, handle.start_offset, handle.pop_time,
                (header.offset,), handle.broker_name,
            )  # fmt: skip
            end = self._acknowledge(ack, handle.revive_queue)
        await self._confirm(end, self._store.leadership)
        return response_to(command)

    async def batch_ack(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """200151: acknowledge several messages. Messages that no longer exist are skipped."""
        acks = decode_batch_acks(command.body) if command.body else ()
        if not acks:
            raise Refused(ResponseCode.NO_MESSAGE, "the request contains no acknowledgement")
        await self._popped.loaded()
        end, are_records, leadership = None, True, self._store.leadership
        async for each in cooperatively(acks):
            topic = real_topic(each.topic, each.group, each.kind)
            low, high = await self._store.queue_bounds(topic, each.queue_id)
            offsets = tuple(offset for offset in each.offsets if low <= offset <= high)
            if each.revive_queue == POP_ORDER_REVIVE_QUEUE:
                are_records = False
                for offset in offsets:
                    self._ack_orderly((topic, each.group, each.queue_id), offset, each.pop_time)
            elif offsets and 0 <= each.revive_queue < REVIVE_QUEUES:
                ack = Ack(topic, each.group, each.queue_id, each.start_offset, each.pop_time, offsets)
                end = self._acknowledge(ack, each.revive_queue) or end
        await self._confirm(end, leadership, are_records=are_records)
        return response_to(command)

    async def change(
        self, connection: Connection, command: RemotingCommand, header: ChangeInvisibleTimeRequestHeader
    ) -> RemotingCommand:
        """200053: change the invisible time of a message. The message gets a new checkpoint."""
        high = await self._require_offset(connection, header.topic, header.queue_id, header.offset)
        if header.offset == high:
            raise Refused(ResponseCode.NO_MESSAGE, f"offset {header.offset} is past the end {high} of the queue")
        check_invisible_time(header.invisible_time)
        handle = _handle(header.extra_info)
        await self._popped.loaded()
        now, topic, group, queue_id = self._clock(), header.topic, header.consumer_group, header.queue_id
        invisible, pop_time = header.invisible_time, now
        if handle.is_orderly:
            visible_at, pop_time = now + invisible, handle.pop_time
            self._orderly.change((topic, group, queue_id), header.offset, pop_time, visible_at)
            invisible = visible_at - pop_time
            await self._confirm(None, self._store.leadership)
        else:
            ack = Ack(
                topic, group, queue_id, handle.start_offset, handle.pop_time, (header.offset,), handle.broker_name
            )
            if self._revive_log.is_pending(ack):
                pop_time = max(now, handle.pop_time + 1)  # unique, even in the millisecond of the pop
                checkpoint = CheckPoint(
                    topic, group, queue_id, header.offset, pop_time, invisible, (header.offset,), handle.broker_name,
                    header.suspend,
                )  # fmt: skip
                await self._replace(ack, checkpoint, handle.revive_queue, now)
            else:
                await self._confirm(None, self._store.leadership)
        return response_to(command, header=ChangeInvisibleTimeResponseHeader(pop_time, invisible, handle.revive_queue))

    def _acknowledge(self, ack: Ack, revive_queue: int) -> int | None:
        """Append an acknowledgement after the offset of the pop, from which the next leader of a group would pop the
        message again. Return the end of the record (:meth:`ReviveLog.acknowledge`).
        """
        if self._replicate_offsets is not None:
            self._replicate_offsets()
        return self._revive_log.acknowledge(ack, revive_queue, self._clock())

    async def _replace(self, ack: Ack, checkpoint: CheckPoint, revive_queue: int, now_ms: int) -> None:
        """Replace a checkpoint. The replacement continues after :data:`CONFIRM_S`: it may be in the log already, and an
        acknowledgement of the message then applies to the new checkpoint, too.
        """
        replacing = asyncio.ensure_future(self._revive_log.replace_checkpoint(ack, checkpoint, revive_queue, now_ms))
        replacing.add_done_callback(_retrieve_error)
        done, _ = await asyncio.wait([replacing], timeout=CONFIRM_S)
        if not done or not replacing.result():
            raise _unconfirmed("change of the invisible time")

    async def _confirm(self, end: int | None, leadership: int, *, are_records: bool = True) -> None:
        """Wait until acknowledgements may be answered.

        Args:
            end: log offset at which the last record ends, or None without a record.
            leadership: leadership (:attr:`MessageStore.leadership`) at the first record.
            are_records: whether all acknowledgements are records. Others commit offsets.

        Raises:
            Refused: a record is not confirmed in time.
            StorageError: a record cannot be confirmed, or this member does not lead its group.
        """
        if end is not None and end > self._store.confirmed_offset:
            try:
                async with asyncio.timeout(CONFIRM_S):
                    await self._store.wait_confirmed(end)
            except TimeoutError:
                raise _unconfirmed("acknowledgement") from None
        if self._confirm_leadership is not None and (end is None or not are_records):
            await self._confirm_leadership()
        self._store.check_leadership(leadership)

    def _ack_orderly(self, place: tuple[str, str, int], offset: int, pop_time: int) -> None:
        topic, group, queue_id = place
        offsets = self._store.consumer_offsets
        if offset < (offsets.get(topic, group, queue_id) or 0):
            return
        following = self._orderly.acknowledge(place, offset, pop_time)
        if following is not None:
            offsets.commit(topic, group, queue_id, following)
            if not self._orderly.is_blocked(place, self._clock()):
                self._held_pops.wake(topic, group, queue_id)

    async def _require_offset(self, connection: Connection, topic: str, queue_id: int, offset: int) -> int:
        config = require_topic(self._topics, topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, no_read_queue(config, queue_id, connection))
        low, high = await self._store.queue_bounds(topic, queue_id)
        if not low <= offset <= high:
            remark = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}"
            raise Refused(ResponseCode.NO_MESSAGE, remark)
        return high


def _handle(text: str) -> PopHandle:
    try:
        handle = parse_handle(text)
    except MessageError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
    if not handle.is_orderly and not 0 <= handle.revive_queue < REVIVE_QUEUES:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"revive queue {handle.revive_queue} does not exist")
    return handle


def _unconfirmed(what: str) -> Refused:
    remark = f"the {what} is stored, but not confirmed by the disk or a majority of the group yet: retry"
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, remark)


def _retrieve_error(task: asyncio.Future[bool]) -> None:
    """Retrieve the error of a replacement whose request is answered already, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
