"""Coroutines whose first step runs immediately, and that are awaited later."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.client.consumer.listener_call import EagerCoroutine


async def test_what_waits_for_nothing_is_done() -> None:
    async def adds() -> int:
        return 1 + 1

    begun = EagerCoroutine(adds())
    assert (begun.is_done, begun.result) == (True, 2)
    assert await begun == 2


async def test_what_fails_at_once_says_so_at_once() -> None:
    async def fails() -> None:
        raise ValueError("as planned")

    with pytest.raises(ValueError, match="as planned"):
        EagerCoroutine(fails())


@pytest.mark.parametrize("waits", [1, 2, 5])
async def test_what_waits_goes_on_where_it_was(waits: int) -> None:
    steps: list[int] = []

    async def waits_often() -> list[int]:
        for number in range(waits):
            steps.append(number)
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(answer.set_result, number)
            assert await answer == number
            await asyncio.sleep(0)
        return steps

    begun = EagerCoroutine(waits_often())
    assert (begun.is_done, steps) == (False, [0])
    assert await begun == list(range(waits))


async def test_what_it_waits_for_fails_in_it_and_it_may_go_on() -> None:
    async def forgives(answers: list[asyncio.Future[None]]) -> int:
        failures = 0
        for answer in answers:
            try:
                await answer
            except ValueError:
                failures += 1
        return failures

    loop = asyncio.get_running_loop()
    answers = [loop.create_future() for _ in range(3)]
    begun = EagerCoroutine(forgives(answers))
    for answer in answers:
        loop.call_soon(answer.set_exception, ValueError("as planned"))
    assert await begun == 3


async def test_a_failure_after_a_wait_is_raised() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("as planned")

    begun = EagerCoroutine(fails())
    with pytest.raises(ValueError, match="as planned"):
        await begun


async def test_a_time_out_ends_what_it_waits_for() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    begun = EagerCoroutine(waits())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await begun
    assert ended == ["cancelled"]
