"""``raptormq user``: lists, shows, creates, changes and deletes users of servers with access control."""

from __future__ import annotations

from typing import Any

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.completing import user_names
from raptormq.cli.confirming import confirm
from raptormq.cli.exit_codes import CommandFailed, ExitCode
from raptormq.cli.options import name_servers_option, output_option, servers_option, timeout_option
from raptormq.cli.output import echo, print_json, print_table
from raptormq.cli.passwords import read_password
from raptormq.cli.server_scope import merged, require_on_all, require_on_none, shown_servers
from raptormq.client import AdminClient, UserInfo
from raptormq.client.admin import USER_STATUSES, USER_TYPES

_type = click.Choice([each.lower() for each in USER_TYPES])
_status = click.Choice(USER_STATUSES)
_Servers = tuple[str, ...]
_password_file = click.option(
    "--password-file",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="File with the password; - for standard input.",
)


@click.group(
    epilog="""\b
Examples:
  raptormq user create alice
  raptormq user list
  raptormq user update alice --status disable
  raptormq user delete alice --yes"""
)
def user() -> None:
    """List, show, create, change and delete users.

    The name of a user is the access key of its clients, the password their secret key. Each server has users of its
    own; the members of a replicated broker have the same ones. 'raptormq acl' gives users permissions.
    """


@user.command(
    name="list",
    epilog="""\b
Examples:
  raptormq user list
  raptormq user list ali -o json
  raptormq user list --server ns-0:9876""",
)
@click.argument("text", default="")
@servers_option
@output_option
@name_servers_option
@timeout_option
def list_users(text: str, servers: _Servers, output: str, name_servers: str, timeout_s: float) -> None:
    """List the users whose name contains TEXT, by default all users.

    The column servers names the servers that have a user, if not all have it. Passwords are not shown.
    """
    found = with_admin(name_servers, timeout_s, lambda admin: admin.users(text, servers=servers or None))
    _print(found, output)


@user.command(
    epilog="""\b
Examples:
  raptormq user show alice
  raptormq user show alice -o json"""
)
@click.argument("name", shell_complete=user_names)
@servers_option
@output_option
@name_servers_option
@timeout_option
def show(name: str, servers: _Servers, output: str, name_servers: str, timeout_s: float) -> None:
    """Show the user NAME: type, status, and the servers that have it. 'raptormq acl show' shows its permissions."""
    found = with_admin(name_servers, timeout_s, lambda admin: _of_name(admin, name, servers))
    if not any(found.values()):
        raise _missing(name)
    _print(found, output)


@user.command(
    epilog="""\b
Examples:
  raptormq user create alice
  raptormq user create alice --password-file alice.secret
  pwgen 32 1 | raptormq user create alice --password-file -
  raptormq user create admin --type super --password-file admin.secret --server ns-0:9876"""
)
@click.argument("name")
@_password_file
@click.option("--type", "user_type", type=_type, default="normal", show_default=True, help="super: all permissions.")
@click.option("--status", type=_status, default="enable", show_default=True, help="Whether the user may sign requests.")
@servers_option
@name_servers_option
@timeout_option
def create(
    name: str,
    password_file: str | None,
    user_type: str,
    status: str,
    servers: _Servers,
    name_servers: str,
    timeout_s: float,
) -> None:
    """Create the user NAME.

    The command prompts for the password, or reads it from a file or standard input. The password is sent as it is, so
    use --tls in networks that others can read.
    """

    async def check(admin: AdminClient) -> None:
        hint = "'raptormq user update' changes it, --server selects the servers where it is missing"
        require_on_none(f"user {name}", await _exists(admin, name, servers), hint)

    async def run(admin: AdminClient) -> None:
        kind = user_type.capitalize()
        await admin.create_user(name, password, user_type=kind, status=status, servers=servers or None)

    with_admin(name_servers, timeout_s, check)
    password = read_password(password_file, name)
    with_admin(name_servers, timeout_s, run)
    echo(f"user {name} is created")


@user.command(
    epilog="""\b
Examples:
  raptormq user update alice --ask-password
  raptormq user update alice --password-file alice.secret
  raptormq user update alice --status disable"""
)
@click.argument("name", shell_complete=user_names)
@_password_file
@click.option("--ask-password", is_flag=True, help="Prompt for a new password.")
@click.option("--type", "user_type", type=_type, help="super: all permissions.")
@click.option("--status", type=_status, help="Whether the user may sign requests.")
@servers_option
@name_servers_option
@timeout_option
def update(
    name: str,
    password_file: str | None,
    ask_password: bool,
    user_type: str | None,
    status: str | None,
    servers: _Servers,
    name_servers: str,
    timeout_s: float,
) -> None:
    """Change the password, the type or the status of the user NAME. What has no option is not changed."""
    if ask_password and password_file is not None:
        raise click.UsageError("--ask-password and --password-file are mutually exclusive")
    has_password = ask_password or password_file is not None
    if not has_password and user_type is None and status is None:
        raise click.UsageError("nothing to change: use --ask-password, --password-file, --type or --status")
    kind = user_type.capitalize() if user_type else None

    async def run(admin: AdminClient) -> None:
        await admin.update_user(name, password=password, user_type=kind, status=status, servers=servers or None)

    with_admin(name_servers, timeout_s, lambda admin: _require(admin, name, servers))
    password = read_password(password_file, name) if has_password else None
    with_admin(name_servers, timeout_s, run)
    echo(f"user {name} is changed")


@user.command(
    epilog="""\b
Examples:
  raptormq user delete alice
  raptormq user delete alice --yes"""
)
@click.argument("name", shell_complete=user_names)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@servers_option
@name_servers_option
@timeout_option
def delete(name: str, yes: bool, servers: _Servers, name_servers: str, timeout_s: float) -> None:
    """Delete the user NAME with its permissions. Servers that do not have the user are left as they are."""

    async def check(admin: AdminClient) -> None:
        if not any((await _exists(admin, name, servers)).values()):
            raise _missing(name)

    with_admin(name_servers, timeout_s, check)
    confirm(f"Delete user {name} with its permissions?", yes=yes)
    with_admin(name_servers, timeout_s, lambda admin: admin.delete_user(name, servers=servers or None))
    echo(f"user {name} is deleted")


def _missing(name: str) -> CommandFailed:
    return CommandFailed(f"user {name} does not exist; 'raptormq user list' shows the users", ExitCode.NOT_FOUND)


async def _of_name(admin: AdminClient, name: str, servers: _Servers) -> dict[str, list[UserInfo]]:
    found = await admin.users(name, servers=servers or None)
    return {address: [each for each in users if each.username == name] for address, users in found.items()}


async def _exists(admin: AdminClient, name: str, servers: _Servers) -> dict[str, bool]:
    return {address: bool(users) for address, users in (await _of_name(admin, name, servers)).items()}


async def _require(admin: AdminClient, name: str, servers: _Servers) -> None:
    require_on_all(f"user {name}", await _exists(admin, name, servers), "'raptormq user create' creates it")


def _print(found: dict[str, list[UserInfo]], output: str) -> None:
    users = sorted(merged(found).items(), key=lambda item: (item[0].username, item[1]))
    if output == "json":
        lines: list[dict[str, Any]] = [
            {"username": each.username, "type": each.type.lower(), "status": each.status, "servers": servers}
            for each, servers in users
        ]
        print_json(lines)
        return
    rows = [[each.username, each.type.lower(), each.status, shown_servers(where, len(found))] for each, where in users]
    print_table(["user", "type", "status", "servers"], rows)
