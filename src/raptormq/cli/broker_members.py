"""Requests to the members of one replicated broker, and their output, for ``raptormq cluster``."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import click

from raptormq.cli.exit_codes import CommandFailed, ExitCode
from raptormq.cli.output import Cell, echo, print_table
from raptormq.client import AdminClient
from raptormq.errors import ServerError, TransportError
from raptormq.protocol.bodies.replication import MASTER_SLAVE, UNREPLICATED, CopyState, ReplicationState
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.codes import ResponseCode


async def view_of(admin: AdminClient, broker: str) -> ReplicationState:
    """Return the leader's view of a broker's members; without a leader, the view of a responding member. The result
    lists the damage and the remarks of all responding members. A member of a Dledger group that has not responded is
    marked, also where the leader has heard it recently or the name servers do not list it.

    Raises:
        CommandFailed: the broker does not exist, or none of its members responds.
    """
    failures: list[str] = []
    states: list[ReplicationState] = []
    addresses = await member_addresses(admin, broker)
    asked = await asyncio.gather(*map(admin.replication, addresses), return_exceptions=True)
    for address, answered in zip(addresses, asked, strict=True):
        if isinstance(answered, ReplicationState):
            states.append(answered)
        elif isinstance(answered, TransportError):
            failures.append(str(answered))
        elif isinstance(answered, ServerError) and answered.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise CommandFailed(f"broker {broker} at {address} is not one of RaptorMQ: {answered}") from answered
        else:
            raise answered
    if not states:
        raise CommandFailed(f"no member of broker {broker} answers: {'; '.join(failures)}", ExitCode.UNAVAILABLE)
    found = next((state for state in states if state.role in ("leader", "master")), states[0])
    responded = {state.member for state in states}
    marked = tuple(replace(each, answering=each.id in responded) for each in found.members)
    members = found.members if found.mode in (UNREPLICATED, MASTER_SLAVE) else marked
    damaged = tuple(each for state in states for each in state.damaged)
    remarks = [f"{state.member}: {state.remark}" if state.member else state.remark for state in states if state.remark]
    return replace(found, members=members, damaged=damaged, remark="\n".join(remarks))


async def transfer(admin: AdminClient, broker: str, to: str | None) -> ReplicationState:
    """Transfer leadership of a broker's group, and return the previous leader's view.

    Raises:
        CommandFailed: there is no such broker, or it is not a member of a group.
        ServerError: leadership cannot be transferred.
    """
    return await admin.transfer_leadership(await _leader(admin, broker), to)


async def change(admin: AdminClient, broker: str, action: str, member: str) -> ReplicationState:
    """Change the members of a broker's group, and return the leader's view; ``action`` as of
    :meth:`AdminClient.change_members`.

    Raises:
        CommandFailed: there is no such broker, or it is not a member of a group.
        ServerError: the leader refuses the change.
    """
    return await admin.change_members(await _leader(admin, broker), action, member)


async def _leader(admin: AdminClient, broker: str) -> str:
    """Return the address of the member that leads."""
    for address in await member_addresses(admin, broker):
        try:
            state = await admin.replication(address)
        except (TransportError, ServerError):
            continue
        if state.mode in (UNREPLICATED, MASTER_SLAVE):
            raise CommandFailed(f"broker {broker} is not a member of a Dledger group")
        if state.role == "leader":
            return address
    raise CommandFailed(
        f"the group of broker {broker} has no leader; 'raptormq cluster describe {broker}' shows its members",
        ExitCode.UNAVAILABLE,
    )


async def member_addresses(admin: AdminClient, broker: str) -> list[str]:
    """Return the addresses of the members, the leader's first."""
    info = await admin.cluster_info()
    group = info.brokers.get(broker)
    if group is None or not group.broker_addrs:
        raise CommandFailed(
            f"no broker {broker} is registered; 'raptormq cluster describe' shows those that are", ExitCode.NOT_FOUND
        )
    return [address for _, address in sorted(group.broker_addrs.items(), key=lambda item: item[0] != MASTER_ID)]


def show(broker: str, state: ReplicationState) -> None:
    """Write a view as text."""
    if state.mode == UNREPLICATED:
        echo(f"broker {broker} has no copies")
        _show_damage(broker, state)
        return
    leader = state.leader or "nobody"
    if state.mode == MASTER_SLAVE:
        echo(f"broker {broker}: {leader} is the master, {state.confirmed_offset} bytes are confirmed")
    else:
        echo(
            f"group {state.group} of broker {broker}, seen by {state.member}: {leader} leads in term {state.term},"
            f" {state.confirmed_offset} bytes are confirmed"
        )
    if state.remark:
        echo(state.remark, err=True)
    print_table(["member", "role", "address", "lag bytes", "lag ms", "state"], map(_row, state.members))
    if state.role not in ("leader", "master"):
        click.echo("only the leader knows how far the members are", err=True)
    _show_damage(broker, state)


def _show_damage(broker: str, state: ReplicationState) -> None:
    for each in state.damaged:
        echo(
            f"the commit log of {each.member or broker} is damaged and not repaired: {each.size} bytes at offset"
            f" {each.offset}: {each.reason}",
            err=True,
        )


def _row(member: CopyState) -> list[Cell]:
    state = {True: "up", False: "silent", None: None}[member.answering]
    return [member.id, member.role, member.address, member.lag_bytes, member.lag_millis, state]
