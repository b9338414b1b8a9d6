"""The messages that the application has received and not settled.

    begin --> interceptors: before_consume --> in hand --ack, retry, dead_letter, abandon--> interceptors: after_consume

The close of a consumer waits for the tasks and threads that hold unsettled messages, except for the calling one, which
cannot settle messages while it waits. See also: `consumer.delivery` is one message, `consumer.delivery_buffer` and
`consumer.pop_consumer` hand them out. There is no counterpart in Java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Generic, TypeVar

from raptormq.client.consumer.delivery import Delivery, ReceivedMessage, current_holder
from raptormq.client.interceptors import ConsumeChain, ConsumeStatus
from raptormq.logs import get_logger

log = get_logger(__name__)

_THREAD_LOOK_S = 0.05
"""Seconds between two looks whether a thread has ended, which causes no event."""

D = TypeVar("D", bound=Delivery)


class MessagesInHand(Generic[D]):
    """The unsettled messages of one started consumer."""

    def __init__(self, group: str, interceptors: ConsumeChain) -> None:
        self._group = group
        self._interceptors = interceptors
        self._deliveries: set[D] = set()
        self._settled = asyncio.Event()

    def __iter__(self) -> Iterator[D]:
        """Iterate over a snapshot."""
        return iter(list(self._deliveries))

    def __len__(self) -> int:
        return len(self._deliveries)

    def begin(self, delivery: D, received: ReceivedMessage) -> None:
        """Add a message that the application is about to receive."""
        self._deliveries.add(delivery)
        if self._interceptors:
            delivery.context = self._interceptors.begin(received.topic, [received], in_listener=False)

    def ended(self, delivery: D, status: ConsumeStatus) -> None:
        """Remove a message that is settled or abandoned."""
        self._deliveries.discard(delivery)
        if (context := delivery.context) is not None:
            is_again = status in {ConsumeStatus.RETRIED, ConsumeStatus.ABANDONED}
            self._interceptors.end(context, status, context.messages if is_again else ())
        self._settled.set()

    def disregard_caller(self) -> None:
        """Let `end` not wait for the messages of the calling task or thread, also if it has begun to wait."""
        caller = current_holder()
        for delivery in self._deliveries:
            if delivery.holder == caller:
                delivery.holder = None
        self._settled.set()

    async def end(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until other running tasks and threads have settled their messages, then abandon
        the rest.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        while holders := {
            each.holder for each in self._deliveries if each.holder is not None and not each.holder.done()
        }:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                log.warning(
                    "group %s: %d messages were not settled within %g s and are delivered again",
                    *(self._group, len(self._deliveries), timeout),
                )
                break
            self._settled.clear()
            settled = asyncio.ensure_future(self._settled.wait())
            tasks = {holder for holder in holders if isinstance(holder, asyncio.Task)}
            if len(tasks) < len(holders):
                left = min(left, _THREAD_LOOK_S)
            await asyncio.wait({settled, *tasks}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            settled.cancel()
        for delivery in self:
            delivery.abandon()
