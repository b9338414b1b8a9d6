"""Functions that must be `async def`: accepted and rejected objects."""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any
from unittest.mock import AsyncMock

import pytest

from raptormq.client import ConsumeResult, PushConsumer, TransactionProducer
from raptormq.client.listener_checks import require_async, require_awaitable, warn_if_plain
from raptormq.errors import ClientError


async def right(_: object) -> None:
    pass


async def with_a_prefix(prefix: str, _: object) -> None:
    pass


def plain(_: object) -> None:
    pass


def plain_with_a_prefix(prefix: str, _: object) -> None:
    pass


def passes_on(value: object) -> Awaitable[None]:
    return right(value)


def not_annotated(value):  # type: ignore[no-untyped-def]
    return right(value)


def in_a_thread(function: Callable[[object], None]) -> Callable[[object], Awaitable[None]]:
    @functools.wraps(function)
    def called(value: object) -> Awaitable[None]:
        return asyncio.get_running_loop().run_in_executor(None, function, value)

    return called


def answers(_: object) -> ConsumeResult | None:
    return None


def names_failures(_: object) -> list[int]:
    return []


def yields(_):  # type: ignore[no-untyped-def]
    yield


async def yields_too(_):  # type: ignore[no-untyped-def]
    yield


@types.coroutine
def of_old(_: object) -> Generator[None, None, None]:
    yield


def may_be_either(_: object) -> Awaitable[None] | None:
    return right(5)


def is_declared_as(_: object) -> object:
    return right(5)


class Right:
    async def __call__(self, _: object) -> None:
        pass

    async def method(self, _: object) -> None:
        pass


class Plain:
    def __call__(self, _: object) -> None:
        pass

    def method(self, _: object) -> None:
        pass


@pytest.mark.parametrize(
    "function",
    [
        right,
        functools.partial(with_a_prefix, "x"),
        lambda _: right(5),
        passes_on,
        not_annotated,
        of_old,
        may_be_either,
        is_declared_as,
        in_a_thread(plain),
        Right(),
        Right().method,
        AsyncMock(),
    ],
)
async def test_whatever_returns_what_can_be_awaited_is_taken(function: Callable[[object], Awaitable[None]]) -> None:
    require_async(function, "a listener")
    await require_awaitable(function("x"), "a listener")


@pytest.mark.parametrize(
    "function",
    [
        *(plain, functools.partial(plain_with_a_prefix, "x"), Plain(), Plain().method),
        *(answers, names_failures, yields, yields_too),
    ],
    ids=["def", "partial", "object", "method", "result", "list", "generator", "asynchronous generator"],
)
def test_what_surely_is_a_plain_function_is_refused(function: Any) -> None:
    with pytest.raises(ClientError, match="a listener must be async def"):
        require_async(function, "a listener")


@pytest.mark.parametrize("nothing", [None, 5, "consume"])
def test_what_cannot_be_called_is_refused(nothing: Any) -> None:
    with pytest.raises(ClientError, match=f"a listener must be an async function, not {nothing!r}"):
        require_async(nothing, "a listener")


def test_a_function_that_may_be_plain_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for told in (right, Right(), lambda _: right(5), passes_on, in_a_thread(plain), AsyncMock(), is_declared_as):
        warn_if_plain(told, "a listener")
    assert caplog.records == []

    async def check(_: object) -> None:
        """Must not be called."""

    consumer = PushConsumer("g")
    consumer.subscribe("t", "*", check)
    assert caplog.records == []
    consumer.subscribe("t", "*", not_annotated)
    consumer.subscribe_batches("t", "*", functools.partial(not_annotated))
    TransactionProducer("g", not_annotated)
    named = [each.getMessage().partition(" should be async def, and ")[0] for each in caplog.records]
    assert named == ["a listener", "a listener", "the check of transactions"]


def test_an_answer_that_cannot_be_awaited_is_named() -> None:
    with pytest.raises(ClientError, match="must be async def: it returned 5"):
        require_awaitable(5, "a listener")  # type: ignore[arg-type]
