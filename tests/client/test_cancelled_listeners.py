"""Listeners that are cancelled, by themselves, by what they wait for or by the end of the consumer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from raptormq.client import ConsumerConfig, ConsumeResult, MessageExt
from raptormq.client.listening import Listener
from tests.client.lone_listening import listening, message


async def awaits_what_was_cancelled(messages: list[MessageExt]) -> ConsumeResult | None:
    other = asyncio.get_running_loop().create_future()
    other.cancel()
    await other
    return None


async def test_a_cancellation_from_inside_a_listener_leaves_its_worker_alive() -> None:
    async with listening(awaits_what_was_cancelled, config=ConsumerConfig(concurrency=1)) as (_, reader, giving, hand):
        hand([message(0), message(1)])
        async with asyncio.timeout(5):
            await reader.until(2)
        assert [each.queue_offset for each in giving.given] == [0, 1]


async def cancels_itself_and_waits(messages: list[MessageExt]) -> ConsumeResult | None:
    cancel_this_task()
    await asyncio.Event().wait()
    return None


async def cancels_itself_and_returns(messages: list[MessageExt]) -> ConsumeResult | None:
    cancel_this_task()
    return None


async def cancels_itself_and_fails(messages: list[MessageExt]) -> ConsumeResult | None:
    cancel_this_task()
    raise ValueError("as planned")


async def cancels_itself_more_than_once(messages: list[MessageExt]) -> ConsumeResult | None:
    try:
        await cancels_itself_and_waits(messages)
    finally:
        cancel_this_task()
    return None


async def is_cancelled_by_a_watchdog(messages: list[MessageExt]) -> ConsumeResult | None:
    asyncio.get_running_loop().call_soon(this_task().cancel)
    await asyncio.Event().wait()
    return None


def this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def cancel_this_task() -> None:
    this_task().cancel()


@pytest.mark.parametrize(
    "bad",
    [
        cancels_itself_and_waits,
        cancels_itself_and_returns,
        cancels_itself_and_fails,
        cancels_itself_more_than_once,
        is_cancelled_by_a_watchdog,
    ],
)
async def test_a_listener_that_cancels_its_own_task_fails_and_its_worker_goes_on(
    bad: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    async def good(messages: list[MessageExt]) -> None:
        await asyncio.sleep(0)

    topics: dict[str, Listener] = {"good": good}
    async with listening(bad, config=ConsumerConfig(concurrency=1), later=topics) as (calls, reader, giving, hand_out):
        hand_out([message(0), message(1), message(2, "good")])
        async with asyncio.timeout(5):
            await reader.until(3)
        assert [each.queue_offset for each in giving.given] == [0, 1]
        assert [worker.cancelling() for worker in calls.workers] == [0]
    assert "a listener of group g" in caplog.text


async def test_a_task_that_a_listener_cancelled_and_that_goes_on_is_as_before() -> None:
    async def listener(messages: list[MessageExt]) -> None:
        if messages[0].queue_offset == 0:
            with suppress(asyncio.CancelledError):
                await cancels_itself_and_waits(messages)
        else:
            await awaits_what_was_cancelled(messages)

    async with listening(listener, config=ConsumerConfig(concurrency=1)) as (_, reader, giving, hand_out):
        hand_out([message(0), message(1)])
        async with asyncio.timeout(5):
            await reader.until(2)
        assert [each.queue_offset for each in giving.given] == [1]


async def test_who_cancels_everything_ends_the_workers_too() -> None:
    """As `asyncio.run` does, for programs that do not stop their consumers."""
    before, started = asyncio.all_tasks(), asyncio.Event()

    async def listener(messages: list[MessageExt]) -> None:
        started.set()
        await asyncio.Event().wait()

    async with listening(listener, config=ConsumerConfig(concurrency=1)) as (calls, reader, giving, hand_out):
        hand_out([message(0)])
        await started.wait()
        for task in asyncio.all_tasks() - before:
            task.cancel()
        await asyncio.wait(calls.workers)
        assert [worker.cancelled() for worker in calls.workers] == [True]
        assert (reader.finished_offsets, giving.given) == ([], [])
