"""Thousands of connected consumers with nothing to consume: what they cost the broker.

Every consumer has a connection of its own and behaves as the official Java client does with its default settings: a
heartbeat every 30 s, the members of its group every 20 s, the progress of its queue every 5 s, and a pull that the
broker holds for 15 s. Ten consumers share a group, and a topic of ten queues: each has one. `idle_consumers_load` is
the load, a process of its own.
"""

from __future__ import annotations

import shutil
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
_SETTLE_SECONDS = 40.0
"""Longer than any period of the load: its first requests come all at once."""
_MEASURED_SECONDS = 60.0
_START_SECONDS = 120.0


def measure(groups: int, *, settle: float = _SETTLE_SECONDS, seconds: float = _MEASURED_SECONDS) -> list[Figure]:
    """Connect the consumers of `groups` groups, then watch the broker."""
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
                    share, resident = _watch(process, pid, settle, seconds)
                finally:
                    process.terminate()
    finally:
        shutil.rmtree(folder)
    errors.print(f"resident memory before anybody was connected: {before / 1e6:.0f} MB")
    what = f"{groups * GROUP_SIZE:,} idle consumers in {groups} groups"
    return [
        Figure(f"{what}, share of a CPU", share * 100, "%", CPU_GOAL_PERCENT),
        Figure(f"{what}, resident memory", resident / 1e6, "MB", MEMORY_GOAL_MB),
    ]


def _watch(process: subprocess.Popen[str], pid: int, settle: float, seconds: float) -> tuple[float, int]:
    assert process.stdout is not None
    if process.stdout.readline().strip() != "connected":
        raise ProcessError("the load of idle-consumers has failed")
    time.sleep(settle)
    begin, used = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    share = (cpu_seconds(pid) - used) / (time.monotonic() - begin)
    if process.poll() is not None:
        raise ProcessError("the load of idle-consumers has ended too early")
    return share, memory(pid).resident
