"""Rounds of faults against brokers of real processes, from the command line.

    python -m tests.faults.fault_rounds --rounds 20 --seed 7 --report docs/explanation/fault-rounds.md
    python -m tests.faults.fault_rounds --kind power --rounds 10 --report docs/explanation/fault-rounds.md

See also: :mod:`~tests.faults.group_rounds` and :mod:`~tests.faults.master_rounds` run them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from tests.faults import group_rounds, master_rounds
from tests.faults.network import NamespacesRefused
from tests.faults.rounds import Result, Round, chosen
from tests.faults.rounds_page import row, with_section

TITLES = {
    "group": "Dledger group",
    "power": "Power failures with SYNC_FLUSH",
    "power-async": "Power failures with ASYNC_FLUSH",
    "permissions": "Users and permissions",
    "promotion": "The old master after a promotion",
    "interleaved": "Interleaved masters and slaves",
}
"""Titles of the kinds of rounds in the documentation, by name."""


@click.command()
@click.option("--kind", type=click.Choice([*TITLES]), default="group", show_default=True, help="What runs.")
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Number of rounds.")
@click.option("--seed", default=1, show_default=True, help="Chooses the faults and their order.")
@click.option(
    "--fault",
    "names",
    type=click.Choice(sorted({fault.__name__ for kind in group_rounds.KINDS.values() for fault in kind.faults})),
    multiple=True,
    help="Play these faults of a group, in this order, in place of chosen ones. Can be repeated.",
)
@click.option(
    "--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder to keep the logs of the brokers."
)
@click.option("--report", "page", type=click.Path(dir_okay=False, path_type=Path), help="Page to write.")
def main(kind: str, rounds: int, seed: int, names: Sequence[str], logs: Path | None, page: Path | None) -> None:
    """Run rounds of faults against real processes, and check the result."""
    logging.getLogger("raptormq").addHandler(logging.NullHandler())
    click.echo("| round | fault | s | acknowledged | refused | longest gap, s |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="raptormq-rounds-") as folder:
        try:
            result = asyncio.run(_run(kind, Path(folder), seed, rounds, names))
        except NamespacesRefused as error:
            raise click.ClickException(f"fault rounds require root and network namespaces: {error}") from error
        finally:
            if logs is not None:
                logs.mkdir(exist_ok=True)
                for log in Path(folder).glob("*.log"):
                    shutil.copy(log, logs)
    if page is not None:
        page.write_text(with_section(page.read_text(encoding="utf-8"), kind, TITLES[kind], result), encoding="utf-8")
    found = f"{len(result.violations)} violations"
    click.echo(f"{result.acknowledged} acknowledged, {result.empty} empty pulls, {found}; seed {seed}")
    if result.violations:
        raise click.ClickException("; ".join(result.violations))


async def _run(kind: str, folder: Path, seed: int, rounds: int, names: Sequence[str]) -> Result:
    numbers = iter(range(1, 1_000_000))

    def report(ended: Round) -> None:
        click.echo(row(next(numbers), ended))

    if kind in master_rounds.SETUPS:
        return await master_rounds.run(folder, seed, rounds, kind, report)
    played = group_rounds.KINDS[kind]
    by_name = {fault.__name__: fault for each in group_rounds.KINDS.values() for fault in each.faults}
    faults = [by_name[name] for name in names] or chosen(seed, rounds, played.faults)
    return await group_rounds.run(folder, seed, faults, report, played)


if __name__ == "__main__":
    main()
