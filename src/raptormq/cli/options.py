"""Options and option types shared by several commands."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from raptormq.cli.connecting import connection_options
from raptormq.client.settings import Limits
from raptormq.protocol.tags import TAG_SEPARATOR

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_NAME_SERVER = "127.0.0.1:9876"


def name_servers_option(command: F) -> F:
    """Add ``-n/--namesrv`` and the connection options (:mod:`raptormq.cli.connecting`)."""
    return click.option(
        "-n",
        "--namesrv",
        "name_servers",
        type=addresses,
        metavar="HOST:PORT[;HOST:PORT]",
        envvar="NAMESRV_ADDR",
        default=DEFAULT_NAME_SERVER,
        show_default=True,
        show_envvar=True,
        help="Name servers.",
    )(connection_options(command))


def output_option(command: F) -> F:
    """Add ``-o/--output``: a table or JSON."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="A table for people or JSON for machines.",
    )(command)


def timeout_option(command: F) -> F:
    """Add ``--timeout``: the time limit of one request."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=positive_seconds,
        default=3.0,
        show_default=True,
        metavar="SECONDS",
        help="Time limit of one request.",
    )(command)


def positive_seconds(value: Any) -> float:
    """Convert an option to a positive number of seconds."""
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not (seconds > 0 and math.isfinite(seconds)):
        raise click.BadParameter(f"{value!r} is not a number of seconds above 0")
    if seconds > _MOST_SECONDS:
        raise click.BadParameter(f"{value!r} is more than {_MOST_SECONDS} seconds")
    return seconds


def addresses(value: str) -> str:
    """Return the value if it contains at least one address; the client validates them."""
    if not value.strip(" ;,"):
        raise click.BadParameter("there is no address; name servers are given as HOST:PORT[;HOST:PORT]")
    return value


def message_key(value: str) -> str:
    """Return a message key. A key contains no spaces, which separate keys."""
    if not value or " " in value:
        raise click.BadParameter(f"{value!r} is not a key: a key is one word; repeat --key for several")
    return value


def message_tag(value: str) -> str:
    """Return a message tag."""
    if TAG_SEPARATOR in value:
        raise click.BadParameter(f"{value!r} is not a tag: a message has one tag, without ||")
    return value


_MOST_SECONDS = Limits().most
"""Largest time-out that clients accept."""
_MS_DIGITS = 18
"""Digits of a time in milliseconds; longer numbers do not fit into 64 bits."""
_FIRST_MS = 10**11
"""March 1973. A smaller number is a time in seconds, as printed by ``date +%s``, until the year 5138."""


def start_position(value: Any) -> str | int:
    """Convert ``earliest``, ``latest``, milliseconds since 1970 or an ISO 8601 time (UTC by default).

    Returns the word, or milliseconds since 1970. A number that is too small for milliseconds is refused, because it is
    a time in seconds.
    """
    text = str(value)
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdecimal() and len(text) <= _MS_DIGITS:
        if 0 < int(text) < _FIRST_MS:  # 0 is the same in both units
            raise click.BadParameter(
                f"{text} would be a time in seconds; milliseconds since 1970 are meant, or a time like "
                "2024-05-01T12:00:00Z"
            )
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        expected = "earliest, latest, milliseconds since 1970 or a time like 2024-05-01T12:00:00Z"
        raise click.BadParameter(f"{text!r} is not {expected}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


def group_name(value: str) -> str:
    """Return a group name. It may be one that clients no longer accept."""
    if not value.strip() or not value.isprintable():
        raise click.BadParameter(f"{value!r} is not a group name")
    return value


def key_and_value(text: str) -> tuple[str, str]:
    """Convert ``KEY=VALUE`` to the pair."""
    key, _, value = text.partition("=")
    if not key or not value:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE")
    return key, value
