"""The work queue: one run at a time for each key, no change missed, failures later and later."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from raptormq.errors import RaptorMQError
from raptormq_operator.queue import BACKOFF_FIRST_S, BACKOFF_MAX_S, Key, WorkQueue

A, B = Key("Topic", "shop", "a"), Key("Topic", "shop", "b")


@asynccontextmanager
async def working(queue: WorkQueue) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run())
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class Timers:
    """The loop's timers, run by hand: (delay, callback) of each that was set."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay: float, callback: Callable[[Key], None], key: Key) -> asyncio.Handle:
        self.set.append((delay, lambda: callback(key)))
        return asyncio.get_running_loop().call_soon(lambda: None)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def test_a_key_is_never_worked_on_twice_at_once_and_no_change_is_missed() -> None:
    running: Counter[Key] = Counter()
    runs: Counter[Key] = Counter()
    gate = asyncio.Event()

    async def reconcile(key: Key) -> None:
        running[key] += 1
        assert running[key] == 1
        runs[key] += 1
        await gate.wait()
        running[key] -= 1

    queue = WorkQueue(reconcile)
    async with working(queue):
        for key in (A, B, A, A):
            queue.add(key)
        await until(lambda: running.total() == 2)
        queue.add(A)
        queue.add(A)
        gate.set()
        await until(lambda: queue.idle)
    assert runs == {A: 2, B: 1}


async def test_a_failure_is_tried_again_later_and_later() -> None:
    timers = Timers()

    async def reconcile(_: Key) -> None:
        raise RaptorMQError("not yet")

    queue = WorkQueue(reconcile, vary=lambda: 0.5, call_later=timers.call_later)
    async with working(queue):
        queue.add(A)
        for count in range(1, 13):
            await until(lambda wanted=count: len(timers.set) == wanted)  # type: ignore[misc]
            timers.set[-1][1]()
    delays = [delay for delay, _ in timers.set[:12]]
    assert delays[:4] == pytest.approx([BACKOFF_FIRST_S, 1.0, 2.0, 4.0])
    assert delays[-1] == pytest.approx(BACKOFF_MAX_S)


async def test_success_forgets_earlier_failures() -> None:
    timers = Timers()
    outcomes = [RaptorMQError("a"), RaptorMQError("b"), None, RaptorMQError("c")]

    async def reconcile(_: Key) -> float | None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return 30.0

    queue = WorkQueue(reconcile, vary=lambda: 0.5, call_later=timers.call_later)
    async with working(queue):
        queue.add(A)
        for count in range(1, 5):
            await until(lambda wanted=count: len(timers.set) == wanted)  # type: ignore[misc]
            if count < 4:
                timers.set[-1][1]()
    assert [delay for delay, _ in timers.set] == pytest.approx([0.5, 1.0, 30.0, 0.5])


async def test_a_bug_in_one_object_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    done: list[Key] = []

    async def reconcile(key: Key) -> None:
        if key == A:
            raise ZeroDivisionError
        done.append(key)

    queue = WorkQueue(reconcile, workers=1)
    async with working(queue):
        queue.add(A)
        queue.add(B)
        await until(lambda: done == [B])
    assert "Topic shop/a: unexpected error" in caplog.text


async def test_delays_vary_by_a_tenth_either_way() -> None:
    for vary, expected in ((0.0, 90.0), (1.0, 110.0)):
        timers = Timers()

        async def reconcile(_: Key) -> float:
            return 100.0

        queue = WorkQueue(reconcile, vary=lambda value=vary: value, call_later=timers.call_later)  # type: ignore[misc]
        async with working(queue):
            queue.add(A)
            await until(lambda seen=timers: len(seen.set) == 1)  # type: ignore[misc]
        assert timers.set[0][0] == pytest.approx(expected)


async def test_a_change_comes_before_a_timer() -> None:
    runs: list[Key] = []

    async def reconcile(key: Key) -> float:
        runs.append(key)
        return 3600.0

    queue = WorkQueue(reconcile)
    async with working(queue):
        queue.add(A)
        await until(lambda: len(runs) == 1 and queue.idle)
        queue.add(A)
        await until(lambda: len(runs) == 2 and queue.idle)
    assert runs == [A, A]


async def test_it_knows_how_long_work_has_waited() -> None:
    async def reconcile(_: Key) -> None: ...

    queue = WorkQueue(reconcile)
    assert queue.waiting_seconds() == 0.0
    queue.add(A)
    begun = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() == begun:
        await asyncio.sleep(0.001)
    assert queue.waiting_seconds() > 0.0
