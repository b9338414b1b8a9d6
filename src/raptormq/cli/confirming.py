"""Confirmation of a command that cannot be undone."""

from __future__ import annotations

import sys

import click


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation, unless ``yes`` is given or standard input is not a terminal.

    Raises:
        click.Abort: the user declines.
    """
    # Standard input may be closed.
    if not yes and sys.stdin is not None and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
