"""The report of the command about a seeded bug is correct."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from tests.mutants.__main__ import hunt
from tests.mutants.mutant import Mutant, StaleMutant
from tests.mutants.planted_tree import PlantedTree

SOUND = "def double(number: int) -> int:\n    return number * 2\n"
TEST = """
import pathlib

import doubling
import pytest

@pytest.fixture
def three() -> int:
    return doubling.double(3) // (doubling.double(3) - 9)

def test_double() -> None:
    assert pathlib.Path(doubling.__file__).parents[1] == pathlib.Path.cwd()
    assert doubling.double(2) == 4

def test_fixture(three: int) -> None:
    assert three == -2
"""


@pytest.fixture
def small_tree(tmp_path: Path) -> PlantedTree:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src/doubling.py").write_text(SOUND)
    (root / "test_doubling.py").write_text(TEST)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (tmp_path / "planted").mkdir()
    return PlantedTree(root, tmp_path / "planted")


def seeded(name: str, new: str) -> Mutant:
    return Mutant(name, "-", "src/doubling.py", "number * 2", new, ("test_doubling.py",))


@pytest.mark.timeout(600)  # five runs of pytest
def test_what_is_said_of_a_bug(small_tree: PlantedTree) -> None:
    bugs = {
        "found": seeded("other-number", "number * 3"),
        "survived": seeded("other-way", "number + number"),
        "unknown": seeded("no-syntax", "number *"),
        "unknown, too": seeded("no-fixture", "4 if number == 2 else 9"),
    }
    output = io.StringIO()
    assert hunt(Console(file=output, width=120), small_tree, list(bugs.values())) == 1
    said = re.findall(r"^./4 (.*), \d+ s$", output.getvalue(), re.MULTILINE)
    assert said == [f"{bug.name}: {verdict.partition(',')[0]}" for verdict, bug in bugs.items()]
    assert (small_tree.root / "src/doubling.py").read_text() == SOUND


def test_all_bugs_are_found(small_tree: PlantedTree) -> None:
    assert hunt(Console(file=io.StringIO()), small_tree, [seeded("other-number", "number * 3")]) == 0


def test_tests_that_fail_without_a_bug_say_nothing(small_tree: PlantedTree) -> None:
    (small_tree.root / "src/doubling.py").write_text(SOUND.replace("* 2", "* 5"))
    output = io.StringIO()
    bug = Mutant("other-number", "-", "src/doubling.py", "number * 5", "number * 3", ("test_doubling.py",))
    assert hunt(Console(file=output), small_tree, [bug]) == 2
    assert "fail without a bug" in output.getvalue()


@pytest.mark.parametrize("old", ["number * 4", "number"], ids=["nowhere", "twice"])
def test_what_does_not_stand_there_once_is_refused(small_tree: PlantedTree, old: str) -> None:
    with pytest.raises(StaleMutant, match=r"times in src/doubling.py"):
        Mutant("stale", "-", "src/doubling.py", old, "0", ()).planted(small_tree.root)
