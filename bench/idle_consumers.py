"""Cost of thousands of idle consumers.

Every consumer has its own connection and behaves like the official Java client with its default settings: a heartbeat
every 30 s, the members of its group every 20 s, the offset of its queue every 5 s, and pulls of 15 s, which brokers
hold for up to 20 s. Ten consumers form a group and share a topic of ten queues. `idle_consumers_load` is the load, in a
separate process.

The CPU usage is measured in several windows. Other tenants of the machine slow it down by half for seconds at a time
and can only increase the value. The minimum is therefore closest to the broker's own usage; the median is the
observed usage.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figure import Figure
from bench.output import errors
from bench.process_usage import cpu_seconds, memory
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import ProcessError

FULL, QUICK = 500, 20
GROUP_SIZE = 10
CPU_GOAL_PERCENT, MEMORY_GOAL_MB = 10, 400
_SETTLE_S = 40.0
"""Time in seconds before the first window. All first requests are sent at the same time, so the time is longer than
every period of the load."""
_WINDOW_S = 20.0
"""Length of a window in seconds. It equals the period of the pulls, so every window has the same number of pulls."""
_WINDOWS = 6
_START_S = 120.0


def measure(groups: int, *, settle: float = _SETTLE_S, seconds: float = _WINDOW_S) -> list[Figure]:
    """Connect the consumers of `groups` groups and measure the broker."""
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    descriptors = ["prlimit", "--nofile=20000:20000"]
    try:
        with RaptorMQDev(folder, prefix=descriptors) as server:
            assert server.broker is not None
            pid = server.broker.pid
            before = memory(pid).resident
            load = [sys.executable, "-m", "bench.idle_consumers_load", f"127.0.0.1:{server.broker_port}"]
            with subprocess.Popen([*descriptors, *load, str(groups)], stdout=subprocess.PIPE, text=True) as process:
                try:
                    shares, resident = _watch(process, pid, settle, seconds)
                finally:
                    process.terminate()
    finally:
        shutil.rmtree(folder)
    errors.print(f"resident memory before anybody was connected: {before / 1e6:.0f} MB")
    what = f"{groups * GROUP_SIZE:,} idle consumers in {groups} groups"
    return [
        Figure(f"{what}, share of a CPU, least of {_WINDOWS} windows", min(shares) * 100, "%", CPU_GOAL_PERCENT),
        Figure(f"{what}, share of a CPU, median", statistics.median(shares) * 100, "%", CPU_GOAL_PERCENT),
        Figure(f"{what}, resident memory", resident / 1e6, "MB", MEMORY_GOAL_MB),
    ]


def _watch(process: subprocess.Popen[str], pid: int, settle: float, seconds: float) -> tuple[list[float], int]:
    assert process.stdout is not None
    if process.stdout.readline().strip() != "connected":
        raise ProcessError("the load of idle-consumers has failed")
    time.sleep(settle)
    shares = [_share(pid, seconds) for _ in range(_WINDOWS)]
    if process.poll() is not None:
        raise ProcessError("the load of idle-consumers has ended too early")
    return shares, memory(pid).resident


def _share(pid: int, seconds: float) -> float:
    begin, used = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - used) / (time.monotonic() - begin)
