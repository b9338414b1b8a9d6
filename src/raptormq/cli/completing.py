"""Completion of the names of topics, groups, users, brokers and settings. An unreachable cluster completes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click

from raptormq.cli.admin_call import with_admin
from raptormq.client import AdminClient
from raptormq.config_file import known_keys
from raptormq.errors import RaptorMQError

TIMEOUT_S = 1.0
"""Time limit of a request, in seconds: a user waits for the completion."""


def topic_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics that begin with ``incomplete``. Internal topics need their ``%`` or prefix."""
    return [name for name in _ask(context, lambda admin: admin.topics()) if _fits(name, incomplete)]


def group_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the consumer groups that begin with ``incomplete``."""
    return [name for name in _ask(context, lambda admin: admin.groups()) if name.startswith(incomplete)]


def user_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the users that begin with ``incomplete``."""

    async def users(admin: AdminClient) -> list[str]:
        servers = context.params.get("servers") or None
        return list({user.username for users in (await admin.users(servers=servers)).values() for user in users})

    return [name for name in _ask(context, users) if name.startswith(incomplete)]


def broker_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the brokers that begin with ``incomplete``."""

    async def brokers(admin: AdminClient) -> list[str]:
        return list((await admin.cluster_info()).brokers)

    return [name for name in _ask(context, brokers) if name.startswith(incomplete)]


def setting_keys(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the settings of brokers that begin with ``incomplete``."""
    from raptormq.broker.config import BrokerConfig

    return sorted(key for key in known_keys(BrokerConfig) if key.startswith(incomplete))


def settings_to_set(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the settings of brokers that begin with ``incomplete``, each followed by ``=``."""
    return [f"{key}=" for key in setting_keys(context, parameter, incomplete)]


def _fits(name: str, incomplete: str) -> bool:
    return name.startswith(incomplete) and (incomplete.startswith("%") or not name.startswith("%"))


def _ask(context: click.Context, run: Callable[[AdminClient], Awaitable[list[str]]]) -> list[str]:
    async def names(admin: AdminClient) -> list[str]:
        async with asyncio.timeout(2 * TIMEOUT_S):
            return sorted(await run(admin))

    try:
        with context.scope(cleanup=False):  # the connection options are those of the command that is completed
            return with_admin(context.params["name_servers"], TIMEOUT_S, names)
    except (RaptorMQError, click.UsageError, OSError, TimeoutError):
        return []
