"""The wheel that every image installs: three packages with their type markers, the command, and no other file."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"raptormq", "raptormq_operator", "pyspark_raptormq"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.glob("raptormq-*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_it_holds_the_three_packages_and_their_type_markers(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    top_level = {name.split("/")[0] for name in names}
    assert {name for name in top_level if not name.endswith(".dist-info")} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)


def test_it_has_the_command_and_the_license(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = [name for name in wheel.namelist() if name.endswith("/entry_points.txt")]
    assert "raptormq = raptormq.cli:main" in wheel.read(entry_points).decode()
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())
