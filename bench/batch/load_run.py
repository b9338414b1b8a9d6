"""One run of a load program on a running system, with the resource usage of broker and load in the measured part."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.batch.index_lag import IndexLag
from bench.batch.load_program import LoadProgram, load_program
from bench.batch.result import Costs, LoadResult
from bench.batch.systems import Builds, Running, System
from bench.batch.workload import Workload
from bench.process_usage import cpu_seconds, memory, stolen_seconds
from tests.interop.rocketmq_java import ProcessError, WatchedProcess

_END_S = 20.0
"""Timeout for the exit of the program in seconds."""


@dataclass
class _Meter:
    """Reads the counters of broker and load at the marks of the measured part."""

    program: LoadProgram
    broker_pid: int
    lag: IndexLag | None
    load_pid: int = 0
    costs: Costs | None = None
    _is_measuring: bool = False
    _broker_began: float = 0.0
    _load_began: float = 0.0
    _stolen_before: float = 0.0

    def line(self, line: str) -> None:
        if self.program.begins in line:
            self._is_measuring = True
            self._broker_began, self._load_began = cpu_seconds(self.broker_pid), cpu_seconds(self.load_pid)
            self._stolen_before = stolen_seconds()
            if self.lag is not None:
                self.lag.begin()
        elif self._is_measuring and self.program.ends in line:  # an earlier mark ends a warm-up
            used = memory(self.broker_pid)
            self.costs = Costs(
                cpu_seconds(self.broker_pid) - self._broker_began,
                cpu_seconds(self.load_pid) - self._load_began,
                used.resident,
                used.anonymous,
                self.lag.end() if self.lag is not None else None,
                stolen_seconds() - self._stolen_before,
            )


def run(workload: Workload, system: System, running: Running, builds: Builds, folder: Path) -> tuple[LoadResult, Costs]:
    """Run `workload` on a running system; raises ProcessError."""
    program = load_program(workload, system, running.address, builds, folder)
    with ExitStack() as stack:
        lag = stack.enter_context(IndexLag(running.address)) if running.tells_index_lag else None
        meter = _Meter(program, running.broker_pid, lag)
        process = WatchedProcess(
            program.name, program.command, log=folder / "load.log", folder=program.folder, on_line=meter.line
        )
        stack.callback(process.kill)  # also after an interruption
        meter.load_pid = process.pid
        if program.done is None:
            lines = process.finish(program.timeout_seconds)
        else:
            lines = process.finish_after(program.done, program.timeout_seconds, _END_S)
    result = program.result(lines)
    if meter.costs is None or not result.sent:
        raise ProcessError(f"{result.sent} messages were sent, {result.failed} failed:\n{process.tail()}")
    return result, meter.costs
