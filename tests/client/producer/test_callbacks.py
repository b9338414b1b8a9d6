"""Callbacks and futures of a send: each is completed once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from raptormq.client.producer.callbacks import complete, fail_all, is_cancelled
from raptormq.client.results import SendResult, SendStatus
from raptormq.errors import ClientClosed
from raptormq.protocol.message import MessageQueue

RESULT = SendResult(SendStatus.SEND_OK, "id", "offset id", MessageQueue("t", "b", 0), 7)


async def test_futures_and_callbacks_are_completed() -> None:
    future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
    told: list[SendResult | BaseException] = []
    error = ClientClosed("closed")
    complete(future, RESULT)
    complete(told.append, RESULT)
    fail_all([future, told.append], error)  # the future is already done
    assert await future is RESULT
    assert told == [RESULT, error]
    failed: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
    complete(failed, error)
    with pytest.raises(ClientClosed):
        await failed


async def test_only_futures_are_given_up() -> None:
    future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
    assert not is_cancelled(future)
    future.cancel()
    assert is_cancelled(future)
    complete(future, RESULT)
    assert not is_cancelled(print)
    assert not is_cancelled(None)


class Unusual(BaseException):
    """An error that is no `Exception`, like that of `pytest.fail`."""


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError, Unusual])
async def test_an_error_of_a_callback_is_logged_and_harms_nobody(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    told: list[SendResult | BaseException] = []

    def broken(_outcome: SendResult | BaseException) -> None:
        raise error

    with caplog.at_level(logging.ERROR):
        fail_all([broken, told.append], ClientClosed("closed"))
    assert len(told) == 1
    assert "the callback of a send failed" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_a_callback_may_end_the_program(error: type[BaseException]) -> None:
    def ends(_outcome: SendResult | BaseException) -> None:
        raise error

    with pytest.raises(error):
        complete(ends, RESULT)
