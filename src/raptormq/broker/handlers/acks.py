"""ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) and CHANGE_MESSAGE_INVISIBLETIME (200053) (``AckMessageProcessor``,
``ChangeInvisibleTimeProcessor``).

An acknowledgement of a message that is visible again is answered with success and has no effect, as in Apache RocketMQ:
the consumer gets the message once more. The same holds for a change of the invisible time of a message that is visible
again, acknowledged, or being changed; Apache RocketMQ makes another copy of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raptormq.broker.handlers.pop import MAX_INVISIBLE_MS
from raptormq.broker.pop.held_pops import HeldPops
from raptormq.broker.pop.orderly_pops import OrderlyPops
from raptormq.broker.pop.revive_log import REVIVE_QUEUES, ReviveLog
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


class AckHandlers:
    """Handles acknowledgements."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        checkpoints: ReviveLog,
        orderly: OrderlyPops,
        held_pops: HeldPops,
        ready: asyncio.Event,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._checkpoints = checkpoints
        self._orderly = orderly
        self._held_pops = held_pops
        self._ready = ready
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
        await self._ready.wait()
        if handle.is_orderly:
            place = header.topic, header.consumer_group, header.queue_id
            self._ack_orderly(place, header.offset, handle.pop_time)
        else:
            ack = Ack(
                header.topic, header.consumer_group, header.queue_id, handle.start_offset, handle.pop_time,
                (header.offset,), handle.broker_name,
            )  # fmt: skip
            self._checkpoints.acknowledge(ack, handle.revive_queue, self._clock())
        return response_to(command)

    async def batch_ack(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """200151: acknowledge several messages; those that no longer exist are skipped."""
        acks = decode_batch_acks(command.body) if command.body else ()
        if not acks:
            raise Refused(ResponseCode.NO_MESSAGE, "there is nothing to acknowledge")
        await self._ready.wait()
        async for each in cooperatively(acks):
            topic = real_topic(each.topic, each.group, each.kind)
            low, high = await self._store.queue_bounds(topic, each.queue_id)
            offsets = tuple(offset for offset in each.offsets if low <= offset <= high)
            if each.revive_queue == POP_ORDER_REVIVE_QUEUE:
                for offset in offsets:
                    self._ack_orderly((topic, each.group, each.queue_id), offset, each.pop_time)
            elif offsets and 0 <= each.revive_queue < REVIVE_QUEUES:
                ack = Ack(topic, each.group, each.queue_id, each.start_offset, each.pop_time, offsets)
                self._checkpoints.acknowledge(ack, each.revive_queue, self._clock())
        return response_to(command)

    async def change(
        self, connection: Connection, command: RemotingCommand, header: ChangeInvisibleTimeRequestHeader
    ) -> RemotingCommand:
        """200053: change when a message becomes visible again; its own checkpoint replaces its pop's."""
        high = await self._require_offset(connection, header.topic, header.queue_id, header.offset)
        if header.offset == high:
            raise Refused(ResponseCode.NO_MESSAGE, f"offset {header.offset} is past the end {high} of the queue")
        if not 0 <= header.invisible_time <= MAX_INVISIBLE_MS:
            remark = f"messages are invisible for up to {MAX_INVISIBLE_MS} ms, not {header.invisible_time}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        handle = _handle(header.extra_info)
        await self._ready.wait()
        now, topic, group, queue_id = self._clock(), header.topic, header.consumer_group, header.queue_id
        invisible, pop_time = header.invisible_time, now
        if handle.is_orderly:
            visible_at, pop_time = now + invisible, handle.pop_time
            self._orderly.change((topic, group, queue_id), header.offset, pop_time, visible_at)
            invisible = visible_at - pop_time
        else:
            ack = Ack(
                topic, group, queue_id, handle.start_offset, handle.pop_time, (header.offset,), handle.broker_name
            )
            if self._checkpoints.is_pending(ack):
                pop_time = max(now, handle.pop_time + 1)  # a unique key, even in the same millisecond as the pop
                checkpoint = CheckPoint(
                    topic, group, queue_id, header.offset, pop_time, invisible, (header.offset,), handle.broker_name,
                    header.suspend,
                )  # fmt: skip
                await self._checkpoints.replace_checkpoint(ack, checkpoint, handle.revive_queue, now)
        return response_to(command, header=ChangeInvisibleTimeResponseHeader(pop_time, invisible, handle.revive_queue))

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
        raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no revive queue {handle.revive_queue}")
    return handle
