"""The table of a group that comes late: runs of the same setting stand together."""

from __future__ import annotations

from bench.late_group import LateGroup, table


def test_a_row_for_each_run_by_setting() -> None:
    runs = [LateGroup("1G", 4_194_304, 20, 8), LateGroup("0", 4_194_304, 25, 4), LateGroup("1G", 4_194_304, 21, 9)]
    rows = table(runs).splitlines()[2:]
    assert rows[0] == "| `logBytesKeptInPageCache=1G` | 4.0 | 20 | 209,715 | 524,288 |"
    assert [row.split("`")[1] for row in rows] == ["logBytesKeptInPageCache=1G"] * 2 + ["logBytesKeptInPageCache=0"]
