"""Confirmation of commands that cannot be undone."""

from __future__ import annotations

import sys

import click


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation, unless ``yes`` is given.

    Raises:
        click.Abort: the user declines.
        UsageError: standard input is not a terminal.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():  # standard input may be closed
        raise click.UsageError(f"{question} Without a terminal, confirm with --yes")
    click.confirm(question, abort=True, err=True)
