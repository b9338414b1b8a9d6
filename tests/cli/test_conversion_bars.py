"""The progress bars of a conversion, shown only on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from raptormq.cli.conversion_bars import bars
from raptormq.client import QueueConversionState


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def state(done: int, phase: str = "copying") -> QueueConversionState:
    return QueueConversionState("t", "SimpleCQ", phase, done=done, total=2000)


def test_nothing_is_written_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with bars() as show:
        show({"broker-a": state(1000)})
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_bar_for_each_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with bars() as show:
        show({"broker-a": state(1000), "broker-b": state(10)})
        show({"broker-a": state(2000, "done"), "broker-b": state(1500, "comparing")})
    text = terminal.getvalue()
    for wanted in ("broker-a", "broker-b", "2,000/2,000 messages", "1,500/2,000 messages", "comparing", "done"):
        assert wanted in text
