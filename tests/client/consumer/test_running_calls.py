"""Waiting for the end of listener calls."""

from __future__ import annotations

import asyncio

from raptormq.client.consumer.process_queue import RunningCalls


async def test_nothing_to_wait_for() -> None:
    assert await RunningCalls().wait_idle(0)


async def test_all_who_wait_go_on_with_the_end_of_the_last_call() -> None:
    calls = RunningCalls()
    calls.begin()
    calls.begin()
    waiting = [asyncio.create_task(calls.wait_idle(30)) for _ in range(2)]
    calls.end()
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    calls.end()
    assert await asyncio.gather(*waiting) == [True, True]


async def test_waiting_ends_and_can_begin_again() -> None:
    calls = RunningCalls()
    calls.begin()
    assert not await calls.wait_idle(0.01)
    calls.end()
    assert await calls.wait_idle(0)
    calls.begin()
    assert not await calls.wait_idle(0)
