"""Plain functions as listeners in threads: their errors and their end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from raptormq.client import ConsumerConfig, MessageExt, in_executor
from tests.client.listener_pools import listening, message


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


class Hanging:
    """A function that runs until the end of the `with` block."""

    def __init__(self) -> None:
        self.started, self._may_end = threading.Event(), threading.Event()
        self.called: list[int] = []

    def __call__(self, messages: list[MessageExt]) -> None:
        self.called.append(messages[0].queue_offset)
        self.started.set()
        assert self._may_end.wait(60)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._may_end.set()


async def test_a_function_that_raises_stop_iteration_fails_and_its_worker_goes_on(
    threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(_: list[MessageExt]) -> None:
        next(iter(()))

    config = ConsumerConfig(concurrency=1)
    async with listening(in_executor(bad, threads), config=config) as (_, reader, giving, hand_out):
        hand_out([message(0), message(1)])
        async with asyncio.timeout(10):
            await reader.until(2)
        assert [each.queue_offset for each in giving.given] == [0, 1]
    assert "StopIteration" in caplog.text


async def test_stopping_leaves_a_function_alone_that_has_exceeded_its_timeout(threads: ThreadPoolExecutor) -> None:
    hanging = Hanging()
    config = ConsumerConfig(concurrency=1, consume_timeout=0.05)
    async with listening(in_executor(hanging, threads), config=config) as (calls, reader, giving, hand_out):
        with hanging:
            hand_out([message(0)])
            assert await asyncio.to_thread(hanging.started.wait, 60)
            await calls.stop(0.5)  # `consume_timeout` cancels the call before, and this cancels it again
            assert not calls.workers[0].done()
            assert reader.calls.is_abandoned  # so its queue is not unlocked
        await asyncio.wait(calls.workers)
        assert (reader.finished_offsets, giving.given) == ([], [])


async def test_a_function_that_no_thread_has_begun_is_not_waited_for(threads: ThreadPoolExecutor) -> None:
    hanging = Hanging()
    config = ConsumerConfig(concurrency=2, consume_timeout=0.05)
    async with listening(in_executor(hanging, threads), config=config) as (_, reader, giving, hand_out):
        with hanging:
            hand_out([message(0), message(1)])
            async with asyncio.timeout(10):
                await reader.until(1)
            assert [each.queue_offset for each in giving.given] == [1]
        await reader.until(2)
    assert hanging.called == [0]
