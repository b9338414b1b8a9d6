"""CPU time and memory of a process, and stolen time, read from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.process_usage import cpu_seconds, memory, stolen_seconds


def test_cpu_seconds_agree_with_what_the_kernel_tells_the_process_itself() -> None:
    times = os.times()
    assert abs(cpu_seconds(os.getpid()) - (times.user + times.system)) < 0.5


def test_memory_grows_with_what_is_written() -> None:
    before = memory(os.getpid())
    block = b"x" * 64_000_000
    after = memory(os.getpid())
    assert after.anonymous - before.anonymous > 0.9 * len(block)
    assert after.resident >= after.anonymous


def test_stolen_time_is_the_eighth_of_the_cpus_times(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "cpu  1 2 3 4 5 6 7 250 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    monkeypatch.setattr(Path, "read_text", lambda _path: text)
    assert stolen_seconds() == 250 / os.sysconf("SC_CLK_TCK")


def test_cpu_seconds_of_children_are_those_that_have_ended() -> None:
    before, own = cpu_seconds(os.getpid(), of_children=True), cpu_seconds(os.getpid())
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    used = cpu_seconds(os.getpid(), of_children=True) - before
    assert used >= 0.45
    assert cpu_seconds(os.getpid()) - own < used
