"""The scenarios in ``scenarios/`` have the recorded outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.transcript import FOLDER, outcome


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_it_goes_on_as_written(path: Path) -> None:
    expected = path.read_text(encoding="utf-8")
    assert outcome(expected) == expected
