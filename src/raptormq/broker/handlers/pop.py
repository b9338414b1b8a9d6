"""POP_MESSAGE (200050), NOTIFICATION (200054) and POLLING_INFO (200055), with long polling (``PopMessageProcessor``,
``NotificationProcessor``, ``PollingInfoProcessor``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raptormq.broker.metrics import Counters, Statistics
from raptormq.broker.pop.held_pops import HeldPop, HeldPops
from raptormq.broker.pop.pop_service import PopRequest, PopResult, PopService
from raptormq.broker.pop.request_validator import PopRequestValidator
from raptormq.broker.roles import ConfirmLeadership
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
from raptormq.transport.router import Router

MAX_WAIT_MS = 300_000
_ORDERLY_S = 1.0
"""Interval in seconds at which a waiting orderly pop reads again: no event signals that a blocked queue becomes
available.
"""


class PopHandlers:
    """Answers pops, immediately or after long polling."""

    def __init__(
        self,
        pop_service: PopService,
        held_pops: HeldPops,
        validator: PopRequestValidator,
        counters: Counters,
        statistics: Statistics,
        clock: Callable[[], int],
        confirm_leadership: ConfirmLeadership | None = None,
    ) -> None:
        """``confirm_leadership`` is None without a group."""
        self._confirm_leadership = confirm_leadership
        self._pop_service = pop_service
        self._held_pops = held_pops
        self._validator = validator
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
        """200050: return messages and make them invisible to other consumers for the invisible time."""
        pop_request = self._validator.pop_request(connection, header)
        connection.read_promptly(for_good=True)  # idle pulls make a connection read lazily
        await self._pop_service.loaded()
        waiter = HeldPop(header.topic, header.consumer_group, header.queue_id)
        poll_seconds = min(header.poll_time, MAX_WAIT_MS) / 1000
        patience = poll_seconds if poll_seconds > 0 else None
        with Reading(connection.answers, connection, patience) as reading:
            try:
                code, popped = await self._pop_or_wait(connection, poll_seconds, pop_request, waiter, reading)
            finally:
                self._held_pops.disarm(waiter)
            if connection.is_closed:  # pass the arrival that woke this pop to another consumer
                self._held_pops.wake(header.topic, header.consumer_group, header.queue_id)
            return self._answer(connection, command, header, code, popped)

    async def _pop_or_wait(
        self, connection: Connection, poll_seconds: float, pop_request: PopRequest, waiter: HeldPop, reading: Reading
    ) -> tuple[ResponseCode, PopResult]:
        loop = asyncio.get_running_loop()
        until = loop.time() + poll_seconds
        while True:
            await connection.drained()
            if connection.is_closed:  # no consumer would receive the messages
                return ResponseCode.POLLING_TIMEOUT, PopResult(self._clock(), 0)
            if self._pop_service.is_full:
                return ResponseCode.POLLING_FULL, PopResult(self._clock(), 0)
            self._held_pops.arm(waiter)  # before the read, so that no arrival is missed
            await self._pop_service.loaded()
            if pop_request.orderly and self._confirm_leadership is not None:
                await self._confirm_leadership()  # an orderly pop has no checkpoint that a majority confirms
            popped = await self._pop_service.pop(pop_request, reading)
            if popped.records or popped.failure is not None:
                self._held_pops.disarm(waiter)
                for topic, queue_id in popped.left:  # concurrent pops may have skipped these queues
                    self._held_pops.wake(topic, pop_request.group, queue_id)
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
            await self._held_pops.wait(waiter, min(left, _ORDERLY_S) if pop_request.orderly else left)

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
            popped.remaining,
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
        """200054: report whether a message can be popped, now or within the poll time.

        A tag filter is applied. An SQL92 expression is only validated, as in RocketMQ.
        """
        self._validator.require_readable(connection, header.topic, header.queue_id, header.consumer_group)
        tags = self._validator.notification_tags(header)
        await self._pop_service.loaded()
        waiter = HeldPop(header.topic, header.consumer_group, header.queue_id, tags)
        loop = asyncio.get_running_loop()
        until = loop.time() + min(header.poll_time, MAX_WAIT_MS) / 1000
        try:
            while True:
                self._held_pops.arm(waiter)
                await self._pop_service.loaded()
                found = await self._pop_service.has_messages(
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
        """200055: return the number of pops of a group that wait for a queue (-1: for any queue)."""
        self._validator.require_readable(connection, header.topic, header.queue_id, header.consumer_group)
        count = self._held_pops.count(header.topic, header.consumer_group, header.queue_id)
        return response_to(command, header=PollingInfoResponseHeader(count))
