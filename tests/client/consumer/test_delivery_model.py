"""Deliveries in any order compared with a model: the committed offset is that of the first unsettled message."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from raptormq.client import MessageQueue, Retry, RetryKind
from raptormq.client.consumer.delayed_retry import DelayedRetry
from raptormq.client.consumer.delivery import DeliveryState, ReceivedMessage
from raptormq.client.consumer.delivery_buffer import DeliveryBuffer
from raptormq.client.consumer.process_queue import ProcessQueue, RunningCalls
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.interceptors import ConsumeChain
from raptormq.errors import ClientError, NoRoute
from raptormq.protocol.message import MessageExt

QUEUE = MessageQueue("t", "broker-0", 0)


class Retries:
    """Brokers that accept or refuse messages."""

    def __init__(self) -> None:
        self.is_down = False

    def check(self, after: float | None) -> None:
        """Accept all calls."""

    async def retry(self, message: MessageExt, after: float | None) -> Retry:
        await asyncio.sleep(0)
        if self.is_down:
            raise NoRoute("down")
        return Retry(RetryKind.AT_ONCE)

    async def dead_letter(self, message: MessageExt, reason: str) -> None:
        await self.retry(message, None)


class Queue:
    """A reader with fetches that the test determines."""

    def __init__(self, buffer: DeliveryBuffer) -> None:
        self._buffer = buffer
        self.process_queue = ProcessQueue(0)
        self.reader = cast(
            "QueueReader",
            SimpleNamespace(
                calls=RunningCalls(),
                is_paused=False,
                queue=QUEUE,
                is_full=False,
                complete=lambda of, offset: of.complete(offset),
            ),
        )

    def fetch(self, skipped: int) -> None:
        """Fetch one message after some with unwanted tags."""
        offset = self.process_queue.next_offset + skipped
        self.process_queue.add(offset, 1)
        message = MessageExt("t", b"x", {}, QUEUE, offset, 0, f"id {offset}", "", 0, 0)
        self._buffer.submit(self.reader, self.process_queue, [message])

    def hand_over(self) -> None:
        """Give the queue up, and continue from the committed offset."""
        before, self.process_queue = self.process_queue, ProcessQueue(self.process_queue.commit_offset)
        before.revoked = before.dropped = True


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*["fetch", "take", "ack"] * 2, "retry", "letter", "down", "up", "hand over", "cancelled"]),
        st.integers(0, 5),
    ),
    min_size=20,
    max_size=80,
)


async def settle(message: ReceivedMessage, verb: str, retries: Retries, *, is_current: bool) -> bool:
    """Return whether the message is settled by this call."""
    try:
        if verb == "ack":
            settled = await message.ack()
        elif verb == "letter":
            settled = await message.dead_letter("reason")
        else:
            settled = (await message.retry()).kind is not RetryKind.HANDED_OVER
    except NoRoute:
        assert retries.is_down
        assert is_current
        return False
    except ClientError:
        assert message._delivery.state is DeliveryState.SETTLED
        return False
    assert settled is is_current
    return settled


async def run(steps: list[Step]) -> None:
    retries = Retries()
    buffer = DeliveryBuffer("g", cast("DelayedRetry", retries), ConsumeChain("g", ()))
    queue = Queue(buffer)
    fetched: dict[int, bool] = {}
    """Whether each fetched message of the current assignment is settled, by offset."""
    hand: list[tuple[ReceivedMessage, ProcessQueue]] = []
    for verb, number in steps:
        index = number % len(hand) if hand else 0
        match verb:
            case "fetch":
                offset = queue.process_queue.next_offset + number
                queue.fetch(number)
                fetched[offset] = False
            case "take" if buffer._waiting and any(not each.process_queue.is_closed for each in buffer._waiting):
                hand += [(message, queue.process_queue) for message in await buffer.take(number + 1, 0.0)]
            case "down" | "up":
                retries.is_down = verb == "down"
            case "hand over":
                queue.hand_over()
                fetched.clear()
            case "cancelled" if hand:
                call = asyncio.ensure_future(hand[index][0].retry())
                await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call])
                if not call.cancelled():  # it was settled before, or belongs to an earlier assignment
                    assert isinstance(call.exception(), ClientError) or call.result().kind is RetryKind.HANDED_OVER
            case "ack" | "retry" | "letter" if hand:
                message, process_queue = hand[index]
                is_current = process_queue is queue.process_queue
                if await settle(message, verb, retries, is_current=is_current) and is_current:
                    fetched[message.queue_offset] = True
        unsettled = [offset for offset, done in fetched.items() if not done]
        assert queue.process_queue.commit_offset == min(unsettled, default=queue.process_queue.next_offset)
        in_hand = [each for each, _ in hand if each._delivery.state is DeliveryState.OPEN]
        assert queue.reader.calls.count == len(in_hand)
    await buffer.stop(0.0)
    assert queue.reader.calls.count == 0
    assert await buffer.take(1, 0.0) == []


@given(STEPS)
def test_the_committed_offset_is_the_smallest_unfinished_one(steps: list[Step]) -> None:
    asyncio.run(run(steps))
