"""`--shuffle SEED` reorders the tests randomly, always in the same order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MANY = """
import pytest

@pytest.fixture(scope="module", params=range(3))
def shared(request: pytest.FixtureRequest) -> int:
    return request.param

@pytest.mark.parametrize("number", range(8))
def test_it(shared: int, number: int) -> None:
    assert number != 7
"""


def run(folder: Path, *arguments: str) -> tuple[list[str], str]:
    """Return the tests in the order of their execution, and the whole output."""
    (folder / "test_it.py").write_text(MANY)
    options = ["-v", "-p", "tests.conftest", "-p", "no:cacheprovider", f"--rootdir={folder}", *arguments]
    command = [sys.executable, "-m", "pytest", *options, str(folder / "test_it.py")]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "3 failed, 21 passed" in done.stdout, done.stdout + done.stderr
    return re.findall(r"(test_it\[\d-\d\]) (?:PASSED|FAILED)", done.stdout), done.stdout


def test_an_order_is_random_and_comes_again_with_its_seed(tmp_path: Path) -> None:
    plain, said = run(tmp_path)
    assert len(plain) == 24
    assert "--shuffle" not in said
    first, said = run(tmp_path, "--shuffle", "5")
    assert "the order of the tests was that of --shuffle 5\n" in said
    assert sorted(first) == sorted(plain)
    assert len({test.partition("-")[0] for test in first[:8]}) > 1, "tests that share a fixture are still together"
    assert run(tmp_path, "--shuffle", "5")[0] == first
    assert run(tmp_path, "--shuffle", "6")[0] != first
