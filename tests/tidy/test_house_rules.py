"""Rules of CONTRIBUTING.md that no linter checks: names, paths of machines, sleeps, skips.

Each test lists all violations.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT_FOLDERS = ("src", "operator", "spark", "demo", "bench", "e2e", "examples")
JUNK_DRAWERS = {"common", "helper", "helpers", "misc", "util", "utils"}
# Split in two, so that this file obeys its own rule.
MACHINE_FOLDERS = ["wo" + "rk/", "ro" + "ot/", "ho" + "me/[a-z]", "tmp/r" + "mq"]
MACHINE_PATHS = re.compile(rf"(?<![A-Za-z0-9._-])/(?:{'|'.join(MACHINE_FOLDERS)})")
LEFTOVERS = re.compile(rf"\b(?:{'|'.join(['TO' + 'DO', 'FIX' + 'ME', 'XX' + 'X'])})\b")
TEXT_SUFFIXES = {
    ".py",
    ".sh",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".java",
    ".js",
    ".go",
    ".xml",
    ".json",
    ".tpl",
    ".txt",
    ".lock",
    ".conf",
    "",
}


@cache
def committed_files() -> tuple[Path, ...]:
    """Return every file that git tracks or would add."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return tuple(sorted(path for path in paths if path.is_file()))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*folders: str) -> list[Path]:
    return [path for path in committed_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders]


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes(path: Path) -> dict[type[ast.AST], list[Any]]:
    """Return the nodes of a file's syntax tree by type. Trees are large, and several rules use them."""
    found: dict[type[ast.AST], list[Any]] = defaultdict(list)
    for node in ast.walk(syntax_tree(path)):
        found[type(node)].append(node)
    return found


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [*nodes(path)[ast.FunctionDef], *nodes(path)[ast.AsyncFunctionDef]]


def committed_text() -> Iterator[tuple[Path, str]]:
    """Return every tracked text file with its contents."""
    for path in committed_files():
        if path.suffix in TEXT_SUFFIXES and path.name != "LICENSE":
            yield path, path.read_text(encoding="utf-8")


def test_the_rules_see_the_sources() -> None:
    names = [relative(path) for path in python_files(*PRODUCT_FOLDERS)]
    assert {"src/raptormq/__init__.py", "src/raptormq/errors.py"} <= set(names)


def test_no_module_is_a_junk_drawer() -> None:
    files = python_files(*PRODUCT_FOLDERS, "tests")
    assert [relative(path) for path in files if JUNK_DRAWERS & {*path.relative_to(ROOT).parent.parts, path.stem}] == []


@pytest.mark.parametrize(
    ("what", "pattern"), [("a path of some machine", MACHINE_PATHS), ("something left for later", LEFTOVERS)]
)
def test_no_committed_line_names(what: str, pattern: re.Pattern[str]) -> None:
    offenders = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path, text in committed_text()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]
    assert offenders == [], what


def test_the_lock_names_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    requirements = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(requirements) > 20
    pinned = re.compile(r"[a-z0-9-]+(\[[a-z0-9,-]+\])?==[^ ]+( ; .*)? \\$")
    assert [line for line in requirements if not pinned.match(line)] == []
    assert "://" not in lock


def test_the_locks_of_other_languages_name_no_registry() -> None:
    packages = json.loads((ROOT / "tests/interop/node/package-lock.json").read_text(encoding="utf-8"))["packages"]
    locked = [entry for path, entry in packages.items() if path]
    assert len(locked) > 20
    assert [entry for entry in locked if not entry["integrity"].startswith("sha512-")] == []
    assert "://" not in json.dumps(packages)
    sums = (ROOT / "tests/interop/go/go.sum").read_text(encoding="utf-8").splitlines()
    assert [line for line in sums if not re.match(r"[\w./-]+ v\S+ h1:\S+=$", line)] == []


def is_waiting(call: ast.Call) -> bool:
    """Return whether a call is `time.sleep(x)`, or `asyncio.sleep(x)` except for 0, which only yields to the event
    loop.
    """
    function = call.func
    if not (isinstance(function, ast.Attribute) and function.attr == "sleep" and isinstance(function.value, ast.Name)):
        return False
    yields_only = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return function.value.id in {"time", "asyncio"} and not yields_only


def test_tests_wait_for_conditions_not_for_time() -> None:
    """A sleep is permitted only in a loop that polls a condition."""
    offenders = []
    for path in python_files("tests"):
        waiting = [call for call in nodes(path)[ast.Call] if is_waiting(call)]
        polled = {id(inner) for loop in nodes(path)[ast.While] for inner in ast.walk(loop)} if waiting else set()
        offenders += [f"{relative(path)}:{call.lineno}" for call in waiting if id(call) not in polled]
    assert offenders == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    excuses = {"skip", "skipif", "xfail", "importorskip"}
    offenders = [
        f"{relative(path)}:{node.lineno} {node.attr}"
        for path in python_files("tests")
        for node in nodes(path)[ast.Attribute]
        if node.attr in excuses and "pytest" in ast.unparse(node.value)
    ]
    assert offenders == []
