"""CPU time and memory of a process, read from /proc."""

from __future__ import annotations

import os

from bench.process_usage import cpu_seconds, memory


def test_cpu_seconds_agree_with_what_the_kernel_tells_the_process_itself() -> None:
    times = os.times()
    assert abs(cpu_seconds(os.getpid()) - (times.user + times.system)) < 0.5


def test_memory_grows_with_what_is_written() -> None:
    before = memory(os.getpid())
    block = b"x" * 64_000_000
    after = memory(os.getpid())
    assert after.anonymous - before.anonymous > 0.9 * len(block)
    assert after.resident >= after.anonymous
