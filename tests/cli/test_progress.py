"""The progress bar, shown only on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from raptormq.cli.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_written_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("sending", 100) as advance:
        advance(1, 100)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("total", [2_000_000, None])
def test_a_terminal_shows_what_was_done(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with progress("sending", total) as advance:
        advance(1_000, 1_000_000)
        advance(234, 1_000_000)
    assert "sending" in terminal.getvalue()
    assert "1,234 messages" in terminal.getvalue()
