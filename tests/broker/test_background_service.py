"""Background services stop on request, at any point of their work."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from raptormq.broker.delay.delivery import DelayedDelivery
from raptormq.broker.delay.timer_delivery import TimerDelivery
from raptormq.broker.service import cancel_and_wait
from raptormq.transport.timing import wait_event
from tests.broker.harness import assembly_of, connected, running
from tests.clock import Clock

HANG_S = 10.0


@pytest.mark.parametrize("seconds", [0.0, 60.0, None])
@pytest.mark.parametrize("turns", range(5))
async def test_a_task_ends_though_what_it_waits_for_comes_in_the_same_turns(turns: int, seconds: float | None) -> None:
    event = asyncio.Event()

    async def work() -> None:
        while True:
            await wait_event(event, seconds)
            event.clear()
            await asyncio.sleep(0)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    event.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(HANG_S):
        await cancel_and_wait(task)
    assert task.cancelled()


async def test_who_waits_for_the_end_of_a_task_can_be_cancelled() -> None:
    async def lingering() -> None:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    released = asyncio.Event()
    task = asyncio.ensure_future(lingering())
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await cancel_and_wait(task)
    released.set()
    await task


async def test_what_made_a_task_fail_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("full")

    task = asyncio.ensure_future(fail())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert "a background task had failed: full" in caplog.text


async def test_the_wait_ends_with_the_time() -> None:
    async with asyncio.timeout(HANG_S):
        await wait_event(asyncio.Event(), 0.001)


@pytest.mark.parametrize(
    ("kind", "properties"), [(TimerDelivery, "TIMER_DELAY_MS\x0160000\x02"), (DelayedDelivery, "DELAY\x015\x02")]
)
async def test_a_delivery_stops_in_any_turn_after_an_arrival(
    tmp_path: Path, kind: type[TimerDelivery | DelayedDelivery], properties: str
) -> None:
    """A broker that stopped in such an iteration hung once in several thousand test runs."""
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        clock.hold()
        assert (await peer.send("t", b"waits", 0, properties)).code == 0
        (delivery,) = [each for each in assembly_of(broker).services if isinstance(each, kind)]
        for turns in range(12):
            delivery._arrived.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(HANG_S):
                await delivery.stop()
            delivery.start()
