"""Lanes: one run at a time for each key, no missed change, increasing delays after failures, and independent keys."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY

from raptormq.errors import RaptorMQError
from raptormq_operator.lanes import BACKOFF_FIRST_S, BACKOFF_MAX_S, Key, Lanes, bounded

A, B = Key("BrokerCluster", "shop", "a"), Key("BrokerCluster", "shop", "b")


@asynccontextmanager
async def working(queue: Lanes) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run())
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class Timers:
    """Replacement for the timers of the event loop, run by the test: (delay, callback) of each timer."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], object]]] = []
        self.now = 0.0

    def fire(self) -> None:
        """Run the callback of the last timer."""
        delay, callback = self.set[-1]
        self.now += delay
        callback()

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

    async def reconcile(key: Key, _: bool) -> None:
        running[key] += 1
        assert running[key] == 1
        runs[key] += 1
        await gate.wait()
        running[key] -= 1

    queue = Lanes(reconcile)
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

    async def reconcile(_: Key, __: bool) -> None:
        raise RaptorMQError("it is not due yet")

    queue = Lanes(reconcile, vary=lambda: 0.5, call_later=timers.call_later, clock=lambda: timers.now)
    async with working(queue):
        queue.add(A)
        for count in range(1, 13):
            await until(lambda wanted=count: len(timers.set) == wanted)  # type: ignore[misc]
            timers.fire()
    delays = [delay for delay, _ in timers.set[:12]]
    assert delays[:4] == pytest.approx([BACKOFF_FIRST_S, 1.0, 2.0, 4.0])
    assert delays[-1] == pytest.approx(BACKOFF_MAX_S)


async def test_success_forgets_earlier_failures() -> None:
    timers = Timers()
    outcomes = [RaptorMQError("a"), RaptorMQError("b"), None, RaptorMQError("c")]

    async def reconcile(_: Key, __: bool) -> float | None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return 30.0

    queue = Lanes(reconcile, vary=lambda: 0.5, call_later=timers.call_later, clock=lambda: timers.now)
    async with working(queue):
        queue.add(A)
        for count in range(1, 5):
            await until(lambda wanted=count: len(timers.set) == wanted)  # type: ignore[misc]
            if count < 4:
                timers.fire()
    assert [delay for delay, _ in timers.set] == pytest.approx([0.5, 1.0, 30.0, 0.5])


async def test_a_bug_in_one_object_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    done: list[Key] = []

    async def reconcile(key: Key, _: bool) -> None:
        if key == A:
            raise ZeroDivisionError
        done.append(key)

    queue = Lanes(reconcile)
    async with working(queue):
        queue.add(A)
        queue.add(B)
        await until(lambda: done == [B])
    assert "BrokerCluster shop/a: unexpected error" in caplog.text


async def test_delays_vary_by_a_tenth_either_way() -> None:
    for vary, expected in ((0.0, 90.0), (1.0, 110.0)):
        timers = Timers()

        async def reconcile(_: Key, __: bool) -> float:
            return 100.0

        queue = Lanes(reconcile, vary=lambda value=vary: value, call_later=timers.call_later)  # type: ignore[misc]
        async with working(queue):
            queue.add(A)
            await until(lambda seen=timers: len(seen.set) == 1)  # type: ignore[misc]
        assert timers.set[0][0] == pytest.approx(expected)


async def test_a_change_comes_before_a_timer() -> None:
    runs: list[Key] = []

    async def reconcile(key: Key, _: bool) -> float:
        runs.append(key)
        return 3600.0

    queue = Lanes(reconcile)
    async with working(queue):
        queue.add(A)
        await until(lambda: len(runs) == 1 and queue.idle)
        queue.add(A)
        await until(lambda: len(runs) == 2 and queue.idle)
    assert runs == [A, A]


async def test_a_hundred_that_wait_for_ever_hold_nobody_up() -> None:
    silent = asyncio.Event()
    done: list[Key] = []

    async def reconcile(key: Key, _: bool) -> None:
        if key != A:
            await silent.wait()
        done.append(key)

    lanes = Lanes(reconcile)
    async with working(lanes):
        for number in range(100):
            lanes.add(Key("BrokerCluster", "sick", str(number)))
        lanes.add(A)
        await until(lambda: done == [A])
        assert not lanes.idle


async def test_a_run_that_never_ends_is_given_up() -> None:
    timers = Timers()

    async def reconcile(_: Key, __: bool) -> None:
        await asyncio.Event().wait()

    lanes = Lanes(reconcile, run_limit=0.0, call_later=timers.call_later)
    async with working(lanes):
        lanes.add(A)
        await until(lambda: len(timers.set) == 1)


async def test_a_change_is_told_from_a_look_until_it_was_acted_on() -> None:
    timers = Timers()
    runs: list[bool] = []

    async def reconcile(_: Key, changed: bool) -> float:
        runs.append(changed)
        if len(runs) == 1:
            raise RaptorMQError("it is not due yet")
        return 5.0

    lanes = Lanes(reconcile, call_later=timers.call_later)
    async with working(lanes):
        lanes.add(A)
        for count in (1, 2):
            await until(lambda wanted=count: len(timers.set) == wanted)  # type: ignore[misc]
            timers.fire()
        await until(lambda: len(timers.set) == 3)
    assert runs == [True, True, False]


async def test_a_few_calls_at_a_time_and_results_in_order() -> None:
    under_way = most = 0

    async def call(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return number

    assert await bounded(map(call, range(20)), 3) == list(range(20))
    assert most == 3


async def test_the_first_error_ends_the_rest() -> None:
    begun: list[int] = []

    async def call(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise RaptorMQError("no")
        await asyncio.sleep(0)

    with pytest.raises(RaptorMQError, match="no"):
        await bounded([call(number) for number in range(20)], 2)
    assert len(begun) < 20


async def test_what_is_under_way_and_when_it_was_looked_at_are_metrics() -> None:
    def value(name: str) -> float | None:
        labels = {"kind": A.kind, "namespace": A.namespace, "name": A.name}
        return REGISTRY.get_sample_value(f"raptormq_operator_{name}_seconds", labels)

    gate = asyncio.Event()

    async def reconcile(_: Key, __: bool) -> float:
        await gate.wait()
        return 100.0

    queue = Lanes(reconcile)
    async with working(queue):
        assert value("reconciliation_in_progress_since") is None
        queue.add(A)
        await until(lambda: value("reconciliation_in_progress_since") is not None)
        assert REGISTRY.get_sample_value("raptormq_operator_queue_depth") == 1
        assert value("last_look_timestamp") is None
        gate.set()
        await until(lambda: queue.idle)
        assert value("reconciliation_in_progress_since") is None
        assert value("last_look_timestamp") is not None
        assert REGISTRY.get_sample_value("raptormq_operator_queue_depth") == 0
        gate.clear()
        queue.add(A)
        await until(lambda: value("reconciliation_in_progress_since") is not None)
    assert REGISTRY.get_sample_value("raptormq_operator_queue_depth") == 0, (
        "the lanes have ended while work was in progress"
    )
    assert value("last_look_timestamp") is None, "the next leader reports it"
