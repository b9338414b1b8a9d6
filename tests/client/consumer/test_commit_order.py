"""The order of offset commits, and the cost of an unreachable broker."""

from __future__ import annotations

import asyncio
from collections import Counter

from raptormq.client import MessageQueue
from raptormq.client.consumer.offset_commits import AT_A_TIME, commit_in_order
from raptormq.errors import ConnectError, ServerError

OFFSETS = {MessageQueue("t", broker, number): 10 * number for broker in ("a", "b") for number in range(3)}


async def test_one_queue_of_a_topic_is_stored_first_then_some_at_a_time_and_brokers_beside_each_other() -> None:
    offsets = {MessageQueue(t, broker, number): number for t in ("t", "u") for broker in "ab" for number in range(200)}
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    stored = dict[MessageQueue, int]()

    async def commit(queue: MessageQueue, offset: int) -> None:
        running[queue.broker_name] += 1
        running["all"] += 1
        if not any((queue.topic, queue.broker_name) == (known.topic, known.broker_name) for known in stored):
            assert running[queue.broker_name] == 1
        for name in running:
            most[name] = max(most[name], running[name])
        await asyncio.sleep(0)
        running[queue.broker_name] -= 1
        running["all"] -= 1
        stored[queue] = offset

    assert await commit_in_order(offsets, commit) == {}
    assert stored == offsets
    assert most == {"a": AT_A_TIME, "b": AT_A_TIME, "all": 2 * AT_A_TIME}


async def test_until_one_of_a_topic_is_stored_the_others_wait() -> None:
    running = 0

    async def commit(queue: MessageQueue, offset: int) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        raise ServerError(1, "not now")

    offsets = {MessageQueue("t", "a", number): number for number in range(5)}
    assert set(await commit_in_order(offsets, commit)) == set(offsets)


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
