"""How fast `raptormq dev` is ready, what it uses while nobody talks to it, and how fast it opens 10 GB of log."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from rich.progress import track

from bench.figure import Figure
from bench.output import errors
from bench.process_usage import cpu_seconds, memory
from raptormq.storage import MessageStore, PendingRecord, StoreConfig
from tests.interop.raptormq_dev import RaptorMQDev

STARTS = 5
SETTLE_S = 5.0
GROUP = 64
BODY_BYTES = 1024
QUEUES = 16


def ready_time(folder: Path) -> list[Figure]:
    """From the start of the process to its line `ready`, over an empty folder; the median of some starts."""
    seconds = [_start_seconds(folder / f"ready-{number}") for number in range(STARTS)]
    return [Figure("`raptormq dev` ready", median(seconds), "s", 2)]


def idle(folder: Path, seconds: float) -> list[Figure]:
    """Memory and CPU share with no client connected."""
    with RaptorMQDev(folder / "idle") as server:
        assert server.broker is not None
        time.sleep(SETTLE_S)
        before = cpu_seconds(server.broker.pid)
        time.sleep(seconds)
        share = (cpu_seconds(server.broker.pid) - before) / seconds
        resident = memory(server.broker.pid).resident
    return [
        Figure("idle, resident memory", resident / 1e6, "MB", 100),
        Figure("idle, share of a CPU", share * 100, "%", 2),
    ]


def large_log(folder: Path, log_bytes: int) -> list[Figure]:
    """Start with a log of `log_bytes` that was closed cleanly."""
    large = folder / "large"
    _fill(large / "store", log_bytes)
    return [Figure(f"ready with {log_bytes / 1e9:g} GB of log after a clean stop", _start_seconds(large), "s", 5)]


def _start_seconds(folder: Path) -> float:
    server = RaptorMQDev(folder)
    begin = time.monotonic()
    server.start()
    seconds = time.monotonic() - begin
    server.stop()
    return seconds


def _fill(root: Path, log_bytes: int) -> None:
    root.mkdir(parents=True)
    store = MessageStore(StoreConfig(root_dir=root))
    store.open()
    properties = b"UNIQ_KEY\x017F0000010A2B18B4AAC2515DE3F80000\x02WAIT\x01true\x02"
    host = b"\x7f\0\0\1\0\0\xd4\x31"
    groups = [
        [PendingRecord("large", queue, bytes(BODY_BYTES), properties, 0, 1_700_000_000_000, host)] * GROUP
        for queue in range(QUEUES)
    ]
    rounds = log_bytes // (GROUP * (BODY_BYTES + 150))
    for number in track(range(rounds), description="filling the log", console=errors):
        store.append(groups[number % QUEUES])
        store.dispatch()
    store.close()
