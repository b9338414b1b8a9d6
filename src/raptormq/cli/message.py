"""``raptormq message``: finds and shows messages by key or id."""

from __future__ import annotations

from contextlib import suppress

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.completing import topic_names
from raptormq.cli.exit_codes import CommandFailed, ExitCode
from raptormq.cli.message_format import fields, preview
from raptormq.cli.options import name_servers_option, output_option, start_position, timeout_option
from raptormq.cli.output import Cell, echo, moment, position, print_json, print_table
from raptormq.client import AdminClient, MessageExt
from raptormq.client.admin import MAX_QUERY_RESULTS, FoundMessages
from raptormq.client.settings import LONG_MAX
from raptormq.errors import MessageError

_TIMES = {"earliest": 0, "latest": LONG_MAX}
"""Timestamps for these positions in requests to brokers."""


@click.group(
    epilog="""\b
Examples:
  raptormq message find orders 17
  raptormq message find orders customer-42 --from 2024-05-01T12:00:00Z -o json | jq '.[].body'
  raptormq message show 7F00000100002A9F0000000000000000
  raptormq message show 0A0000010000000000000000000000FF --topic orders"""
)
def message() -> None:
    """Find and show messages by key or id."""


@message.command(
    epilog="""\b
Examples:
  raptormq message find orders 17
  raptormq message find orders 17 --from 2024-05-01T12:00:00Z --to 2024-05-01T13:00:00Z
  raptormq message find orders customer-42 --count 5 -o json | jq '.[].body'"""
)
@click.argument("topic", shell_complete=topic_names)
@click.argument("key")
@click.option(
    "--count",
    type=click.IntRange(1, MAX_QUERY_RESULTS),
    default=MAX_QUERY_RESULTS,
    show_default=True,
    help="Maximum number of messages, newest first.",
)
@click.option(
    "--from",
    "begin",
    type=start_position,
    default="earliest",
    show_default=True,
    metavar="earliest|TIMESTAMP",
    help="Only messages stored at or after this time, in milliseconds since 1970 or like 2024-05-01T12:00:00Z.",
)
@click.option(
    "--to",
    "end",
    type=start_position,
    default="latest",
    show_default=True,
    metavar="latest|TIMESTAMP",
    help="Only messages stored at or before this time.",
)
@output_option
@name_servers_option
@timeout_option
def find(
    topic: str,
    key: str,
    count: int,
    begin: str | int,
    end: str | int,
    output: str,
    name_servers: str,
    timeout_s: float,
) -> None:
    """List the messages of TOPIC with the key or id KEY.

    Messages are sorted by store time. The table contains the beginning of each body, JSON the whole body. Encrypted
    messages require keys as for 'raptormq consume'. Brokers that cannot be queried are reported on standard error.
    """
    begin_ms, end_ms = _span(begin, end)
    if not key:
        raise click.BadParameter("the key is empty", param_hint="KEY")

    async def search(admin: AdminClient) -> list[MessageExt]:
        return await admin.find_messages(topic, key, begin_ms=begin_ms, end_ms=end_ms, count=count)

    found = with_admin(name_servers, timeout_s, search)
    whole = (begin, end) == ("earliest", "latest")
    when = "" if whole else f" and was stored from {position(begin)} to {position(end)}"
    _require(found, f"no message of topic {topic} has the key or id {key}{when}")
    if output == "json":
        print_json([fields(each) for each in found])
    else:
        columns = ["stored", "broker", "queue", "offset", "message id", "tag", "keys", "body"]
        print_table(columns, map(_row, found))


@message.command(
    epilog="""\b
Examples:
  raptormq message show 7F00000100002A9F0000000000000000
  raptormq message show 0A0000010000000000000000000000FF --topic orders -o json"""
)
@click.argument("message_id", metavar="ID")
@click.option("--topic", help="Topic of the message, required for an id that its producer assigned.")
@output_option
@name_servers_option
@timeout_option
def show(message_id: str, topic: str | None, output: str, name_servers: str, timeout_s: float) -> None:
    """Show the message ID with its properties and its body.

    An id that a broker assigned (offset_message_id in JSON) contains broker and log offset. For a batch, the first
    message is shown. An id that a producer assigned (message_id) requires --topic. A message that was stored twice is
    shown twice. Encrypted messages require keys as for 'raptormq consume'.
    """

    async def look_up(admin: AdminClient) -> list[MessageExt]:
        if topic is None:
            return await _at(admin, message_id)
        found = await admin.find_messages(topic, message_id)
        if not found:
            with suppress(MessageError):  # not an id that a broker assigned
                return [each for each in await _at(admin, message_id) if each.topic == topic] or found
        return found

    try:
        found = with_admin(name_servers, timeout_s, look_up)
    except MessageError as error:
        raise CommandFailed(f"{error}; for an id that a producer assigned, use --topic") from error
    _require(found, f"no message{'' if topic is None else f' of topic {topic}'} has the id {message_id}")
    if output == "json":
        print_json([fields(each) for each in found])
    else:
        for each in found:
            _print(each)


async def _at(admin: AdminClient, offset_message_id: str) -> list[MessageExt]:
    there = await admin.message(offset_message_id)
    return [] if there is None else [there]


def _span(begin: str | int, end: str | int) -> tuple[int, int]:
    """Return the times in ms since 1970 for --from and --to."""
    for option, value, word in (("--from", begin, "earliest"), ("--to", end, "latest")):
        if isinstance(value, str) and value != word:
            raise click.BadParameter(f"{value!r} is neither {word} nor a time", param_hint=option)
    begin_ms, end_ms = (_TIMES[each] if isinstance(each, str) else each for each in (begin, end))
    if begin_ms > end_ms:
        raise click.UsageError(f"--from {position(begin)} is later than --to {position(end)}")
    return begin_ms, end_ms


def _require(found: list[MessageExt], nothing: str) -> None:
    """Raise an error with the text ``nothing`` if ``found`` is empty. Report brokers that could not be queried."""
    failures = found.failures if isinstance(found, FoundMessages) else {}
    named = "; ".join(f"cannot query broker {name}: {error}" for name, error in sorted(failures.items()))
    if not found:
        # A broker that could not be queried may have the message.
        code = ExitCode.UNAVAILABLE if named else ExitCode.NOT_FOUND
        raise CommandFailed(f"{nothing}; {named}" if named else nothing, code)
    if named:
        echo(f"raptormq: {named}", err=True)


def _row(found: MessageExt) -> list[Cell]:
    """Return the table row of a message."""
    place: list[Cell] = [found.queue.broker_name, found.queue.queue_id, found.queue_offset]
    return [moment(found.store_timestamp), *place, found.message_id, found.tags, _keys(found), preview(found)]


def _print(found: MessageExt) -> None:
    """Print all fields of a message, then its body."""
    echo(f"message {found.message_id} of topic {found.topic}")
    print_table(
        ["broker", "queue", "offset", "stored", "born", "tag", "keys"],
        [
            [
                found.queue.broker_name or None,
                found.queue.queue_id,
                found.queue_offset,
                moment(found.store_timestamp),
                moment(found.born_timestamp),
                found.tags,
                _keys(found),
            ]
        ],
    )
    print_table(["property", "value"], sorted(found.properties.items()))
    click.echo(found.body)


def _keys(found: MessageExt) -> str | None:
    return " ".join(found.keys) or None
