"""A click group that imports its commands on use.

The one-line help of each command is part of the declaration, so ``raptormq --help`` imports no command.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click


class LazyGroup(click.Group):
    """Commands by name: ``{"dev": ("raptormq.cli.dev:dev", "one line of help")}``."""

    def __init__(self, commands: Mapping[str, tuple[str, str]], *, name: str, summary: str, epilog: str) -> None:
        super().__init__(name=name, help=summary, epilog=epilog)
        self._declared = commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the declaration."""
        return list(self._declared)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in self._declared:
            return None
        module, _, attribute = self._declared[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self._declared.items()])
