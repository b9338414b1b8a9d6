"""``raptormq cluster``: the brokers known to the name servers, with their runtime info."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.options import name_servers_option, output_option, timeout_option
from raptormq.cli.output import Cell, print_json, print_table
from raptormq.client import AdminClient
from raptormq.errors import RaptorMQError

MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class Member:
    """One broker. If it did not answer, ``runtime`` is empty and ``error`` is set."""

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
        """Return the cells of the broker's line in the table."""
        figures = [self.runtime.get("brokerVersionDesc"), _rate(self.runtime, "putTps")]
        figures += [_rate(self.runtime, "getTransferredTps"), _percent(self.runtime.get("commitLogDiskRatio"))]
        state = self.error or "up"
        return [self.cluster, self.broker, self.role, self.broker_id, self.address, *figures, state]


@click.group(
    epilog="""\b
Examples:
  raptormq cluster describe
  raptormq cluster describe -o json -n ns-0:9876"""
)
def cluster() -> None:
    """Describe the brokers of a cluster."""


@cluster.command(
    epilog="""\b
Examples:
  raptormq cluster describe
  raptormq cluster describe -o json | jq '.[].address'"""
)
@output_option
@name_servers_option
@timeout_option
def describe(output: str, name_servers: str, timeout_s: float) -> None:
    """Show every broker with its address, its load and whether it answers."""
    members = with_admin(name_servers, timeout_s, _members)
    if output == "json":
        print_json([member.as_json() for member in members])
        return
    if not members:
        click.echo("no broker is registered")
        return
    columns = ["cluster", "broker", "role", "id", "address", "version", "in msg/s", "out msg/s", "disk", "state"]
    print_table(columns, [member.row() for member in members])


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
    """Return the rate over the last ten seconds, the first of three averages."""
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
