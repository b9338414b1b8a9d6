"""The limit of bytes in flight: never exceeded, granted in order, and released after a cancellation."""

from __future__ import annotations

import asyncio
import random

import pytest

from raptormq.client.producer.in_flight import InFlight


async def test_who_does_not_fit_waits_and_is_let_in_in_order() -> None:
    budget = InFlight(10)
    assert budget.try_acquire(8)
    order: list[int] = []

    async def take(size: int) -> None:
        await budget.acquire(size)
        order.append(size)

    waiting = [asyncio.create_task(take(size)) for size in (5, 1, 4)]
    await asyncio.sleep(0)
    assert order == []  # the 1 would fit, but an earlier request waits
    assert not budget.try_acquire(1)
    budget.release(8)
    await asyncio.gather(*waiting)
    assert order == [5, 1, 4]
    assert budget.bytes == 10


async def test_what_is_larger_than_the_budget_goes_alone() -> None:
    budget = InFlight(10)
    assert budget.try_acquire(1)
    large = asyncio.create_task(budget.acquire(99))
    await asyncio.sleep(0)
    assert not large.done()
    budget.release(1)
    await large
    assert not budget.try_acquire(1)
    budget.release(99)
    assert budget.try_acquire(1)


async def test_who_gives_up_makes_room_for_the_next() -> None:
    budget = InFlight(10)
    assert budget.try_acquire(6)
    large, small = asyncio.create_task(budget.acquire(9)), asyncio.create_task(budget.acquire(4))
    await asyncio.sleep(0)
    large.cancel()
    await small
    assert budget.bytes == 10


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_is_cancelled_the_budget_holds(seed: int) -> None:
    dice = random.Random(seed)
    budget = InFlight(100)
    most = 0

    async def use() -> None:
        nonlocal most
        size = dice.randint(1, 60)
        await budget.acquire(size)
        try:
            most = max(most, budget.bytes)
            for _ in range(dice.randint(0, 3)):
                await asyncio.sleep(0)
        finally:
            budget.release(size)

    tasks = [asyncio.create_task(use()) for _ in range(200)]
    while any(not task.done() for task in tasks):
        dice.choice(tasks).cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert budget.bytes == 0
    assert most <= 100
    assert budget.try_acquire(100)
