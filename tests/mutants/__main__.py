"""Applies each seeded bug to a copy of the tree, and reports the bugs that their tests do not find.

    python -m tests.mutants                                all of them
    python -m tests.mutants --only no-fdatasync,no-syncfs  only these

Exit code 0: every bug was found. 1: at least one was not found. 2: no result, because a bug cannot be applied or the
tests fail without a bug.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.mutants.mutant import Mutant, StaleMutant, load
from tests.mutants.planted_tree import PlantedTree, Run, Verdict

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Are the seeded bugs found?")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of mutants, separated by commas")
    console = Console(highlight=False)
    try:
        mutants = chosen(load(), parser.parse_args().only)
        for mutant in mutants:
            mutant.planted(ROOT)
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            return hunt(console, PlantedTree(ROOT, Path(folder)), mutants)
    except StaleMutant as error:
        console.print(f"error: {error}", markup=False)
        return 2


def chosen(mutants: list[Mutant], only: list[str] | None) -> list[Mutant]:
    """Return the mutants with these names; all without names.

    Raises:
        StaleMutant: A name is unknown.
    """
    if only is None:
        return mutants
    if unknown := set(only) - {mutant.name for mutant in mutants}:
        raise StaleMutant(f"there is no mutant with the name {', '.join(sorted(unknown))}")
    return [mutant for mutant in mutants if mutant.name in only]


def hunt(console: Console, tree: PlantedTree, mutants: list[Mutant]) -> int:
    """Run the tests without a bug and with each bug. Return the exit code."""
    tests = dict.fromkeys(test for mutant in mutants for test in mutant.tests)
    sound = tree.run(tests)
    if sound.verdict is not Verdict.SURVIVED:
        console.print(f"the tests fail without a bug\n{sound.output}", markup=False)
        return 2
    console.print(f"without a bug: passed, {sound.seconds:.0f} s")
    runs: list[tuple[Mutant, Run]] = []
    for number, mutant in enumerate(mutants, 1):
        with tree.with_bug(mutant):
            run = tree.run(mutant.tests)
        runs.append((mutant, run))
        console.print(f"{number}/{len(mutants)} {mutant.name}: {run.verdict}, {run.seconds:.0f} s", markup=False)
        if run.verdict is Verdict.UNKNOWN:
            console.print(run.output, markup=False)
    console.print(table(runs))
    return int(any(run.verdict is not Verdict.FOUND for _, run in runs))


def table(runs: list[tuple[Mutant, Run]]) -> Table:
    """Return the summary."""
    shown = Table("mutant", "what", "verdict", "s")
    for mutant, run in runs:
        shown.add_row(mutant.name, mutant.what, run.verdict, f"{run.seconds:.0f}")
    return shown


if __name__ == "__main__":
    sys.exit(main())
