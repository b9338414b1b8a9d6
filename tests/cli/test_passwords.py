"""Passwords from a prompt."""

from __future__ import annotations

import io
import sys

import click
import pytest
from click import termui

from raptormq.cli.passwords import read_password


class Terminal(io.StringIO):
    """A terminal with fixed input."""

    def isatty(self) -> bool:
        return True


def test_a_prompted_password_is_typed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["secret", "typo", "secret", "secret"])
    prompts: list[str] = []

    def hidden(prompt: str) -> str:
        prompts.append(prompt)
        return next(typed)

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(termui, "hidden_prompt_func", hidden)
    assert read_password(None, "alice") == "secret"
    assert len(prompts) == 4


@pytest.mark.parametrize("nobody", [None, io.StringIO("secret\n")])
def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch, nobody: io.StringIO | None) -> None:
    monkeypatch.setattr(sys, "stdin", nobody)
    with pytest.raises(click.UsageError, match="--password-file"):
        read_password(None, "alice")
