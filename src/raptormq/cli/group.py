"""``raptormq group``: the consumer groups, who is in them and how far they are."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, astuple, dataclass

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.group_description import Description
from raptormq.cli.hints import CommandFailed
from raptormq.cli.options import name_servers_option, output_option, timeout_option
from raptormq.cli.output import print_json, print_table
from raptormq.client import AdminClient
from raptormq.protocol.topic_names import is_system_group

_AT_A_TIME = 8
"""Groups that are asked about at the same time."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A group in the list; ``lag`` counts messages."""

    group: str
    topics: int
    members: int
    lag: int


@click.group(
    epilog="""\b
Examples:
  raptormq group list
  raptormq group describe shipping
  raptormq group describe shipping -o json | jq .lag"""
)
def group() -> None:
    """Show consumer groups, their members and their lag."""


@group.command(
    name="list",
    epilog="""\b
Examples:
  raptormq group list
  raptormq group list --all -o json""",
)
@click.option("--all", "show_all", is_flag=True, help="Also the groups that RocketMQ keeps for itself.")
@output_option
@name_servers_option
@timeout_option
def list_groups(show_all: bool, output: str, name_servers: str, timeout_s: float) -> None:
    """List the consumer groups that the brokers know.

    A lag is what is stored and not consumed yet, in messages, those that wait for another try included.
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
@click.argument("name")
@output_option
@name_servers_option
@timeout_option
def describe(name: str, output: str, name_servers: str, timeout_s: float) -> None:
    """Show who consumes for the group NAME, what, and how far it is in each queue."""
    description = with_admin(name_servers, timeout_s, lambda admin: _describe(admin, name))
    if output == "json":
        print_json(description.as_json())
    else:
        description.print()


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
        raise CommandFailed(f"no broker knows group {name}; 'raptormq group list' shows the groups there are")
    return found


async def _ask(admin: AdminClient, name: str) -> Description:
    connections = await admin.group_connections(name)
    progress = await admin.group_progress(name)
    begun = {queue.topic for queue in progress}
    for topic in connections.subscriptions if connections else ():
        if topic not in begun:  # nothing is committed there
            progress |= await admin.group_progress(name, topic)
    return Description(name, connections, progress)
