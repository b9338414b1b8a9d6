"""``raptormq cluster promote``: makes a slave the master, and tells what may be lost."""

from __future__ import annotations

from collections.abc import Mapping

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.confirming import confirm
from raptormq.cli.exit_codes import CommandFailed
from raptormq.cli.options import name_servers_option, output_option, promotion_timeout_option
from raptormq.cli.output import echo, print_json

_MASTER_END, _OWN_END = "haMasterEnd", "commitLogMaxOffset"


@click.command(
    epilog="""\b
Examples:
  raptormq cluster promote 10.0.0.8:10911
  raptormq cluster promote 10.0.0.8:10911 --yes -o json"""
)
@click.argument("address")
@click.option(
    "--force",
    is_flag=True,
    help="Also while the master responds: then both take messages. Also if this log begins after that of the master.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@output_option
@name_servers_option
@promotion_timeout_option
def promote(address: str, force: bool, yes: bool, output: str, name_servers: str, timeout_s: float) -> None:
    """Promote the slave at ADDRESS (host:port) to master.

    Stop its master first. Messages that only the master has are lost to clients. The command shows how many bytes that
    is, as far as the slave knows, and asks for confirmation. The slave accepts messages at once and saves its role in
    its settings file. Start the old master again only as a slave with an empty store, never as a master.
    """
    facts = with_admin(name_servers, timeout_s, lambda admin: admin.runtime_info(address))
    click.echo(_before(address, facts), err=True)
    confirm(f"Make {address} the master?", yes=yes)
    own, master = with_admin(name_servers, timeout_s, lambda admin: admin.promote_slave(address, force=force))
    if output == "json":
        print_json({"address": address, "log_end": own, "master_end": master, "lost_from": own})
        return
    echo(
        f"{address} is the master: its log goes on at offset {own}. Messages that the old master has from"
        f" {own} on are not here."
    )


def _before(address: str, facts: Mapping[str, str]) -> str:
    """Return a text about the messages that the promotion may lose, as far as the slave knows.

    Raises:
        CommandFailed: the broker is not a slave.
    """
    try:
        own, master = int(facts[_OWN_END]), int(facts[_MASTER_END])
    except (KeyError, ValueError):
        raise CommandFailed(f"{address} is not a slave: 'raptormq cluster describe' shows the slaves") from None
    known = f"offsets {own} to {master} of the log, {master - own} bytes, and " if master > own else ""
    return (
        f"The log of {address} ends at offset {own}; its master's ended at {master} when it last heard of it. Lost are"
        f" {known}what the master took since."
    )
