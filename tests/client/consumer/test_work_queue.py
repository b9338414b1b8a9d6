"""Order in which idle workers are woken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from raptormq.client.consumer.work_queue import TURN_S, WorkQueue

Done = list[tuple[int, int]]
"""Work items with their worker."""


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def workers(
    line: WorkQueue[int], count: int, done: Done, work: Callable[[], Awaitable[None]]
) -> list[asyncio.Task[None]]:
    async def run(number: int) -> None:
        while True:
            taken = await line.take()
            await work()
            done.append((number, taken))

    return [asyncio.create_task(run(number)) for number in range(count)]


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_worker_does_all_that_waits_for_nothing() -> None:
    async def nothing() -> None: ...

    line, done = WorkQueue[int](), Done()
    tasks = workers(line, 3, done, nothing)
    await settled()
    for number in range(5):
        line.put(number)
    await settled()
    assert done == [(0, number) for number in range(5)]
    line.put(5)
    await settled()
    assert done[-1] == (1, 5)
    await end(tasks)


async def test_who_has_to_wait_wakes_the_next() -> None:
    gate, busy = asyncio.Event(), 0

    async def wait() -> None:
        nonlocal busy
        busy += 1
        line.share()
        await gate.wait()

    line, done = WorkQueue[int](), Done()
    tasks = workers(line, 3, done, wait)
    await settled()
    for number in range(5):
        line.put(number)
    await settled()
    assert (busy, done) == (3, [])
    gate.set()
    await settled()
    assert sorted(taken for _, taken in done) == list(range(5))
    await end(tasks)


@pytest.mark.parametrize("woken", [False, True])
async def test_a_cancelled_worker_is_passed_over(woken: bool) -> None:
    async def nothing() -> None: ...

    line, done = WorkQueue[int](), Done()
    tasks = workers(line, 2, done, nothing)
    await settled()
    if woken:
        line.put(0)
    tasks[0].cancel()
    await settled()
    line.put(1)
    await settled()
    assert [taken for _, taken in done] == ([0, 1] if woken else [1])
    await end(tasks)


async def test_workers_that_never_wait_let_the_others_have_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    async def work() -> None:
        nonlocal now
        now += TURN_S / 4
        line.share()  # so all workers are awake

    line: WorkQueue[int] = WorkQueue()
    done: Done = []
    tasks = workers(line, 4, done, work)
    await settled()
    for number in range(40):
        line.put(number)
    steps = [0]
    while len(done) < 40:
        await asyncio.sleep(0)
        steps.append(len(done))
    await end(tasks)
    assert [taken for _, taken in done] == list(range(40))
    assert max(after - before for before, after in pairwise(steps)) <= 6
