"""Load from the official Java client on Apache RocketMQ and RaptorMQ in turn, on one machine.

Each round starts each system with an empty folder, once with broker and load on the same CPUs and once pinned
(broker on CPU 0, load on CPU 1), runs all loads, stops the system and deletes its data. The order of the systems
alternates between rounds, so that neither always runs second.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.load_run import LoadPlan, LoadResult, run
from bench.output import errors
from bench.peers import System, running
from tests.interop.rocketmq_java import JavaBuild, build

LOADS = ("sync:32", "async:2:1024", "batch:8:32")
FULL = LoadPlan(LOADS, warm_up_seconds=10, seconds=12, max_messages=4_000_000)
QUICK = LoadPlan(LOADS, warm_up_seconds=3, seconds=4, max_messages=1_000_000)


class Layout(StrEnum):
    """CPU assignment of broker and load."""

    SHARED = "shared"
    APART = "apart"


@dataclass(frozen=True)
class Measurement:
    """A result with its system, layout and round."""

    system: System
    layout: Layout
    round: int
    result: LoadResult


def cpus(layout: Layout) -> tuple[list[str], list[str]]:
    """Return the taskset commands of broker and load."""
    if layout is Layout.APART:
        return ["taskset", "-c", "0"], ["taskset", "-c", "1"]
    both = ["taskset", "-c", "0,1"]
    return both, both


def measure(
    plan: LoadPlan, rounds: int, systems: Sequence[System], layouts: Sequence[Layout], niceness: int
) -> list[Measurement]:
    """Run all measurements; raises ProcessError if a system or the load program fails."""
    built = build()
    steps = list(_steps(rounds, systems, layouts))
    done: list[Measurement] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors) as progress:
        task = progress.add_task("load", total=len(steps))
        for system, layout, number in steps:
            progress.update(task, description=f"round {number}: {system.value}, {layout.value}")
            done += [
                Measurement(system, layout, number, result)
                for result in _measure_once(built, system, layout, plan, niceness)
            ]
            progress.advance(task)
    return done


def _steps(rounds: int, systems: Sequence[System], layouts: Sequence[Layout]) -> Iterator[tuple[System, Layout, int]]:
    for number in range(1, rounds + 1):
        order = list(systems) if number % 2 else list(reversed(systems))
        for layout in layouts:
            for system in order:
                yield system, layout, number


def _measure_once(built: JavaBuild, system: System, layout: Layout, plan: LoadPlan, niceness: int) -> list[LoadResult]:
    nice = ["nice", "-n", str(niceness)] if niceness else []
    broker_cpus, load_cpus = cpus(layout)
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        with running(system, built, folder, prefix=[*nice, *broker_cpus]) as servers:
            os.sync()  # write out the files of the previous run first
            return run(built, servers, plan, folder / "load.log", [*nice, *load_cpus])
    finally:
        shutil.rmtree(folder)
