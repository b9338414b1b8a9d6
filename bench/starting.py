"""Startup time of `raptormq dev`, its resource usage when idle, and the time to open 10 GB of log."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from bench.figure import Figure
from bench.filled_log import fill_log
from bench.process_usage import cpu_seconds, memory
from tests.interop.raptormq_dev import RaptorMQDev

STARTS = 5
PROPAGATION_TIMEOUT_S = 5.0


def ready_time(folder: Path) -> list[Figure]:
    """Measure the time from the start of the process to its line `ready`, with an empty folder; median of several
    starts."""
    seconds = [_start_seconds(folder / f"ready-{number}") for number in range(STARTS)]
    return [Figure("`raptormq dev` ready", median(seconds), "s", 2)]


def idle(folder: Path, seconds: float) -> list[Figure]:
    """Measure memory and CPU usage without connected clients."""
    with RaptorMQDev(folder / "idle") as server:
        assert server.broker is not None
        time.sleep(PROPAGATION_TIMEOUT_S)
        before = cpu_seconds(server.broker.pid)
        time.sleep(seconds)
        share = (cpu_seconds(server.broker.pid) - before) / seconds
        resident = memory(server.broker.pid).resident
    return [
        Figure("idle, resident memory", resident / 1e6, "MB", 100),
        Figure("idle, share of a CPU", share * 100, "%", 2),
    ]


def large_log(folder: Path, log_bytes: int) -> list[Figure]:
    """Measure the start with a cleanly closed log of `log_bytes`."""
    large = folder / "large"
    fill_log(large / "store", log_bytes)
    return [Figure(f"ready with {log_bytes / 1e9:g} GB of log after a clean stop", _start_seconds(large), "s", 5)]


def _start_seconds(folder: Path) -> float:
    server = RaptorMQDev(folder)
    begin = time.monotonic()
    server.start()
    seconds = time.monotonic() - begin
    server.stop()
    return seconds
