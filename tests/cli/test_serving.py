"""Servers in the foreground: the ready line, signals, and a stop that does not complete."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raptormq.cli import serving
from raptormq.cli.serving import Addresses, StopTimedOut, serve
from raptormq.errors import ConfigError


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_what_was_started(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def opening() -> AsyncIterator[Addresses]:
        events.append("started")
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), number)
        yield {"namesrv": "127.0.0.1:1", "broker": "127.0.0.1:2"}
        events.append("stopped")

    serve(opening)
    assert events == ["started", "stopped"]
    assert capsys.readouterr().out == "ready namesrv=127.0.0.1:1 broker=127.0.0.1:2\n"


def test_a_signal_during_the_start_means_that_it_never_gets_ready(capsys: pytest.CaptureFixture[str]) -> None:
    @asynccontextmanager
    async def opening() -> AsyncIterator[Addresses]:
        seen = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, seen.set)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)
        await seen.wait()
        yield {}

    serve(opening)
    assert capsys.readouterr().out == ""


def test_a_stop_that_hangs_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "STOP_TIMEOUT_S", 0.01)

    @asynccontextmanager
    async def opening() -> AsyncIterator[Addresses]:
        os.kill(os.getpid(), signal.SIGTERM)
        yield {}
        await asyncio.Event().wait()

    with pytest.raises(StopTimedOut, match=r"did not stop within 0\.01 s"):
        serve(opening)


@pytest.mark.parametrize("error", [ConfigError("port taken"), TimeoutError("its own")])
def test_what_keeps_it_from_starting_is_raised(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    @asynccontextmanager
    async def opening() -> AsyncIterator[Addresses]:
        if str(error):
            raise error
        yield {}

    with pytest.raises(type(error), match=str(error)):
        serve(opening)
    assert capsys.readouterr().out == ""
