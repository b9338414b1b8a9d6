"""The confirmation before an irreversible command."""

from __future__ import annotations

import io
import sys

import click
import pytest

from raptormq.cli.confirming import confirm


class Terminal(io.StringIO):
    """A terminal with fixed input."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("nobody", [None, io.StringIO("n\n")])
def test_without_a_terminal_the_option_is_required(monkeypatch: pytest.MonkeyPatch, nobody: io.StringIO | None) -> None:
    monkeypatch.setattr(sys, "stdin", nobody)
    with pytest.raises(click.UsageError, match=r"Sure.*--yes"):
        confirm("Sure?", yes=False)
    confirm("Sure?", yes=True)


def test_who_says_yes_beforehand_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    confirm("Sure?", yes=True)


def test_no_ends_it_and_yes_does_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\ny\n"))
    with pytest.raises(click.Abort):
        confirm("Sure?", yes=False)
    confirm("Sure?", yes=False)
    assert capsys.readouterr().err.count("Sure? [y/N]") == 2
