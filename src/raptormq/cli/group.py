"""``raptormq group``: creates, lists, describes, resets and deletes consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from typing import Any, TypedDict, TypeVar, Unpack

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.completing import group_names, topic_names
from raptormq.cli.confirming import confirm
from raptormq.cli.exit_codes import CommandFailed, ExitCode
from raptormq.cli.group_description import Description
from raptormq.cli.options import group_name, name_servers_option, output_option, start_position, timeout_option
from raptormq.cli.output import Cell, position, print_json, print_table
from raptormq.client import AdminClient, TopicChange
from raptormq.errors import NoRoute, ServerError, TransportError
from raptormq.protocol.bodies.group_progress import GroupLag
from raptormq.protocol.topic_names import is_system_group

F = TypeVar("F", bound=Callable[..., Any])

_POSITIONS = {"earliest": 0, "latest": -1}
"""Timestamps for these positions in requests to brokers."""
_AT_A_TIME = 8
"""Number of groups that are queried concurrently."""


@dataclass(frozen=True, slots=True)
class _Line:
    """Row of the list. ``lag`` is in messages, or None for a broadcasting group."""

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
  raptormq group reset shipping orders --to 2024-05-01T12:00:00Z
  raptormq group update shipping --max-retries 5"""
)
def group() -> None:
    """Create, list, describe, reset and delete consumer groups."""


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
    """List the consumer groups of all brokers.

    The lag is the number of stored messages that are not consumed yet. A failed message is counted again when its retry
    is due. The lag of a broadcasting group is unknown, because its members store their progress themselves.
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
@click.argument("name", type=group_name, shell_complete=group_names)
@output_option
@name_servers_option
@timeout_option
def describe(name: str, output: str, name_servers: str, timeout_s: float) -> None:
    """Show the members of the group NAME, their subscriptions, and the progress in each queue.

    The column lag is the number of stored messages that are not consumed yet. The column lost is the number of messages
    that retention deleted before the group consumed them.
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
@click.argument("name", type=group_name, shell_complete=group_names)
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--to",
    type=start_position,
    required=True,
    metavar="POSITION",
    help="earliest, latest, a time such as 2024-05-01T12:00:00Z or milliseconds since 1970.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@name_servers_option
@timeout_option
def reset(name: str, topic: str, to: str | int, yes: bool, name_servers: str, timeout_s: float) -> None:
    """Reset the offsets of the group NAME in TOPIC, in all queues of the available brokers.

    Connected members continue at the new position immediately. Messages between the old and the new position are
    consumed again or skipped. A Spark query ignores the reset, because it reads its progress from its checkpoint.
    """
    timestamp_ms = _POSITIONS[to] if isinstance(to, str) else to
    before, remark = with_admin(name_servers, timeout_s, lambda admin: _before_reset(admin, name, topic))
    doubt = f" ({remark})" if remark else ""
    confirm(f"Reset group {name}, whose lag in topic {topic} is {before}{doubt}, to {position(to)}?", yes=yes)
    after = with_admin(name_servers, timeout_s, lambda admin: _reset(admin, name, topic, timestamp_ms))
    hint = f"; {remark}" if remark else ""
    click.echo(
        f"group {name} continues in topic {topic} at {position(to)} with a lag of {after}; it was {before}{hint}"
    )


@group.command(
    epilog="""\b
Examples:
  raptormq group show shipping
  raptormq group show shipping -o json"""
)
@click.argument("name", type=group_name, shell_complete=group_names)
@output_option
@name_servers_option
@timeout_option
def show(name: str, output: str, name_servers: str, timeout_s: float) -> None:
    """Show the settings of the group NAME on each master broker. 'raptormq group describe' shows its progress."""
    found = with_admin(name_servers, timeout_s, lambda admin: admin.group_settings(name))
    if not found:
        raise _unknown(name)
    if output == "json":
        print_json({address: asdict(settings) for address, settings in found.items()})
        return
    columns = ["broker", "consume", "broadcast", "max retries", "retry queues"]
    rows: list[list[Cell]] = [
        [address, _on(each.consume), _on(each.broadcast), each.max_retries, each.retry_queues]
        for address, each in sorted(found.items())
    ]
    print_table(columns, rows)


class _Settings(TypedDict):
    """The settings of a group. None keeps the value of an existing group and means the default for a new one."""

    consume: bool | None
    broadcast: bool | None
    max_retries: int | None
    retry_queues: int | None


def _settings_options(command: F) -> F:
    """Add the options of :class:`_Settings`."""
    for option in (
        click.option("--retry-queues", type=click.IntRange(1, 1_024), help="Queues of the retry topic, by default 1."),
        click.option(
            "--max-retries",
            type=click.IntRange(0),
            help="Deliveries after the first one, before a message becomes a dead letter; by default 16.",
        ),
        click.option("--broadcast/--no-broadcast", default=None, help="Whether members may broadcast, by default yes."),
        click.option("--consume/--no-consume", default=None, help="Whether members may consume, by default yes."),
    ):
        command = option(command)
    return command


@group.command(
    epilog="""\b
Examples:
  raptormq group create shipping
  raptormq group create shipping --max-retries 3 --no-broadcast"""
)
@click.argument("name", type=group_name)
@_settings_options
@name_servers_option
@timeout_option
def create(name: str, name_servers: str, timeout_s: float, **settings: Unpack[_Settings]) -> None:
    """Create the group NAME on the master brokers that do not have it."""

    async def run(admin: AdminClient) -> None:
        masters = await admin.masters()
        known = await admin.group_settings(name, brokers=masters)
        missing = [address for address in masters if address not in known]
        if not missing:
            raise CommandFailed(f"consumer group {name} exists; 'raptormq group update' changes it")
        await admin.create_group(name, **settings, brokers=missing)

    with_admin(name_servers, timeout_s, run)
    click.echo(f"group {name} is created")


@group.command(
    epilog="""\b
Examples:
  raptormq group update shipping --max-retries 5
  raptormq group update shipping --no-consume"""
)
@click.argument("name", type=group_name, shell_complete=group_names)
@_settings_options
@name_servers_option
@timeout_option
def update(name: str, name_servers: str, timeout_s: float, **settings: Unpack[_Settings]) -> None:
    """Change the group NAME on the master brokers that have it. What has no option is not changed."""
    if all(each is None for each in settings.values()):
        raise click.UsageError("nothing to change: use --consume, --broadcast, --max-retries or --retry-queues")

    async def run(admin: AdminClient) -> dict[str, TopicChange]:
        known = await admin.group_settings(name)
        if not known:
            raise _unknown(name)
        return await admin.create_group(name, **settings, brokers=known)

    changes = with_admin(name_servers, timeout_s, run)
    is_changed = TopicChange.CHANGED in changes.values()
    click.echo(f"group {name} is {'changed' if is_changed else 'unchanged'}")


@group.command(
    epilog="""\b
Examples:
  raptormq group delete shipping
  raptormq group delete shipping --yes"""
)
@click.argument("name", type=group_name, shell_complete=group_names)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@name_servers_option
@timeout_option
def delete(name: str, yes: bool, name_servers: str, timeout_s: float) -> None:
    """Delete the group NAME with its settings, its progress and its retry topic on all master brokers.

    Dead letters stay until retention deletes them. Stop the members first: a connected member creates the group again.
    """

    async def check(admin: AdminClient) -> int:
        if name not in await admin.groups():
            raise _unknown(name)
        connections = await admin.group_connections(name)
        return len(connections.members) if connections else 0

    members = with_admin(name_servers, timeout_s, check)
    connected = f"; {members} connected members will create it again" if members else ""
    confirm(f"Delete group {name} with its progress and its waiting retries{connected}?", yes=yes)
    with_admin(name_servers, timeout_s, lambda admin: admin.delete_group(name))
    click.echo(f"group {name} is deleted{connected}")


def _on(value: bool) -> str:
    return "yes" if value else "no"


async def _before_reset(admin: AdminClient, name: str, topic: str) -> tuple[int, str]:
    """Return the lag of the group in the topic, and a warning if the reset may be a mistake."""
    if await admin.route(topic) is None:
        raise NoRoute.to(topic)
    if name not in await admin.groups():
        raise _unknown(name)
    connections = await admin.group_connections(name)
    if connections is not None and connections.is_broadcasting:
        raise CommandFailed(f"brokers cannot reset group {name}: members of a broadcasting group store their progress")
    lag = sum(each.lag for each in (await admin.group_progress(name, topic)).values())
    if connections is not None:
        return lag, "" if topic in connections.subscriptions else "its members do not subscribe to the topic"
    begun = {queue.topic for queue in await admin.group_progress(name)}
    return lag, "" if topic in begun else "the group has not read this topic before; check the name"


async def _reset(admin: AdminClient, name: str, topic: str, timestamp_ms: int) -> int:
    """Reset the group and return its new lag."""
    ends = await admin.topic_stats(topic)
    try:
        offsets = await admin.reset_group(name, topic, timestamp_ms)
    except (ServerError, TransportError) as error:
        raise CommandFailed(f"{error}; the reset may be incomplete: repeat the command") from error
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
    return CommandFailed(
        f"consumer group {name} does not exist; 'raptormq group list' shows the existing groups, 'raptormq cluster"
        " describe BROKER' the Dledger group of a broker",
        ExitCode.NOT_FOUND,
    )


async def _ask(admin: AdminClient, name: str) -> Description:
    connections = await admin.group_connections(name)
    progress = await admin.group_progress(name)
    begun = {queue.topic for queue in progress}
    for topic in connections.subscriptions if connections else ():
        if topic not in begun:  # without a committed offset
            progress |= await admin.group_progress(name, topic)
    return Description(name, connections, progress)
