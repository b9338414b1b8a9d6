"""Pages of docs/ compared with the sources. ``make lint`` checks the links."""

from __future__ import annotations

import re
from pathlib import Path

from raptormq.cli.exit_codes import ExitCode
from raptormq.protocol.codes import ResponseCode

ROOT = Path(__file__).resolve().parents[2]
CODES, EXIT_CODES = (
    (ROOT / "docs" / "reference" / "error-codes.md").read_text(encoding="utf-8").split("\n## Exit codes", 1)
)


def test_every_code_of_an_answer_is_explained() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\S[^|]*) \|", CODES, re.MULTILINE)
    assert [(int(number), name) for number, name, _ in rows] == [(code.value, code.name) for code in ResponseCode]


def test_every_exit_code_of_the_command_line_is_explained() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", EXIT_CODES, re.MULTILINE)] == list(ExitCode)


def test_readme_fits_two_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120
