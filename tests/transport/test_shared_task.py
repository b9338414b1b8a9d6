"""Many callers of one task: each has its own time limit, and the event loop is not blocked."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.errors import ClientClosed, ConnectError
from raptormq.transport.requests import BUCKET_S, COMPLETED_PER_TURN
from raptormq.transport.shared_task import SharedTask

MANY = 10 * COMPLETED_PER_TURN


async def most_per_turn(callers: list[asyncio.Task[str]]) -> int:
    """Wait for all callers. Return the largest number that ended in one iteration of the event loop."""
    most = before = 0
    while before < len(callers):
        await asyncio.sleep(0)
        ended = sum(map(asyncio.Task.done, callers))
        most, before = max(most, ended - before), ended
    return most


async def never() -> str:
    await asyncio.Event().wait()
    return ""


async def test_callers_whose_time_is_over_are_woken_in_turns_and_the_task_goes_on() -> None:
    shared = SharedTask(never(), "t", "closed")
    deadline = asyncio.get_running_loop().time() + 20 * BUCKET_S  # all must wait before it, also on a busy machine
    callers = [asyncio.create_task(shared.wait(deadline)) for _ in range(MANY)]
    assert 0 < await most_per_turn(callers) <= COMPLETED_PER_TURN
    assert all(isinstance(caller.exception(), TimeoutError) for caller in callers)
    assert not shared.task.done()
    shared.task.cancel()


@pytest.mark.parametrize("error", [None, ConnectError("nobody")])
async def test_the_end_reaches_all_callers_in_turns(error: ConnectError | None) -> None:
    gate = asyncio.Event()

    async def work() -> str:
        await gate.wait()
        if error is not None:
            raise error
        return "made"

    shared = SharedTask(work(), "t", "closed")
    callers = [asyncio.create_task(shared.wait()) for _ in range(MANY)]
    await asyncio.sleep(0)
    gate.set()
    assert 0 < await most_per_turn(callers) <= COMPLETED_PER_TURN
    assert all((caller.exception() or caller.result()) == (error or "made") for caller in callers)


async def test_a_cancelled_caller_leaves_the_task_and_the_others_alone() -> None:
    gate = asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "made"

    shared = SharedTask(work(), "t", "closed")
    cancelled, other = (asyncio.create_task(shared.wait()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    assert cancelled.cancelled()
    gate.set()
    assert await other == await shared.wait() == "made"


async def test_who_waits_for_a_task_that_is_cancelled_is_told_that_it_is_closed() -> None:
    shared = SharedTask(never(), "t", "the pool is closed")
    caller = asyncio.create_task(shared.wait())
    await asyncio.sleep(0)
    shared.task.cancel()
    for waiting in (caller, shared.wait()):
        with pytest.raises(ClientClosed, match="the pool is closed"):
            await waiting
