"""Options and option types that several commands use."""

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
        help="Output format.",
    )(command)


def servers_option(command: F) -> F:
    """Add ``--server``: the servers whose users or ACLs are meant. The default, an empty tuple, means all masters."""
    return click.option(
        "--server",
        "servers",
        multiple=True,
        metavar="HOST:PORT",
        help="Only this broker or name server; can be repeated. By default all master brokers.",
    )(command)


def timeout_option(command: F) -> F:
    """Add ``--timeout``: the time limit of one request."""
    return _timeout_option(3.0)(command)


def short_timeout_option(command: F) -> F:
    """Add ``--timeout`` with a default for commands that show servers, also those that do not respond: with the start
    of the process the command takes 2 s.
    """
    return _timeout_option(1.5)(command)


def promotion_timeout_option(command: F) -> F:
    """Add ``--timeout`` with a default for a promotion: the slave waits 10 s for a master that does not respond. If the
    command ended before that, the promotion would happen unseen.
    """
    return _timeout_option(15.0)(command)


def _timeout_option(default: float) -> Callable[[F], F]:
    return click.option(
        "--timeout",
        "timeout_s",
        type=positive_seconds,
        default=default,
        show_default=True,
        metavar="SECONDS",
        help="Time limit of one request.",
    )


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
    """Return the value if it contains at least one address. The client validates the addresses."""
    if not value.strip(" ;,"):
        raise click.BadParameter("the list of name servers is empty; expected HOST:PORT[;HOST:PORT]")
    return value


def message_key(value: str) -> str:
    """Return a message key. A key contains no spaces, because they separate keys."""
    if not value or " " in value:
        raise click.BadParameter(f"{value!r} is not a key: a key has no spaces; repeat --key for several keys")
    return value


def message_tag(value: str) -> str:
    """Return a message tag."""
    if TAG_SEPARATOR in value:
        raise click.BadParameter(f"{value!r} is not a tag: a message has one tag, without ||")
    return value


_MOST_SECONDS = Limits().most
"""Maximum timeout of clients in seconds."""
_MS_DIGITS = 18
"""Maximum number of digits of a time in ms. Longer numbers exceed 64 bits."""
_FIRST_MS = 10**11
"""March 1973 in ms since 1970. Smaller numbers are probably times in seconds, such as the output of ``date +%s``."""


def start_position(value: Any) -> str | int:
    """Convert ``earliest``, ``latest``, milliseconds since 1970 or an ISO 8601 time (UTC by default).

    Return the word, or ms since 1970. A number that is too small for ms is refused, because it is probably a time in
    seconds.
    """
    text = str(value)
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdecimal() and len(text) <= _MS_DIGITS:
        if 0 < int(text) < _FIRST_MS:  # 0 is the same in both units
            raise click.BadParameter(
                f"{text} seems to be a time in seconds; expected milliseconds since 1970, or a time like "
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
    """Return a group name. Names that clients no longer accept are allowed."""
    if not value.strip() or not value.isprintable():
        raise click.BadParameter(f"{value!r} is not a group name")
    return value


def queue_name(text: str) -> tuple[str | None, int]:
    """Convert ``[BROKER:]ID`` to the name of the broker, or None, and the queue id."""
    broker, colon, number = text.rpartition(":")
    if not (number.isascii() and number.isdecimal()) or (colon and not broker):
        raise click.BadParameter(f"{text!r} is not [BROKER:]ID, such as 0 or broker-a:0")
    return broker or None, int(number)


def key_and_value(text: str) -> tuple[str, str]:
    """Convert ``KEY=VALUE`` to the pair."""
    key, _, value = text.partition("=")
    if not key or not value:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE")
    return key, value
