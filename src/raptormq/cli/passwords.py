"""Passwords of users: from a prompt, a file or standard input, because other users of a host can see command lines."""

from __future__ import annotations

import sys
from pathlib import Path

import click

_MAX_BYTES = 4096


def read_password(file: str | None, username: str) -> str:
    """Return a password without surrounding white space.

    Args:
        file: path of a file with only the password, ``-`` for standard input, or None to prompt on the terminal.
        username: name for the prompt.

    Raises:
        click.Abort: the user interrupts the prompt.
        UsageError: the password is empty, too long or cannot be read, or there is no terminal for the prompt.
    """
    if file is None:
        return _prompt(username)
    stream = sys.stdin.buffer if file == "-" else None
    try:
        if stream is not None:
            data = stream.read(_MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(_MAX_BYTES + 1)
        password = data.decode().strip()
    except OSError as error:
        raise click.UsageError(f"cannot read the password file {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise click.UsageError("the password is not UTF-8 text") from None
    if not password or len(data) > _MAX_BYTES:
        raise click.UsageError(f"the password must have 1 to {_MAX_BYTES} bytes of text")
    return password


def _prompt(username: str) -> str:
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(
            "Without a terminal, give the password with --password-file FILE, or --password-file - for standard input"
        )
    password = click.prompt(f"Password of user {username}", hide_input=True, confirmation_prompt=True, err=True)
    return str(password).strip()
