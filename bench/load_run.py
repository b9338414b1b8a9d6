"""One run of the Java load program on a running system, with the broker's resource usage in the measured part.

The program (`io.raptormq.interop.load.ClientLoad`) prints "measuring" and "measured" at the start and the end of the
measured part; the broker's CPU time is read at these moments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import RunningSystem, broker_pid
from bench.process_usage import cpu_seconds, memory
from tests.interop.rocketmq_java import JavaBuild, Release, java


@dataclass(frozen=True)
class LoadPlan:
    """Loads and their duration."""

    loads: Sequence[str]
    """Loads in the syntax of ClientLoad: `sync:THREADS`, `async:THREADS:UNDER_WAY`, `batch:THREADS:LIST`."""
    warm_up_seconds: int
    seconds: int
    max_messages: int
    """Maximum number of messages per load; it limits the use of the disk."""

    @property
    def timeout_seconds(self) -> float:
        """Timeout of a run in seconds: twice its duration plus the startup of the JVM and slow responses."""
        return 60 + 2 * len(self.loads) * (self.warm_up_seconds + self.seconds)


@dataclass(frozen=True)
class LoadResult:
    """Result of one load: measurements of the client and CPU usage of the broker."""

    load: str
    messages: int
    failures: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_seconds: float
    resident_bytes: int
    anonymous_bytes: int

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_seconds_per_million(self) -> float:
        return self.cpu_seconds / max(self.messages, 1) * 1e6


class _Meter:
    """Reads the broker's counters at the marks of the measured part."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begin = 0.0
        self.used: dict[str, tuple[float, int, int]] = {}

    def line(self, line: str) -> None:
        word, _, load = line.strip().partition(" ")
        if word == "measuring":
            self._begin = cpu_seconds(self._pid)
        elif word == "measured":
            now = memory(self._pid)
            self.used[load] = (cpu_seconds(self._pid) - self._begin, now.resident, now.anonymous)


def run(built: JavaBuild, system: RunningSystem, plan: LoadPlan, log: Path, prefix: Sequence[str]) -> list[LoadResult]:
    """Run the loads of `plan` on `system` in turn; `prefix` is put before `java`. Raises ProcessError."""
    meter = _Meter(broker_pid(system))
    results = []
    for seen in run_program(built, system.name_servers, plan, log, prefix, meter.line):
        cpu, resident, anonymous = meter.used[seen["load"]]
        results.append(LoadResult(**seen, cpu_seconds=cpu, resident_bytes=resident, anonymous_bytes=anonymous))
    return results


def run_program(
    built: JavaBuild,
    name_servers: str,
    plan: LoadPlan,
    log: Path,
    prefix: Sequence[str] = (),
    on_line: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Run the loads of `plan` in turn. Return what the program measures of each: load, messages, failures, seconds,
    p50_ms and p99_ms. Raises ProcessError.
    """
    program = java(
        "io.raptormq.interop.load.ClientLoad",
        [name_servers, str(plan.warm_up_seconds), str(plan.seconds), str(plan.max_messages), *plan.loads],
        class_path=built.client_class_path(Release.NEWEST),
        log=log,
        options=["-Xms1g", "-Xmx1g", f"-Duser.home={log.parent}"],
        prefix=prefix,
        on_line=on_line,
    )
    lines = (line.partition(" ") for line in program.finish(plan.timeout_seconds))
    return [json.loads(text) for word, _, text in lines if word == "result"]
