"""``raptormq cluster``: describes the registered brokers with their runtime info, and the members of a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
import orjson

from raptormq.cli.admin_call import with_admin
from raptormq.cli.broker_members import change, show, view_of
from raptormq.cli.broker_members import transfer as hand_over
from raptormq.cli.broker_settings import settings
from raptormq.cli.completing import broker_names
from raptormq.cli.confirming import confirm
from raptormq.cli.options import name_servers_option, output_option, short_timeout_option, timeout_option
from raptormq.cli.output import Cell, print_json, print_table
from raptormq.cli.promote import promote
from raptormq.client import AdminClient
from raptormq.errors import RaptorMQError

F = TypeVar("F", bound=Callable[..., Any])

MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class Member:
    """One broker. If it did not respond, ``runtime`` is empty and ``error`` is set."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    runtime: dict[str, str]
    error: str | None

    @property
    def role(self) -> str:
        """``master`` or ``slave``."""
        return "master" if self.broker_id == MASTER_ID else "slave"

    def as_json(self) -> dict[str, Any]:
        """Return the broker as a JSON value."""
        return {
            "cluster": self.cluster,
            "broker": self.broker,
            "broker_id": self.broker_id,
            "role": self.role,
            "address": self.address,
            "error": self.error,
            "runtime": self.runtime,
        }

    def row(self) -> list[Cell]:
        """Return the row of the broker in the table."""
        figures = [self.runtime.get("brokerVersionDesc"), _rate(self.runtime, "putTps")]
        figures += [_rate(self.runtime, "getTransferredTps"), _percent(self.runtime.get("commitLogDiskRatio"))]
        state = self.error or "up"
        return [self.cluster, self.broker, self.role, self.broker_id, self.address, *figures, state]


@click.group(
    epilog="""\b
Examples:
  raptormq cluster describe
  raptormq cluster describe RaftNode00
  raptormq cluster transfer RaftNode00 --to n1
  raptormq cluster promote 10.0.0.8:10911
  raptormq cluster settings set broker-a fileReservedTime=48
  raptormq cluster describe -o json -n ns-0:9876"""
)
def cluster() -> None:
    """Describe the brokers of a cluster and their members; move leadership, promote slaves, change settings."""


cluster.add_command(promote)
cluster.add_command(settings)


@cluster.command(
    epilog="""\b
Examples:
  raptormq cluster describe
  raptormq cluster describe RaftNode00
  raptormq cluster describe -o json | jq '.[].address'"""
)
@click.argument("broker", required=False, shell_complete=broker_names)
@output_option
@name_servers_option
@short_timeout_option
def describe(broker: str | None, output: str, name_servers: str, timeout_s: float) -> None:
    """Show every broker with its address, load and state.

    With the name of a BROKER, show the leader and the members of its Dledger group, and the lag of the members. A
    member that has not responded to this command is silent.
    """
    if broker is not None:
        state = with_admin(name_servers, timeout_s, lambda admin: view_of(admin, broker))
        if output == "json":
            print_json(orjson.loads(state.to_json()))
        else:
            show(broker, state)
        return
    members = with_admin(name_servers, timeout_s, _members)
    if output == "json":
        print_json([member.as_json() for member in members])
        return
    if not members:
        click.echo("no broker is registered")
        return
    columns = ["cluster", "broker", "role", "id", "address", "version", "in msg/s", "out msg/s", "disk", "state"]
    print_table(columns, [member.row() for member in members])


@cluster.command(
    epilog="""\b
Examples:
  raptormq cluster transfer RaftNode00
  raptormq cluster transfer RaftNode00 --to n1"""
)
@click.argument("broker", shell_complete=broker_names)
@click.option("--to", metavar="MEMBER", help="The next leader, such as n1; by default the member that has most.")
@name_servers_option
@timeout_option
def transfer(broker: str, to: str | None, name_servers: str, timeout_s: float) -> None:
    """Transfer leadership of the Dledger group of BROKER to another member.

    No messages are lost, and clients switch to the new leader automatically.
    """
    state = with_admin(name_servers, timeout_s, lambda admin: hand_over(admin, broker, to))
    click.echo(f"member {state.leader} leads the group of broker {broker}, in term {state.term}")


def _member_arguments(command: F) -> F:
    """Add the arguments BROKER and MEMBER, and the options of a connection."""
    for argument in (
        timeout_option,
        name_servers_option,
        click.argument("member"),
        click.argument("broker", shell_complete=broker_names),
    ):
        command = argument(command)
    return command


@cluster.command(
    name="add-member",
    epilog="""\b
Examples:
  raptormq cluster add-member RaftNode00 n3
  raptormq cluster add-member RaftNode00 n3 --learner""",
)
@click.option("--learner", is_flag=True, help="It gets the log, and never votes until it is promoted.")
@_member_arguments
def add_member(broker: str, member: str, learner: bool, name_servers: str, timeout_s: float) -> None:
    """Take MEMBER, which runs with an empty disk, into the Dledger group of BROKER.

    It is in dLegerPeers of all members. It gets the whole log, and votes when it has caught up.
    """
    _change(name_servers, timeout_s, broker, "addLearner" if learner else "add", member)


@cluster.command(
    name="promote-member",
    epilog="""\b
Examples:
  raptormq cluster promote-member RaftNode00 n3""",
)
@_member_arguments
def promote_member(broker: str, member: str, name_servers: str, timeout_s: float) -> None:
    """Let the learner MEMBER of the Dledger group of BROKER vote."""
    _change(name_servers, timeout_s, broker, "promote", member)


@cluster.command(
    name="remove-member",
    epilog="""\b
Examples:
  raptormq cluster remove-member RaftNode00 n3
  raptormq cluster remove-member RaftNode00 n3 --yes""",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@_member_arguments
def remove_member(broker: str, member: str, yes: bool, name_servers: str, timeout_s: float) -> None:
    """Take MEMBER out of the Dledger group of BROKER: its copy does not count from now on.

    Refused where no majority of the others responds.
    """
    confirm(f"Take member {member} out of the group of broker {broker}?", yes=yes)
    _change(name_servers, timeout_s, broker, "remove", member)


def _change(name_servers: str, timeout_s: float, broker: str, action: str, member: str) -> None:
    """Request a membership change, and print the members of the group after it."""
    state = with_admin(name_servers, timeout_s, lambda admin: change(admin, broker, action, member))
    members = ", ".join(f"{each.id} ({each.role})" for each in state.members if each.role != "absent")
    click.echo(f"the group of broker {broker} has the members {members}")


async def _members(admin: AdminClient) -> list[Member]:
    async def ask(cluster: str, broker: str, broker_id: int, address: str) -> Member:
        try:
            return Member(cluster, broker, broker_id, address, await admin.runtime_info(address), None)
        except RaptorMQError as error:
            return Member(cluster, broker, broker_id, address, {}, str(error))

    info = await admin.cluster_info()
    groups = sorted(info.brokers.values(), key=lambda group: (group.cluster, group.broker_name))
    return await asyncio.gather(
        *(
            ask(group.cluster, group.broker_name, broker_id, address)
            for group in groups
            for broker_id, address in sorted(group.broker_addrs.items())
        )
    )


def _rate(runtime: dict[str, str], name: str) -> str | None:
    """Return the average of the last ten seconds, which is the first of three averages."""
    averages = runtime.get(name, "").split()
    try:
        return f"{float(averages[0]):.1f}" if averages else None
    except ValueError:
        return None


def _percent(ratio: str | None) -> str | None:
    try:
        return f"{float(ratio):.0%}" if ratio else None
    except ValueError:
        return None
