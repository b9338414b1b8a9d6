"""Dead letters of popped messages that were delivered as often as their group allows, and never settled.

A broker delivers a message again whenever its invisible time ends, without a limit. The limit is kept by the client
that pops the message: instead of delivering the message to the application, the client stores it as a dead letter and
acknowledges it.

    delivered 1 + max_reconsume_times times, popped again --> %DLQ%group --> acknowledged

If storing or acknowledging fails, the message becomes visible after its invisible time, and the member that pops it
tries again.

See also: `consumer.popped_message` makes dead letters of messages that the application retries too often. Source: the
proxy of RocketMQ 5 (`PopMessageResultFilterImpl`, `ConsumerProcessor.popMessage`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from raptormq.client.background import background, cancel_all
from raptormq.client.consumer.delayed_retry import DelayedRetry
from raptormq.client.consumer.pop_requests import Popped, PopRequests
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger

log = get_logger(__name__)


class ExhaustedMessages:
    """Stores the exhausted messages of one started `PopConsumer` as dead letters. Runs in background tasks, because the
    messages stay popped even if the application cancels its call of `receive`.

    Args:
        group: the consumer group.
        max_reconsume_times: maximum number of redeliveries.
        requests: used to acknowledge the messages.
        retries: used to store the dead letters.
    """

    def __init__(self, group: str, max_reconsume_times: int, requests: PopRequests, retries: DelayedRetry) -> None:
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._requests = requests
        self._retries = retries
        self._tasks: set[asyncio.Task[None]] = set()

    def without(self, popped: Iterable[Popped]) -> list[Popped]:
        """Return the messages that may be delivered, and make dead letters of the others."""
        delivered: list[Popped] = []
        for each in popped:
            if each.message.reconsume_times <= self._max_reconsume_times:
                delivered.append(each)
                continue
            task = background(self._give_up(each), f"dead letter of group {self._group}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return delivered

    async def end(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for dead letters that are being stored."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        await cancel_all(self._tasks)

    async def _give_up(self, popped: Popped) -> None:
        try:
            async with asyncio.timeout(popped.handle.invisible_time / 1000):  # then another member may store it
                await self._retries.give_up_exhausted(popped.message)
                await self._requests.ack(popped)
        except (RaptorMQError, TimeoutError) as error:
            log.warning(
                "group %s: message %s is no dead letter yet; the next pop after its invisible time tries again: %s",
                *(self._group, popped.message.message_id, str(error) or "its invisible time is over"),
            )
