"""Listeners that are cancelled by themselves, by an awaited task or by the end of the consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import (
    AdminClient,
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from raptormq.client.consumer.listener_call import Listener as ListenerFunction
from raptormq.client.consumer.listener_pool import ListenerPool
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually
from tests.client.listener_pools import listening, message
from tests.client.recording_listener import Listener


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
    bad: ListenerFunction, caplog: pytest.LogCaptureFixture
) -> None:
    async def good(messages: list[MessageExt]) -> None:
        await asyncio.sleep(0)

    topics: dict[str, ListenerFunction] = {"good": good}
    async with listening(bad, config=ConsumerConfig(concurrency=1), later=topics) as (calls, reader, giving, hand_out):
        hand_out([message(0), message(1), message(2, "good")])
        async with asyncio.timeout(5):
            await reader.until(3)
        assert [each.queue_offset for each in giving.given] == [0, 1]
        assert [worker.cancelling() for worker in calls.workers] == [0]
    assert "listener cancelled" in caplog.text


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
    """Close the event loop like `asyncio.run`, for programs that do not stop their consumers."""
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


async def test_who_cancels_everything_ends_the_workers_too_if_their_listeners_fail_then() -> None:
    before, started = asyncio.all_tasks(), asyncio.Event()

    async def listener(messages: list[MessageExt]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("as planned")

    async with listening(listener, config=ConsumerConfig(concurrency=1)) as (calls, _, giving, hand_out):
        hand_out([message(0), message(1)])
        await started.wait()
        for task in asyncio.all_tasks() - before:
            task.cancel()
        assert await ends(all_ended(calls))
        assert [each.queue_offset for each in giving.given] == [0]


class Stubborn:
    """A listener that ignores cancellation, for example because it retries until a database responds."""

    def __init__(self) -> None:
        self.started, self.may_end = asyncio.Event(), asyncio.Event()
        self.fails = False

    def __enter__(self) -> None:
        """Continue until the end of the block."""

    def __exit__(self, *_error: object) -> None:
        self.may_end.set()

    async def __call__(self, messages: list[MessageExt]) -> None:
        self.started.set()
        while not self.may_end.is_set():
            with suppress(asyncio.CancelledError):
                await self.may_end.wait()
        if self.fails:
            raise ValueError("as planned")


async def ends(work: Coroutine[Any, Any, None]) -> bool:
    """Return whether `work` ends. A task that waits for a cancelled listener cannot be cancelled either."""
    ended, _ = await asyncio.wait([asyncio.create_task(work)], timeout=20)
    return bool(ended)


async def test_stopping_leaves_a_listener_alone_that_goes_on_and_finishes_nothing_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stubborn = Stubborn()
    async with listening(stubborn, config=ConsumerConfig(concurrency=2)) as (calls, reader, giving, hand_out):
        with stubborn:
            hand_out([message(0), message(1)])
            await eventually(lambda: reader.calls.count == 2)
            assert await ends(calls.stop(0.01))
            assert reader.calls.count == 0  # the handover of the queue does not wait for it
            assert (reader.process_queue.commit_offset, giving.given) == (0, [])
            assert all(f"listener {number} of g ignores its cancellation" in caplog.text for number in range(2))
            assert "its messages of topic t are delivered again" in caplog.text
        assert await ends(all_ended(calls))
        assert reader.calls.count == 0


async def all_ended(calls: ListenerPool) -> None:
    await asyncio.wait(calls.workers)


async def test_a_listener_that_was_left_alone_and_fails_gives_nothing_back() -> None:
    stubborn = Stubborn()
    stubborn.fails = True
    async with listening(stubborn) as (calls, reader, giving, hand_out):
        with stubborn:
            hand_out([message(0)])
            await stubborn.started.wait()
            assert await ends(calls.stop(0.01))
            reader.process_queue.dropped = True
        assert await ends(all_ended(calls))
        assert (reader.finished_offsets, giving.given) == ([], [])


async def test_a_consumer_leaves_its_group_though_a_listener_goes_on_and_its_message_comes_again(
    tmp_path: Path,
) -> None:
    stubborn, again = Stubborn(), Listener()
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, concurrency=1)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        consumer = PushConsumer("g", client_config=ClientConfig(cluster.name_servers, close_timeout=0.1), config=config)
        consumer.subscribe("t", "*", stubborn)
        await consumer.start()
        with stubborn:
            async with Producer(name_servers=cluster.name_servers) as producer:
                await producer.send(Message("t", b"x"))
            await stubborn.started.wait()
            assert await ends(consumer.stop())
            async with AdminClient(name_servers=cluster.name_servers) as admin:
                assert await admin.group_connections("g") is None
            async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
                consumer.subscribe("t", "*", again)
                await again.until(1)
            assert again.bodies == [b"x"]
