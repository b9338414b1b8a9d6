"""``raptormq acl``: lists, shows, creates, changes and deletes the permissions of users."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import click

from raptormq.cli.admin_call import with_admin
from raptormq.cli.completing import user_names
from raptormq.cli.confirming import confirm
from raptormq.cli.exit_codes import CommandFailed, ExitCode
from raptormq.cli.options import name_servers_option, output_option, servers_option, timeout_option
from raptormq.cli.output import echo, print_json, print_table
from raptormq.cli.server_scope import merged, require_on_all, require_on_none, shown_servers
from raptormq.client import Acl, AclEntry, AdminClient
from raptormq.client.admin import DECISIONS, GRANTABLE_ACTIONS
from raptormq.security.acls import POLICY_TYPES

_Servers = tuple[str, ...]
_Found = dict[str, list[Acl]]
_policy = click.option(
    "--policy",
    type=click.Choice([each.lower() for each in POLICY_TYPES]),
    default="custom",
    show_default=True,
    help="Default entries count only where no custom entry matches.",
)
_decision = click.Choice([each.lower() for each in DECISIONS])
_actions = click.Choice([each.lower() for each in GRANTABLE_ACTIONS])


@click.group(
    epilog="""\b
Examples:
  raptormq acl create alice --resource Topic:orders --action pub
  raptormq acl create alice --resource 'Group:billing*' --action sub --source-ip 10.0.0.0/8
  raptormq acl list --resource Topic:orders
  raptormq acl delete alice --resource Topic:orders --yes"""
)
def acl() -> None:
    """List, show, create, change and delete the permissions of users.

    The ACL of a user has an entry for each resource: Topic:NAME, Group:NAME, Cluster:NAME, a prefix such as
    Topic:orders*, all of a kind (Topic:*), or * for everything. What no entry allows is denied, except to super users.
    Of several entries that match, the one with the most specific resource counts.
    """


@acl.command(
    name="list",
    epilog="""\b
Examples:
  raptormq acl list
  raptormq acl list --resource Topic:orders -o json""",
)
@click.option("--user", "text", default="", help="Only users whose name contains this text.")
@click.option("--resource", default="", help="Only entries whose resource contains this text.")
@servers_option
@output_option
@name_servers_option
@timeout_option
def list_acls(text: str, resource: str, servers: _Servers, output: str, name_servers: str, timeout_s: float) -> None:
    """List the permissions of all users.

    The column servers names the servers that have an entry, if not all have it.
    """
    found = with_admin(name_servers, timeout_s, lambda admin: admin.acls(text, servers=servers or None))
    _print(found, output, resource)


@acl.command(
    epilog="""\b
Examples:
  raptormq acl show alice
  raptormq acl show alice -o json"""
)
@click.argument("user", shell_complete=user_names)
@servers_option
@output_option
@name_servers_option
@timeout_option
def show(user: str, servers: _Servers, output: str, name_servers: str, timeout_s: float) -> None:
    """Show the permissions of USER."""
    found = with_admin(name_servers, timeout_s, lambda admin: _of_user(admin, user, servers))
    if not any(found.values()):
        raise _without_acl(user)
    _print(found, output)


class _EntryOptions(NamedTuple):
    """The options that describe an entry of an ACL, with the terms of the protocol."""

    resource: str
    actions: tuple[str, ...]
    source_ips: tuple[str, ...]
    decision: str | None
    policy: str


def _entry_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of an entry, which ``command`` gets as one argument ``entry``."""

    @functools.wraps(command)
    def with_entry(
        *,
        resource: str,
        actions: tuple[str, ...],
        source_ips: tuple[str, ...],
        decision: str | None,
        policy: str,
        **others: Any,
    ) -> None:
        words = tuple(dict.fromkeys(action.capitalize() for action in actions))
        given = decision.capitalize() if decision else None
        command(entry=_EntryOptions(resource, words, source_ips, given, policy.capitalize()), **others)

    result: Callable[..., None] = with_entry
    for option in (
        _policy,
        click.option("--decision", type=_decision, help="Whether the actions are allowed; by default allow."),
        click.option(
            "--source-ip",
            "source_ips",
            multiple=True,
            metavar="ADDRESS",
            help="Only requests from this address or network, such as 10.0.0.0/8. Can be repeated.",
        ),
        click.option("--action", "actions", type=_actions, multiple=True, help="Can be repeated."),
        click.option("--resource", required=True, metavar="RESOURCE", help="Such as Topic:orders or 'Group:billing*'."),
    ):
        result = option(result)
    return result


@acl.command(
    epilog="""\b
Examples:
  raptormq acl create alice --resource Topic:orders --action pub
  raptormq acl create alice --resource 'Topic:*' --action all --decision deny --policy default"""
)
@click.argument("user", shell_complete=user_names)
@_entry_options
@servers_option
@name_servers_option
@timeout_option
def create(user: str, entry: _EntryOptions, servers: _Servers, name_servers: str, timeout_s: float) -> None:
    """Give USER an entry for a resource."""
    if not entry.actions:
        raise click.UsageError("Missing option '--action'")
    resource = entry.resource
    created = AclEntry(resource, entry.actions, entry.source_ips, entry.decision or "Allow", entry.policy)

    async def run(admin: AdminClient) -> None:
        users = await admin.users(user, servers=servers or None)
        has_user = {address: any(each.username == user for each in found) for address, found in users.items()}
        require_on_all(f"user {user}", has_user, "'raptormq user create' creates it")
        found = await _of_user(admin, user, servers)
        is_there = {address: _entry(acls, resource, entry.policy) is not None for address, acls in found.items()}
        hint = "'raptormq acl update' changes it, --server selects the servers where it is missing"
        require_on_none(f"the entry for {resource} of user {user}", is_there, hint)
        await admin.put_acl(user, [created], servers=servers or None)

    with_admin(name_servers, timeout_s, run)
    echo(f"user {user} has an entry for {resource}")


@acl.command(
    epilog="""\b
Examples:
  raptormq acl update alice --resource Topic:orders --action pub --action sub
  raptormq acl update alice --resource Topic:orders --decision deny"""
)
@click.argument("user", shell_complete=user_names)
@_entry_options
@servers_option
@name_servers_option
@timeout_option
def update(user: str, entry: _EntryOptions, servers: _Servers, name_servers: str, timeout_s: float) -> None:
    """Change the entry of USER for a resource. What has no option is not changed."""
    if not (entry.actions or entry.source_ips or entry.decision):
        raise click.UsageError("nothing to change: use --action, --source-ip or --decision")
    resource = entry.resource

    async def run(admin: AdminClient) -> None:
        found = await _of_user(admin, user, servers)
        entries = {address: _entry(acls, resource, entry.policy) for address, acls in found.items()}
        is_there = {address: present is not None for address, present in entries.items()}
        require_on_all(f"the entry for {resource} of user {user}", is_there, "'raptormq acl create' creates it")
        for address, present in entries.items():
            assert present is not None
            changed = replace(
                present,
                actions=entry.actions or present.actions,
                source_ips=entry.source_ips or present.source_ips,
                decision=entry.decision or present.decision,
            )
            await admin.put_acl(user, [changed], servers=[address])

    with_admin(name_servers, timeout_s, run)
    echo(f"the entry of user {user} for {resource} is changed")


@acl.command(
    epilog="""\b
Examples:
  raptormq acl delete alice --resource Topic:orders
  raptormq acl delete alice --yes"""
)
@click.argument("user", shell_complete=user_names)
@click.option("--resource", metavar="RESOURCE", help="Only the entry for this resource.")
@_policy
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@servers_option
@name_servers_option
@timeout_option
def delete(
    user: str,
    resource: str | None,
    policy: str,
    yes: bool,
    servers: _Servers,
    name_servers: str,
    timeout_s: float,
) -> None:
    """Delete all permissions of USER, or those for one resource. Servers that do not have them are left as they are."""
    kind = policy.capitalize()

    async def having(admin: AdminClient) -> list[str]:
        found = await _of_user(admin, user, servers)
        there = [each for each, acls in found.items() if acls and (resource is None or _entry(acls, resource, kind))]
        if not there:
            raise _without_acl(user, resource)
        return there

    async def run(admin: AdminClient) -> None:
        await admin.delete_acl(user, resource, policy=kind if resource else None, servers=there)

    there = with_admin(name_servers, timeout_s, having)
    what = f"the entry of user {user} for {resource}" if resource else f"all permissions of user {user}"
    confirm(f"Delete {what}?", yes=yes)
    with_admin(name_servers, timeout_s, run)
    echo(f"{what} {'is' if resource else 'are'} deleted")


async def _of_user(admin: AdminClient, user: str, servers: _Servers) -> _Found:
    found = await admin.acls(user, servers=servers or None)
    return {address: [acl for acl in acls if acl.username == user] for address, acls in found.items()}


def _entry(acls: list[Acl], resource: str, policy: str) -> AclEntry | None:
    entries = (entry for acl in acls for entry in acl.entries)
    return next((entry for entry in entries if (entry.resource, entry.policy) == (resource, policy)), None)


def _without_acl(user: str, resource: str | None = None) -> CommandFailed:
    what = f"no entry for {resource}" if resource else "no permissions"
    return CommandFailed(f"user {user} has {what}; 'raptormq acl list' shows the permissions", ExitCode.NOT_FOUND)


def _print(found: Mapping[str, list[Acl]], output: str, text: str = "") -> None:
    lines = merged(
        {
            address: [(acl.username, entry) for acl in acls for entry in acl.entries if text in entry.resource]
            for address, acls in found.items()
        }
    )
    ordered = sorted(lines.items(), key=lambda item: (item[0][0], item[0][1].policy, item[0][1].resource))
    if output == "json":
        print_json(
            [
                {
                    "user": user,
                    "policy": entry.policy.lower(),
                    "resource": entry.resource,
                    "actions": [action.lower() for action in entry.actions],
                    "source_ips": list(entry.source_ips),
                    "decision": entry.decision.lower(),
                    "servers": servers,
                }
                for (user, entry), servers in ordered
            ]
        )
        return
    rows = [
        [
            user,
            entry.policy.lower(),
            entry.resource,
            " ".join(entry.actions).lower(),
            " ".join(entry.source_ips) or None,
            entry.decision.lower(),
            shown_servers(servers, len(found)),
        ]
        for (user, entry), servers in ordered
    ]
    print_table(["user", "policy", "resource", "actions", "from", "decision", "servers"], rows)
