"""Tables for people and JSON for machines."""

from __future__ import annotations

import json

import pytest

from raptormq.cli.output import position, print_json, print_table


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


def test_a_position_is_shown_as_it_can_be_given() -> None:
    shown = [position(each) for each in ("latest", 0, 1714564800000, 1714564800250, 10**17)]
    assert shown == [
        "latest",
        "1970-01-01T00:00:00Z",
        "2024-05-01T12:00:00Z",
        "2024-05-01T12:00:00.250Z",
        str(10**17),
    ]
