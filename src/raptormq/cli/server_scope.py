"""Compares the users and ACLs of several servers, and formats the differences.

Each server has its own users, which are usually the same on all servers of a cluster. A command therefore checks all
servers before it changes the first one, and a list has a separate line for each difference.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from raptormq.cli.exit_codes import CommandFailed, ExitCode

T = TypeVar("T", bound=Hashable)


def merged(found: Mapping[str, Iterable[T]]) -> dict[T, list[str]]:
    """Return the addresses of the servers that have each item, both in order of appearance."""
    servers: dict[T, list[str]] = {}
    for address in sorted(found):
        for item in found[address]:
            servers.setdefault(item, []).append(address)
    return servers


def shown_servers(servers: list[str], everywhere: int) -> str:
    """Return the table cell for the servers that have an item: ``all`` if their number is ``everywhere``."""
    return "all" if len(servers) == everywhere else ", ".join(servers)


def require_on_all(what: str, found: Mapping[str, bool], hint: str) -> None:
    """Check that all servers have ``what``.

    Raises:
        CommandFailed: a server does not have it (exit code 4).
    """
    missing = sorted(address for address, is_there in found.items() if not is_there)
    if missing:
        raise CommandFailed(f"{what} does not exist on {', '.join(missing)}; {hint}", ExitCode.NOT_FOUND)


def require_on_none(what: str, found: Mapping[str, bool], hint: str) -> None:
    """Check that no server has ``what``.

    Raises:
        CommandFailed: a server has it.
    """
    there = sorted(address for address, is_there in found.items() if is_there)
    if there:
        raise CommandFailed(f"{what} exists on {', '.join(there)}; {hint}")
