"""Tables for people and JSON for machines."""

from __future__ import annotations

import json

import pytest

from raptormq.cli.output import print_json, print_table


def test_a_table_in_a_pipe_is_not_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    print_table(["name", "count"], [[long, 1], ["[b]", 20], [None, None]])
    lines = capsys.readouterr().out.splitlines()
    assert any(long in line and line.rstrip().endswith(" 1") for line in lines)
    assert any("[b]" in line for line in lines)
    assert any(line.split() == ["-", "-"] for line in lines)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([{"a": 1}, "ü"])
    assert json.loads(capsys.readouterr().out) == [{"a": 1}, "ü"]
