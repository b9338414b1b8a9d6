"""Processes of a benchmark: one that continues after its work is killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.interop.rocketmq_java import ProcessError, WatchedProcess

HANG_S = 60.0


def program(code: str, folder: Path) -> WatchedProcess:
    return WatchedProcess("the program", [sys.executable, "-u", "-c", code], log=folder / "log")


def test_what_stays_after_its_work_is_ended(tmp_path: Path) -> None:
    process = program("import signal; print('work'); print('done'); signal.pause()", tmp_path)
    assert process.finish_after("done", HANG_S, 0.1) == ["work\n", "done\n"]
    assert process.process.poll() is not None


def test_what_fails_after_its_work_has_failed(tmp_path: Path) -> None:
    process = program("print('done'); raise SystemExit(3)", tmp_path)
    with pytest.raises(ProcessError, match="ended with exit code 3"):
        process.finish_after("done", HANG_S, HANG_S)


def test_what_ends_before_its_work_is_done_has_failed(tmp_path: Path) -> None:
    process = program("print('begun')", tmp_path)
    with pytest.raises(ProcessError, match="did not print 'done'"):
        process.finish_after("done", HANG_S, HANG_S)
    process.finish(HANG_S)
