"""Pages of docs/ compared with the sources. ``make lint`` checks the links."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import raptormq.client
import raptormq.errors
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


def test_the_reference_of_the_client_has_every_public_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs" / "hooks"), *sys.path])
    page: str = import_module("client_api").client_api()
    errors = {name for name, value in vars(raptormq.errors).items() if getattr(value, "__bases__", None)}
    titles = set(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    assert titles >= {*raptormq.client.__all__, *(name for name in errors if name.endswith("Error"))}
    assert "#### Producer.send\n\n```python\nasync send(\n    message: Message,\n    *,\n" in page
    assert "\n- `RequestTimeout`: no reply came in time; the message may have been consumed.\n" in page
