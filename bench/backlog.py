"""Consumption of a backlog with the official Java push consumer, on Apache RocketMQ and RaptorMQ in turn.

Each round starts each system with an empty folder. The Java program `BacklogLoad` sends 1 KiB messages and then
consumes them. The stored data is deleted after each run.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.progress import track

from bench.output import errors, markdown
from bench.peers import RunningSystem, System, broker_pid, running
from bench.process_usage import cpu_seconds, memory
from tests.interop.rocketmq_java import JavaBuild, Release, build, java

FULL, QUICK = 1_000_000, 50_000
GOAL = 1.0
_TIMEOUT_S = 900.0
HEADER = ["1 KiB messages", "msg/s", "s", "broker CPU s per 1M", "resident MB", "of it private"]


@dataclass(frozen=True)
class Run:
    """Result of consuming one backlog."""

    system: System
    messages: int
    seconds: float
    cpu_seconds: float
    resident_bytes: int
    anonymous_bytes: int

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds


def measure(count: int, rounds: int, systems: Sequence[System]) -> list[Run]:
    """Run all measurements; raises ProcessError if a system or the load program fails."""
    built = build()
    steps = [system for number in range(rounds) for system in (systems if number % 2 == 0 else list(reversed(systems)))]
    return [_measure_once(built, system, count) for system in track(steps, description="backlog", console=errors)]


def _measure_once(built: JavaBuild, system: System, count: int) -> Run:
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        with running(system, built, folder) as servers:
            return _run(built, system, servers, count, folder)
    finally:
        shutil.rmtree(folder)


def _run(built: JavaBuild, system: System, servers: RunningSystem, count: int, folder: Path) -> Run:
    pid = broker_pid(servers)
    used: list[float] = []

    def line(text: str) -> None:
        if text.startswith(("measuring", "measured")):
            used.append(cpu_seconds(pid))
            if len(used) == 1:
                os.sync()  # flush first, so that the measurement does not include writing the backlog

    program = java(
        "io.raptormq.interop.load.BacklogLoad",
        [servers.name_servers, str(count)],
        class_path=built.client_class_path(Release.NEWEST),
        log=folder / "load.log",
        options=["-Xms1g", "-Xmx1g", f"-Duser.home={folder}"],
        on_line=line,
    )
    found = next(text for text in program.finish(_TIMEOUT_S) if text.startswith("result "))
    seen = json.loads(found.removeprefix("result "))
    now = memory(pid)
    return Run(system, seen["messages"], seen["seconds"], used[1] - used[0], now.resident, now.anonymous)


def table(runs: list[Run]) -> str:
    """Return a table with the median of each system and their ratio."""
    rows, rates = [], {}
    for system in dict.fromkeys(run.system for run in runs):
        mine = [run for run in runs if run.system is system]
        rates[system] = median(run.messages_per_second for run in mine)
        rows.append(
            [
                f"backlog of {mine[0].messages:,}, Java push consumer; {system.value}",
                f"{rates[system]:,.0f}",
                f"{median(run.seconds for run in mine):.1f}",
                f"{median(run.cpu_seconds / run.messages * 1e6 for run in mine):.1f}",
                f"{median(run.resident_bytes for run in mine) / 1e6:,.0f}",
                f"{median(run.anonymous_bytes for run in mine) / 1e6:,.0f}",
            ]
        )
    if len(rates) == len(System):
        ratio = rates[System.RAPTORMQ] / rates[System.ROCKETMQ]
        kept = "yes" if ratio >= GOAL else "**no**"
        rows.append([f"**ratio** (promised: at least {GOAL}; kept: {kept})", f"**{ratio:.2f}**", "", "", "", ""])
    return markdown(HEADER, rows)
