"""``raptormq group``: lists and describes consumer groups, and resets their offsets."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, astuple, dataclass

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.confirming import confirm
from raptormq.cli.group_description import Description
from raptormq.cli.hints import CommandFailed
from raptormq.cli.options import group_name, name_servers_option, output_option, start_position, timeout_option
from raptormq.cli.output import position, print_json, print_table
from raptormq.client import AdminClient
from raptormq.errors import NoRoute, ServerError, TransportError
from raptormq.protocol.bodies.group_progress import GroupLag
from raptormq.protocol.topic_names import is_system_group

_POSITIONS = {"earliest": 0, "latest": -1}
"""Times that stand for the words in requests to brokers."""
_AT_A_TIME = 8
"""Groups queried concurrently."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A group in the list. ``lag`` is in messages, None when the brokers do not know it."""

    group: str
    topics: int
    members: int
    lag: int | None


@click.group(
    epilog="""\b
Examples:
  raptormq group list
  raptormq group describe shipping
  raptormq group describe shipping -o json | jq .lag
  raptormq group reset shipping orders --to 2024-05-01T12:00:00Z"""
)
def group() -> None:
    """Show consumer groups, their members and their lag; reset a group."""


@group.command(
    name="list",
    epilog="""\b
Examples:
  raptormq group list
  raptormq group list --all -o json""",
)
@click.option("--all", "show_all", is_flag=True, help="Include RocketMQ's internal groups.")
@output_option
@name_servers_option
@timeout_option
def list_groups(show_all: bool, output: str, name_servers: str, timeout_s: float) -> None:
    """List the consumer groups that the brokers know.

    The lag is the number of stored messages that are not consumed yet; a failed message counts again when it is due for
    a retry. Members of a broadcasting group keep their progress themselves, so brokers know no lag.
    """
    lines = with_admin(name_servers, timeout_s, lambda admin: _lines(admin, show_all=show_all))
    if output == "json":
        print_json([asdict(line) for line in lines])
    else:
        print_table(["group", "topics", "members", "lag"], map(astuple, lines))


@group.command(
    epilog="""\b
Examples:
  raptormq group describe shipping
  raptormq group describe shipping -o json -n 'ns-0:9876;ns-1:9876'"""
)
@click.argument("name", type=group_name)
@output_option
@name_servers_option
@timeout_option
def describe(name: str, output: str, name_servers: str, timeout_s: float) -> None:
    """Show the members of the group NAME, their subscriptions, and the progress in each queue.

    Lag is the number of stored messages that are not consumed yet. Lost is the number of messages that retention
    deleted before the group consumed them.
    """
    description = with_admin(name_servers, timeout_s, lambda admin: _describe(admin, name))
    if output == "json":
        print_json(description.as_json())
    else:
        description.print()


@group.command(
    epilog="""\b
Examples:
  raptormq group reset shipping orders --to earliest
  raptormq group reset shipping orders --to 2024-05-01T12:00:00Z --yes"""
)
@click.argument("name", type=group_name)
@click.argument("topic")
@click.option(
    "--to",
    type=start_position,
    required=True,
    metavar="POSITION",
    help="earliest, latest, a time such as 2024-05-01T12:00:00Z or milliseconds since 1970.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; implied without a terminal.")
@name_servers_option
@timeout_option
def reset(name: str, topic: str, to: str | int, yes: bool, name_servers: str, timeout_s: float) -> None:
    """Move the group NAME to another position in TOPIC, in all queues of the brokers that are up.

    Connected members continue there at once. The messages in between are consumed again or skipped. A Spark query
    ignores the reset: it keeps its own progress and only reports it to brokers.
    """
    timestamp_ms = _POSITIONS[to] if isinstance(to, str) else to
    before, remark = with_admin(name_servers, timeout_s, lambda admin: _before_reset(admin, name, topic))
    doubt = f" ({remark})" if remark else ""
    confirm(f"Reset group {name}, whose lag in topic {topic} is {before}{doubt}, to {position(to)}?", yes=yes)
    after = with_admin(name_servers, timeout_s, lambda admin: _reset(admin, name, topic, timestamp_ms))
    hint = f"; {remark}" if remark else ""
    click.echo(
        f"group {name} goes on in topic {topic} from {position(to)} with a lag of {after}; it was {before}{hint}"
    )


async def _before_reset(admin: AdminClient, name: str, topic: str) -> tuple[int, str]:
    """Return the lag of the group in the topic, and a warning when the reset may be a mistake."""
    if await admin.route(topic) is None:
        raise NoRoute.to(topic)
    if name not in await admin.groups():
        raise _unknown(name)
    connections = await admin.group_connections(name)
    if connections is not None and connections.is_broadcasting:
        raise CommandFailed(f"group {name} is broadcasting: its members keep their progress, brokers cannot reset it")
    lag = sum(each.lag for each in (await admin.group_progress(name, topic)).values())
    if connections is not None:
        return lag, "" if topic in connections.subscriptions else "its members do not subscribe to it"
    begun = {queue.topic for queue in await admin.group_progress(name)}
    return lag, "" if topic in begun else "it has not read this topic before, is it the one you mean?"


async def _reset(admin: AdminClient, name: str, topic: str, timestamp_ms: int) -> int:
    """Reset the group and return its new lag."""
    ends = await admin.topic_stats(topic)
    try:
        offsets = await admin.reset_group(name, topic, timestamp_ms)
    except (ServerError, TransportError) as error:
        raise CommandFailed(f"{error}; other brokers may be reset already, repeat the command") from error
    lags = (
        GroupLag.between(offset, ends[queue].min_offset, ends[queue].max_offset)
        for queue, offset in offsets.items()
        if queue in ends
    )
    return sum(lag.waiting for lag in lags)


async def _lines(admin: AdminClient, *, show_all: bool) -> list[_Line]:
    turn = asyncio.Semaphore(_AT_A_TIME)

    async def line(name: str) -> _Line:
        async with turn:
            found = await _ask(admin, name)
        return _Line(name, len(found.topics), len(found.members), found.lag)

    names = [name for name in await admin.groups() if show_all or not is_system_group(name)]
    return await asyncio.gather(*map(line, names))


async def _describe(admin: AdminClient, name: str) -> Description:
    found = await _ask(admin, name)
    if not (found.progress or found.connections) and name not in await admin.groups():
        raise _unknown(name)
    return found


def _unknown(name: str) -> CommandFailed:
    return CommandFailed(f"no broker knows group {name}; 'raptormq group list' shows the existing groups")


async def _ask(admin: AdminClient, name: str) -> Description:
    connections = await admin.group_connections(name)
    progress = await admin.group_progress(name)
    begun = {queue.topic for queue in progress}
    for topic in connections.subscriptions if connections else ():
        if topic not in begun:  # the group has no committed offset there
            progress |= await admin.group_progress(name, topic)
    return Description(name, connections, progress)
