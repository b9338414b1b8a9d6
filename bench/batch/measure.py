"""Execution of the plan. Each load gets a newly started system with an empty folder; a failed run is recorded.

On Ctrl-C or SIGTERM the current run is stopped and its data deleted; the completed runs are returned.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from bench.batch import load_run, programs, systems
from bench.batch.plan import Step
from bench.batch.result import Costs, LoadResult, Run
from bench.batch.systems import Builds, System
from bench.batch.workload import Client
from bench.output import errors
from tests.interop.rocketmq_java import BuildError, ProcessError, build

_REASON_LINES = 6
_REASON_LINE_CHARACTERS = 200


def builds_for(steps: Sequence[Step]) -> Builds:
    """Build only the programs that the steps need; raises BuildError."""
    official = any(step.workload.client is Client.OFFICIAL for step in steps)
    rocketmq = any(step.system is System.ROCKETMQ for step in steps)
    return Builds(build() if rocketmq else None, programs.build() if official else None)


def measure(steps: Sequence[Step], builds: Builds) -> list[Run]:
    """Return all started runs; after Ctrl-C fewer than `steps`."""
    runs: list[Run] = []
    begin = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        with _interrupted_by_sigterm():
            for number, step in enumerate(steps, start=1):
                errors.print(f"{number}/{len(steps)} {_minutes(begin)} {step.title}", highlight=False, soft_wrap=True)
                runs.append(_measure_or_fail(step, builds, scratch / str(number)))
                errors.print(f"    {_summary(runs[-1])}", highlight=False, markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        errors.print(f"interrupted: {len(runs)} of {len(steps)} runs are done")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # deletes remaining data of an interrupted run, too
    return runs


def _measure_or_fail(step: Step, builds: Builds, folder: Path) -> Run:
    try:
        return measure_once(step, builds, folder)
    except (BuildError, ProcessError, OSError, ValueError) as error:
        return Run(step.workload.name, step.system, step.round, failure=_reason(error))


def measure_once(step: Step, builds: Builds, folder: Path) -> Run:
    """Run one step with its files in a new `folder`, which is deleted afterwards; raises ProcessError or OSError."""
    folder.mkdir()
    try:
        with systems.running(step.system, builds, folder) as running:
            os.sync()  # write out the files of the previous run first
            load, costs = load_run.run(step.workload, step.system, running, builds, folder)
        return Run(step.workload.name, step.system, step.round, load, costs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Context in which SIGTERM stops the runs like Ctrl-C."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _minutes(begin: float) -> str:
    seconds = round(time.monotonic() - begin)
    return f"{seconds // 60}:{seconds % 60:02}"


def _reason(error: Exception) -> str:
    """Return the first line of the error and the end of the program's output."""
    lines = [line[:_REASON_LINE_CHARACTERS] for line in str(error).splitlines() if line.strip()] or [
        type(error).__name__
    ]
    return "\n".join(lines if len(lines) <= _REASON_LINES else [lines[0], *lines[1 - _REASON_LINES :]])


def _summary(run: Run) -> str:
    load, costs = run.load, run.costs
    if load is None or costs is None:
        return f"failed: {run.failure}"
    text = f"{load.sent_per_second:,.0f} msg/s sent"
    if load.received_per_second is not None:
        text += f", {load.received_per_second:,.0f} consumed, backlog {load.backlog:,}"
        if load.undelivered:
            text += f", {load.undelivered:,} not delivered after {load.drain_seconds:.0f} s"
    if load.failed:
        text += f", {load.failed:,} failed"
    return f"{text}; publish p50 {load.publish_p50_ms:,.1f} p99 {load.publish_p99_ms:,.1f} ms"


def to_json(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return all single runs for the JSON file."""
    return [asdict(run) for run in runs]


def from_json(values: Sequence[dict[str, Any]]) -> list[Run]:
    """Return the runs from the data of `to_json`."""
    return [
        Run(
            value["workload"],
            System(value["system"]),
            value["round"],
            LoadResult(**value["load"]) if value["load"] else None,
            Costs(**value["costs"]) if value["costs"] else None,
            value["failure"],
        )
        for value in values
    ]
