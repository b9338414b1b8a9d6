"""The order in which progress is stored, and what an unreachable broker costs."""

from __future__ import annotations

import asyncio
from collections import Counter

from raptormq.client import MessageQueue
from raptormq.client.commit_order import commit_in_order
from raptormq.errors import ConnectError, ServerError

OFFSETS = {MessageQueue("t", broker, number): 10 * number for broker in ("a", "b") for number in range(3)}


async def test_queues_of_one_broker_are_stored_one_after_the_other() -> None:
    running: Counter[str] = Counter()
    together, stored = 0, dict[MessageQueue, int]()

    async def commit(queue: MessageQueue, offset: int) -> None:
        nonlocal together
        running[queue.broker_name] += 1
        assert running[queue.broker_name] == 1
        together = max(together, running.total())
        await asyncio.sleep(0)
        running[queue.broker_name] -= 1
        stored[queue] = offset

    assert await commit_in_order(OFFSETS, commit) == {}
    assert stored == OFFSETS
    assert together == 2


async def test_a_broker_that_cannot_be_reached_is_asked_once() -> None:
    asked: list[MessageQueue] = []

    async def commit(queue: MessageQueue, offset: int) -> None:
        asked.append(queue)
        if queue.broker_name == "a":
            raise ConnectError("gone")

    failures = await commit_in_order(OFFSETS, commit)
    assert sorted(failures) == [queue for queue in sorted(OFFSETS) if queue.broker_name == "a"]
    assert [queue.broker_name for queue in sorted(asked)] == ["a", "b", "b", "b"]


async def test_a_refusal_concerns_its_queue_only() -> None:
    async def commit(queue: MessageQueue, offset: int) -> None:
        if offset == 10:
            raise ServerError(29, "no such queue")

    failures = await commit_in_order(OFFSETS, commit)
    assert sorted(failures) == [MessageQueue("t", "a", 1), MessageQueue("t", "b", 1)]
