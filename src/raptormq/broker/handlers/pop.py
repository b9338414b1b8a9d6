"""POP_MESSAGE (200050) and NOTIFICATION (200054), with long polling (``PopMessageProcessor``,
``NotificationProcessor``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raptormq.broker.clients import MATCH_ALL, SubscriptionFilters
from raptormq.broker.config import Policies, PullSettings
from raptormq.broker.handlers.peek import check_place
from raptormq.broker.metrics import Counters, Statistics
from raptormq.broker.pop.held_pops import HeldPop, HeldPops
from raptormq.broker.pop.pop_service import PopRequest, PopResult, PopService
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.protocol.bodies.pop import MAX_POPPED
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from raptormq.transport.connection import Connection
from raptormq.transport.memory import Reading
from raptormq.transport.router import Refused, Router

MAX_WAIT_MS = 300_000
MAX_INVISIBLE_MS = 24 * 3600 * 1000
_ORDERLY_S = 1.0
"""How long an orderly pop waits before it tries again: no event signals that a blocked queue is free."""
_LATE_MS = 500
"""A pop that arrives this long after its client has stopped waiting is refused: the client would not get the
messages."""


class PopHandlers:
    """Answers pops, at once or after long polling."""

    def __init__(
        self,
        pop_service: PopService,
        held_pops: HeldPops,
        ready: asyncio.Event,
        topics: TopicTable,
        groups: GroupTable,
        subscriptions: SubscriptionFilters,
        policies: Policies,
        pulling: PullSettings,
        counters: Counters,
        statistics: Statistics,
        clock: Callable[[], int],
        host: str,
    ) -> None:
        """``host`` is the broker's address in remarks."""
        self._pop_service = pop_service
        self._host = host
        self._held_pops = held_pops
        self._ready = ready
        self._topics = topics
        self._groups = groups
        self._subscriptions = subscriptions
        self._policies = policies
        self._pulling = pulling
        self._counters = counters
        self._statistics = statistics
        self._clock = clock

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.POP_MESSAGE, PopMessageRequestHeader, self.pop)
        router.add(RequestCode.NOTIFICATION, NotificationRequestHeader, self.notification)
        router.add(RequestCode.POLLING_INFO, PollingInfoRequestHeader, self.polling_info)

    async def pop(
        self, connection: Connection, command: RemotingCommand, header: PopMessageRequestHeader
    ) -> RemotingCommand | None:
        """200050: messages, which become invisible to other consumers for a while."""
        asked = self._checked(connection, header)
        connection.read_promptly(for_good=True)  # its pulls on the same connection may be idle
        await self._ready.wait()
        waiter = HeldPop(header.topic, header.consumer_group, header.queue_id)
        poll_seconds = min(header.poll_time, MAX_WAIT_MS) / 1000
        patience = poll_seconds if poll_seconds > 0 else None
        with Reading(connection.answers, connection, patience) as reading:
            try:
                code, popped = await self._pop_or_wait(connection, poll_seconds, asked, waiter, reading)
            finally:
                self._held_pops.disarm(waiter)
            if connection.is_closed:  # the arrival that woke it is for another consumer
                self._held_pops.wake(header.topic, header.consumer_group, header.queue_id)
            return self._answer(connection, command, header, code, popped)

    async def _pop_or_wait(
        self, connection: Connection, poll_seconds: float, asked: PopRequest, waiter: HeldPop, reading: Reading
    ) -> tuple[ResponseCode, PopResult]:
        loop = asyncio.get_running_loop()
        until = loop.time() + poll_seconds
        while True:
            await connection.drained()
            if connection.is_closed:  # the messages would be invisible for nothing
                return ResponseCode.POLLING_TIMEOUT, PopResult(self._clock(), 0)
            if self._pop_service.is_full:
                return ResponseCode.POLLING_FULL, PopResult(self._clock(), 0)
            self._held_pops.arm(waiter)  # before the pop, so that no arrival is missed in between
            popped = await self._pop_service.pop(asked, reading)
            if popped.records or popped.failure is not None:
                self._held_pops.disarm(waiter)
                for topic, queue_id in popped.left:  # other pops may have skipped them meanwhile
                    self._held_pops.wake(topic, asked.group, queue_id)
            if popped.records:
                return ResponseCode.SUCCESS, popped
            if popped.failure is not None:
                raise popped.failure
            left = until - loop.time()
            if left <= 0:
                return ResponseCode.POLLING_TIMEOUT, popped
            if popped.skipped:
                await asyncio.sleep(0)
                continue
            if self._held_pops.is_full:
                return ResponseCode.POLLING_FULL, popped
            await self._held_pops.wait(waiter, min(left, _ORDERLY_S) if asked.orderly else left)

    def _checked(self, connection: Connection, header: PopMessageRequestHeader) -> PopRequest:
        if self._clock() - header.born_time - max(header.poll_time, 0) > _LATE_MS:
            remark = f"the broker[{self._host}] pop message is timeout too much"
            raise Refused(ResponseCode.POLLING_TIMEOUT, remark)
        if header.max_msg_nums > MAX_POPPED:
            remark = f"the broker[{self._host}] pop message's num is greater than {MAX_POPPED}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        if header.max_msg_nums <= 0:
            remark = f"a pop takes 1 to {MAX_POPPED} messages, not {header.max_msg_nums}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        if not 0 <= header.invisible_time <= MAX_INVISIBLE_MS:
            remark = f"messages are invisible for up to {MAX_INVISIBLE_MS} ms, not {header.invisible_time}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        self._check_place(connection, header.topic, header.queue_id, header.consumer_group)
        wanted = MATCH_ALL
        if header.exp:
            wanted = self._subscriptions.from_request(header.topic, header.exp, header.exp_type)
        return PopRequest(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.max_msg_nums,
            header.invisible_time,
            from_oldest=header.init_mode == 0,
            orderly=bool(header.order),
            wanted=wanted,
            attempt=header.attempt_id,
        )

    def _check_place(self, connection: Connection, topic: str, queue_id: int, group: str) -> None:
        check_place(self._topics, self._groups, self._policies, topic, queue_id, group, connection)

    def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: PopMessageRequestHeader,
        code: ResponseCode,
        popped: PopResult,
    ) -> RemotingCommand | None:
        answer = PopMessageResponseHeader(
            popped.pop_time,
            header.invisible_time,
            popped.revive_queue,
            popped.rest,
            ";".join(popped.starts),
            ";".join(popped.offsets),
            ";".join(popped.order_counts) or None,
        )
        if code != ResponseCode.SUCCESS:
            self._counters.pulls_empty += 1
            return response_to(command, code, "NO_MESSAGE_IN_QUEUE", answer)
        self._counters.pulls_found += 1
        self._counters.messages_out += len(popped.records)
        size = sum(map(len, popped.records))
        self._counters.bytes_out += size
        self._statistics.count_get(header.topic, header.consumer_group, len(popped.records), size)
        if not command.is_oneway:
            response = response_to(command, code, "FOUND", answer)
            connection.send_slices(response, popped.records, popped.copied)
        return None

    async def notification(
        self, connection: Connection, command: RemotingCommand, header: NotificationRequestHeader
    ) -> RemotingCommand:
        """200054: whether there is a message to pop, now or within the poll time. Of a filter only tags are compared;
        an SQL92 expression is only checked, as in RocketMQ.
        """
        self._check_place(connection, header.topic, header.queue_id, header.consumer_group)
        tags = None
        if header.exp and header.exp_type and self._pulling.filter_notifications:
            tags = self._subscriptions.from_request(header.topic, header.exp, header.exp_type).tags
        await self._ready.wait()
        waiter = HeldPop(header.topic, header.consumer_group, header.queue_id, tags)
        loop = asyncio.get_running_loop()
        until = loop.time() + min(header.poll_time, MAX_WAIT_MS) / 1000
        try:
            while True:
                self._held_pops.arm(waiter)
                found = await self._pop_service.waiting(
                    *(header.topic, header.consumer_group, header.queue_id),
                    orderly=bool(header.order),
                    attempt=header.attempt_id,
                    tags=tags,
                )
                left = until - loop.time()
                if found or left <= 0 or connection.is_closed:
                    break
                if self._held_pops.is_full:
                    return response_to(command, header=NotificationResponseHeader(False, True))
                await self._held_pops.wait(waiter, min(left, _ORDERLY_S) if header.order else left)
        finally:
            self._held_pops.disarm(waiter)
        if connection.is_closed:
            self._held_pops.wake(header.topic, header.consumer_group, header.queue_id)
        return response_to(command, header=NotificationResponseHeader(found))

    def polling_info(
        self, connection: Connection, command: RemotingCommand, header: PollingInfoRequestHeader
    ) -> RemotingCommand:
        """200055: the number of pops of a group that wait for a queue (-1: for any queue)."""
        self._check_place(connection, header.topic, header.queue_id, header.consumer_group)
        count = self._held_pops.count(header.topic, header.consumer_group, header.queue_id)
        return response_to(command, header=PollingInfoResponseHeader(count))
