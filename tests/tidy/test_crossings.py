"""The page of crossings follows from the markers of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crossings import CANNOT_MEET, CONDITIONS, FEATURES, MODES, PAGE, collect, of_matrix, page

MARKED = """import pytest

pytestmark = [pytest.mark.faults, pytest.mark.crossing("sends", "none", "tls")]


@pytest.mark.crossing("pop", "dledger", "fail-over")
async def test_pop() -> None: ...


def test_send() -> None: ...


@crossing("operator", "dledger", "upgrade")
def scenario() -> None: ...
"""


def test_the_page_is_generated_from_the_markers() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.crossings"


def test_every_reason_belongs_to_a_cell_without_a_test() -> None:
    assert all(
        feature in FEATURES and mode in MODES and condition in CONDITIONS for feature, mode, condition in CANNOT_MEET
    )
    assert [each.test for each in of_matrix() + collect() if each.cell in CANNOT_MEET] == []


def test_markers_of_functions_and_modules_are_collected(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(MARKED, encoding="utf-8")
    found = [(each.cell, each.test.partition("::")[2]) for each in collect(tmp_path)]
    assert found == [
        (("operator", "dledger", "upgrade"), "scenario"),
        (("pop", "dledger", "fail-over"), "test_pop"),
        (("sends", "none", "tls"), "test_pop"),
        (("sends", "none", "tls"), "test_send"),
    ]


@pytest.mark.parametrize("arguments", ['"sends", "none"', '"sends", "raid", "tls"', '"x", "none", "tls"', "*CELL"])
def test_a_marker_with_unknown_words_is_refused(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "tests").mkdir()
    text = f"@pytest.mark.crossing({arguments})\ndef test_x() -> None: ...\n"
    (tmp_path / "tests" / "test_x.py").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"test_x.py::test_x: crossing"):
        collect(tmp_path)
