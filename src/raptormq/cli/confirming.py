"""The question before something that cannot be taken back."""

from __future__ import annotations

import sys

import click


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless it is answered with ``yes`` or there is nobody to ask.

    Raises:
        click.Abort: the answer is no.
    """
    # Standard input may be closed, too.
    if not yes and sys.stdin is not None and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
