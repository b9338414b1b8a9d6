"""The seeded bugs (``tests/mutants``) match the sources: each can be applied, and its tests exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.mutants.mutant import Mutant, load

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutant", load(), ids=lambda mutant: mutant.name)
def test_it_can_be_planted_and_its_tests_are_there(mutant: Mutant) -> None:
    planted = mutant.planted(ROOT)
    if mutant.file.endswith(".py"):
        ast.parse(planted)
    assert mutant.tests
    for test in mutant.tests:
        path, *names = re.sub(r"\[.*\]$", "", test).split("::")
        source = ROOT / path
        assert source.exists(), test
        if names:
            known = {node.name for node in ast.walk(ast.parse(source.read_text())) if hasattr(node, "name")}
            assert set(names) <= known, test
