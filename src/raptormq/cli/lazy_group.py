"""A click group that imports a command only when it is used.

The declaration contains the one-line help of each command, so ``raptormq --help`` imports no command. Other packages
can add commands with entry points, which cannot replace declared commands.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Group of commands that are imported on use.

    Args:
        commands: declaration, for example ``{"dev": ("raptormq.cli.dev:dev", "one line of help")}``.
        name: name of the group.
        summary: help of the group.
        epilog: text after the list of commands.
        entry_points: name of the entry points with which other packages add commands.
    """

    def __init__(
        self,
        commands: Mapping[str, tuple[str, str]],
        *,
        name: str,
        summary: str,
        epilog: str,
        entry_points: str | None = None,
    ) -> None:
        super().__init__(name=name, help=summary, epilog=epilog)
        self._declared = commands
        self._entry_points = entry_points

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the declaration."""
        return [*self._declared, *self._added()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in self._declared:
            added = self._added().get(cmd_name)
            return None if added is None else _loaded(added)
        module, _, attribute = self._declared[cmd_name][0].partition(":")
        command = getattr(_imported(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing the commands."""
        with formatter.section("Commands"):
            lines = [(name, summary) for name, (_, summary) in self._declared.items()]
            for name, added in self._added().items():
                lines.append((name, f"Commands of the package {added.module.partition('.')[0]}."))
            formatter.write_dl(lines)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions of a command or an option without importing the commands."""
        from click.shell_completion import CompletionItem  # slow to import for every command

        names = {name: summary for name, (_, summary) in self._declared.items()} | dict.fromkeys(self._added(), "")
        found = [CompletionItem(name, help=text) for name, text in names.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def _added(self) -> dict[str, EntryPoint]:
        """Return the commands of other packages, without those that have the name of a declared command."""
        if self._entry_points is None:
            return {}
        from importlib.metadata import entry_points  # slow to import for every command

        found = entry_points(group=self._entry_points)
        return {each.name: each for each in sorted(found) if each.name not in self._declared}


def _imported(module: str) -> ModuleType:
    """Import a module without garbage collections. The objects of modules are no garbage, and the collector would visit
    them more than a hundred times, which takes 6 % of the time in which a server starts.
    """
    if (imported := sys.modules.get(module)) is not None:
        return imported
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def _loaded(added: EntryPoint) -> click.Command:
    """Return the command of another package.

    Raises:
        ClickException: a dependency of the package is not installed.
    """
    try:
        command = added.load()
    except ImportError as error:
        extra = f"; try pip install 'raptormq[{added.name}]'" if added.dist and added.dist.name == "raptormq" else ""
        raise click.ClickException(f"cannot load command {added.name}: {error}{extra}") from error
    assert isinstance(command, click.Command)
    return command
