"""Effect of `enableBuildConsumeQueueConcurrently` on a start that builds all queues and the index from the log.

The log is written once. Before each start, queues, index and checkpoint are removed, so that the broker reads the
whole log: in its own process, or with processes that parse blocks of the log. The measurement ends with the line
`ready`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.filled_log import count_messages, fill_log
from bench.output import errors, markdown
from bench.process_usage import cpu_seconds
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import ProcessError

FULL, QUICK = 4_000_000_000, 300_000_000
"""Size of the log in bytes."""
_BUILT = ("consumequeue", "index", "checkpoint", "queueEnds")


@dataclass(frozen=True)
class Rebuild:
    """Result of one start."""

    concurrently: bool
    messages: int
    seconds: float
    """Seconds from the start of the process to the line `ready`."""
    own_cpu_seconds: float
    """CPU seconds of the broker's own process."""
    other_cpu_seconds: float
    """CPU seconds of the parsing processes; 0 without concurrency."""


def measure(log_bytes: int, rounds: int) -> list[Rebuild]:
    """Measure starts with and without concurrency, in turn; raises ProcessError."""
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        messages = fill_log(folder / "store", log_bytes)
        found = []
        for number in range(rounds):
            for concurrently in (False, True) if number % 2 == 0 else (True, False):
                errors.print(f"round {number + 1}: {messages:,} messages, {_setting(concurrently)}", highlight=False)
                found.append(_measure_once(folder, messages, concurrently))
        return found
    finally:
        shutil.rmtree(folder)


def _setting(concurrently: bool) -> str:
    return f"enableBuildConsumeQueueConcurrently={str(concurrently).lower()}"


def _measure_once(folder: Path, messages: int, concurrently: bool) -> Rebuild:
    remove_what_is_built(folder / "store")
    os.sync()  # write out the files of the previous start first
    key, value = _setting(concurrently).split("=")
    server = RaptorMQDev(folder, settings={key: value})
    begin = time.monotonic()
    server.start()
    try:
        seconds = time.monotonic() - begin
        assert server.broker is not None
        own = cpu_seconds(server.broker.pid)
        others = cpu_seconds(server.broker.pid, of_children=True)
    finally:
        server.stop()
    if (built := count_messages(folder / "store")) != messages:
        raise ProcessError(f"the queues were built from {built} of {messages} messages")
    return Rebuild(concurrently, messages, seconds, own, others)


def remove_what_is_built(store: Path) -> None:
    """Remove queues, index and checkpoint, but not the log."""
    for name in _BUILT:
        path = store / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def table(found: Sequence[Rebuild]) -> str:
    """Return a table with one row per start."""
    rows = [
        [
            f"`{_setting(each.concurrently)}`",
            f"{each.messages:,}",
            f"{each.seconds:.1f}",
            f"{each.messages / each.seconds:,.0f}",
            f"{each.own_cpu_seconds / each.messages * 1e6:.1f}",
            f"{each.other_cpu_seconds / each.messages * 1e6:.1f}",
        ]
        for each in sorted(found, key=lambda each: each.concurrently)
    ]
    header = [
        "a start that builds all queues and the index",
        "1 KiB messages",
        "ready after s",
        "messages/s",
        "broker CPU s per 1M",
        "CPU s per 1M of processes that parse",
    ]
    return markdown(header, rows)
