"""Seeded bugs, one table each in the TOML files beside this module::

    [[mutant]]
    name = "no-fdatasync"                                  # unique, for `--only`
    what = "nothing makes the contents of a file durable"
    file = "src/raptormq/storage/fs/real.py"       # that it is planted in
    old = "        os.fdatasync(self._fd)\n"               # stands in it exactly once
    new = "        pass\n"
    tests = ["tests/faults/test_power_cut.py"]             # for pytest; they have to go red

See also: :mod:`~tests.mutants.planted_tree` runs the tests.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


class StaleMutant(Exception):
    """The tree has changed: a mutant cannot be applied, or names a test that does not exist."""


@dataclass(frozen=True)
class Mutant:
    """One seeded bug, with the fields of the files."""

    name: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, root: Path) -> str:
        """Return the text of :attr:`file` below ``root`` with the bug.

        Raises:
            StaleMutant: ``old`` does not occur exactly once, or ``new`` is equal to it.
        """
        path = root / self.file
        if not path.is_file():
            raise StaleMutant(f"{self.name}: {self.file} does not exist")
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise StaleMutant(f"{self.name}: `old` occurs {count} times in {self.file} instead of once")
        if self.old == self.new:
            raise StaleMutant(f"{self.name}: `new` is equal to `old`")
        return text.replace(self.old, self.new)


def load(folder: Path = FOLDER) -> list[Mutant]:
    """Return all mutants, by file and in the order of the file.

    Raises:
        StaleMutant: Two mutants have the same name.
    """
    mutants: dict[str, Mutant] = {}
    for path in sorted(folder.glob("*.toml")):
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            mutant = Mutant(**table | {"tests": tuple(table["tests"])})
            if mutant.name in mutants:
                raise StaleMutant(f"two mutants have the name {mutant.name}")
            mutants[mutant.name] = mutant
    return list(mutants.values())
