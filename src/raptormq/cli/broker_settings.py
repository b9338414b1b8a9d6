"""``raptormq cluster settings``: shows and changes settings of running brokers."""

from __future__ import annotations

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.broker_members import member_addresses
from raptormq.cli.completing import broker_names, setting_keys, settings_to_set
from raptormq.cli.exit_codes import CommandFailed, ExitCode
from raptormq.cli.options import key_and_value, name_servers_option, output_option, timeout_option
from raptormq.cli.output import echo, print_json, print_table
from raptormq.client import AdminClient
from raptormq.errors import RaptorMQError


@click.group(
    epilog="""\b
Examples:
  raptormq cluster settings show broker-a
  raptormq cluster settings show broker-a flushDiskType fileReservedTime
  raptormq cluster settings set broker-a fileReservedTime=48"""
)
def settings() -> None:
    """Show and change settings of running brokers."""


@settings.command(
    epilog="""\b
Examples:
  raptormq cluster settings show broker-a
  raptormq cluster settings show broker-a flushDiskType fileReservedTime
  raptormq cluster settings show 10.0.0.8:10911 -o json | jq .flushDiskType"""
)
@click.argument("broker", shell_complete=broker_names)
@click.argument("keys", nargs=-1, metavar="[KEY]...", shell_complete=setting_keys)
@output_option
@name_servers_option
@timeout_option
def show(broker: str, keys: tuple[str, ...], output: str, name_servers: str, timeout_s: float) -> None:
    """Show the settings KEY of BROKER, by default all of them.

    BROKER is the name of a broker (its master or leader responds), or an address HOST:PORT.
    """

    async def run(admin: AdminClient) -> dict[str, str]:
        return await admin.broker_settings((await _addresses(admin, broker))[0])

    found = with_admin(name_servers, timeout_s, run)
    unknown = [key for key in keys if key not in found]
    if unknown:
        raise CommandFailed(
            f"broker {broker} has no setting {unknown[0]}; 'raptormq cluster settings show {broker}' shows all",
            ExitCode.NOT_FOUND,
        )
    shown = {key: found[key] for key in keys or sorted(found)}
    if output == "json":
        print_json(shown)
    else:
        print_table(["setting", "value"], shown.items())


@settings.command(
    name="set",
    epilog="""\b
Examples:
  raptormq cluster settings set broker-a fileReservedTime=48
  raptormq cluster settings set 10.0.0.8:10911 fileReservedTime=48 deleteWhen=03""",
)
@click.argument("broker", shell_complete=broker_names)
@click.argument(
    "pairs", nargs=-1, required=True, type=key_and_value, metavar="KEY=VALUE...", shell_complete=settings_to_set
)
@name_servers_option
@timeout_option
def set_settings(broker: str, pairs: tuple[tuple[str, str], ...], name_servers: str, timeout_s: float) -> None:
    """Change settings of BROKER, all or none, and write them to its settings file.

    BROKER is the name of a broker (all its registered members are changed), or an address HOST:PORT. Settings that
    a running broker cannot change take effect at its next start; the command names them. On Kubernetes, change
    spec.config of the BrokerCluster instead.
    """
    wanted = dict(pairs)
    if len(wanted) < len(pairs):
        raise click.UsageError("a setting is given twice")

    async def run(admin: AdminClient) -> None:
        changed: list[str] = []
        for address in await _addresses(admin, broker):
            try:
                remark = await admin.update_broker_settings(address, wanted)
            except RaptorMQError as error:
                if not changed:
                    raise
                raise CommandFailed(f"{error}; changed are {', '.join(changed)}: repeat the command") from error
            changed.append(address)
            echo(f"{address} has changed {', '.join(sorted(wanted))}" + (f"; {remark}" if remark else ""))

    with_admin(name_servers, timeout_s, run)


async def _addresses(admin: AdminClient, broker: str) -> list[str]:
    """Return the address that was given, or those of the members of a broker, the leader's first."""
    return [broker] if ":" in broker else await member_addresses(admin, broker)
