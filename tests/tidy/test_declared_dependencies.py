"""Imports of a package are declared in pyproject.toml, so that an image with one extra lacks no module.

The development environment has all extras. Without this test only users would detect a missing declaration.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OWN = {"raptormq", "raptormq_operator", "pyspark_raptormq"}


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution_names(requirements: list[str]) -> set[str]:
    return {normalized(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]) for requirement in requirements}


def imported_modules(folder: Path) -> set[str]:
    """Return the top-level names of every absolute import below `folder`, including those in functions."""
    names: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names.add(node.module.split(".")[0])
    return names - OWN - set(sys.stdlib_module_names)


installed = cache(packages_distributions)
"""Names of distributions by top-level module. Reading all of them is slow."""


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("src/raptormq", ["encryption", "faststream", "opentelemetry", "testcontainers", "testing"]),
        ("operator/raptormq_operator", ["operator"]),
        ("spark/pyspark_raptormq", ["spark"]),
    ],
)
def test_every_import_is_declared(folder: str, extras: list[str]) -> None:
    declared = distribution_names(project()["dependencies"])
    for extra in extras:
        declared |= distribution_names(project()["optional-dependencies"][extra])
    distributions = installed()
    modules = imported_modules(ROOT / folder)
    missing = {name for name in modules if declared.isdisjoint(map(normalized, distributions.get(name, [name])))}
    assert missing == set()


def test_every_declared_distribution_is_imported() -> None:
    """Users must not install packages that only tests need."""
    distributions = installed()
    imported = {
        normalized(distribution)
        for module in imported_modules(ROOT / "src" / "raptormq")
        for distribution in distributions.get(module, [])
    }
    assert distribution_names(project()["dependencies"]) - imported == set()


def test_the_lock_has_every_declared_distribution() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = {match[1] for match in re.finditer(r"^([a-z0-9-]+)(?:\[[a-z0-9,-]+\])?==", lock, flags=re.MULTILINE)}
    extras = project()["optional-dependencies"].values()
    wanted = [*project()["dependencies"], *(requirement for extra in extras for requirement in extra)]
    assert distribution_names(wanted) - locked == set()
