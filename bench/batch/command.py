"""Command line of `python -m bench batch`, and storage of the results."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import click

from bench import machine, output
from bench.batch import measure, omb, plan
from bench.batch.plan import steps
from bench.batch.result import Run
from bench.batch.systems import System
from bench.batch.table import report
from bench.batch.workload import Workload
from bench.output import RESULTS

NAMES = {"raptormq": System.RAPTORMQ, "rocketmq": System.ROCKETMQ, "kafka": System.KAFKA}
SECONDS_OF_OTHER_WORK = 8
"""Estimated duration of startup, draining and cleanup per run, in addition to warm-up and measurement."""


@dataclass(frozen=True)
class Edition:
    """A plan and the files of its results."""

    name: str
    """Base name of the files."""
    plan: dict[Workload, tuple[System, ...]]
    heading: str = ""
    """Heading above the tables."""
    drawn: bool = False


OURS = Edition("batch", plan.PLAN, drawn=True)
OMB = Edition(
    "batch_omb",
    plan.OMB_PLAN,
    "The load is the OpenMessaging Benchmark itself: a minute of warm-up, its default, and one that counts.\n\n",
)


@click.command("batch")
@click.option("--quick", is_flag=True, help="Few and short runs, not kept: to see that it works; 3 minutes.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--warm-up", type=click.IntRange(0), help="Seconds of each run that do not count, instead of its own.")
@click.option("--seconds", type=click.IntRange(1), help="Seconds of each run that count, instead of its own.")
@click.option("--system", "names", type=click.Choice(list(NAMES)), multiple=True, help="Only this one; not kept.")
@click.option("--only", multiple=True, metavar="WORKLOAD", help="Only this one (own-* for several); not kept.")
@click.option(
    "--memory-gib",
    type=click.IntRange(6),
    help="Leave so much memory and hold the rest, so that the page cache gets full; not kept.",
)
@click.option("--list", "listed", is_flag=True, help="List the workloads and end.")
@click.option("--redraw", is_flag=True, help="Table and picture anew from the kept results.")
@click.option("--into", type=click.Path(path_type=Path), help="Keep the results in this folder, whatever was run.")
def command(
    quick: bool,
    rounds: int,
    warm_up: int | None,
    seconds: int | None,
    names: tuple[str, ...],
    only: tuple[str, ...],
    memory_gib: int | None,
    listed: bool,
    redraw: bool,
    into: Path | None,
) -> None:
    """Batches on RaptorMQ, Apache RocketMQ and Apache Kafka with workloads of the OpenMessaging Benchmark; 35 minutes.

    If OMB_DIR names a built checkout of that benchmark (see omb-build), the benchmark itself is the load; 45
    minutes, 60 GB of disk.
    """
    edition = OURS if omb.folder() is None else OMB
    if edition is OMB and (quick or (warm_up or 0) % 60 or (seconds or 0) % 60):
        raise click.UsageError(f"with {omb.VARIABLE} times are whole minutes: --warm-up 0, 60, ..., and no --quick")
    if listed:
        for workload, on in edition.plan.items():
            click.echo(f"{workload.name:28} {workload.title} ({', '.join(system.value for system in on)})")
        return
    if redraw:
        _redraw(edition, into or RESULTS)
        return
    chosen = plan.QUICK_PLAN if quick and not only else edition.plan
    timed = {_timed(workload, quick, warm_up, seconds): on for workload, on in chosen.items()}
    todo = list(steps(timed, rounds, only, [NAMES[name] for name in names]))
    if not todo:
        raise click.UsageError("no run is left; --list names the workloads")
    timings = [step.workload.timing for step in todo]
    if edition is OMB:
        _require_disk(max(each.warm_up_seconds + each.seconds for each in timings))
    expected = sum(each.warm_up_seconds + each.seconds + SECONDS_OF_OTHER_WORK for each in timings)
    output.errors.print(f"{len(todo)} runs, about {expected / 60:.0f} minutes")
    load_before = machine.load_average()
    builds = measure.builds_for(todo)
    with ExitStack() as held:
        if not quick:
            output.errors.print("the free memory is written to once, which may take a minute")
        if memory_gib is not None:
            held.enter_context(machine.memory_left(memory_gib << 30))
        elif not quick:
            machine.touch_memory()
        runs = measure.measure(todo, builds)
    whole = len(runs) == len(todo) and not (quick or names or only or memory_gib)
    _show(edition, runs, load_before, into or (RESULTS if whole else None))


def _require_disk(seconds: int) -> None:
    """Check the free disk space for the longest run; raises UsageError if it is not sufficient."""
    folder = tempfile.gettempdir()
    wanted, free = omb.DISK_GB_PER_MINUTE * seconds / 60, shutil.disk_usage(folder).free / 1e9
    if free < wanted:
        advice = "TMPDIR may name another folder, and --warm-up 0 needs half of the default's"
        raise click.UsageError(f"{folder} has {free:.0f} GB free and a run may need {wanted:.0f}: {advice}")


def _timed(workload: Workload, quick: bool, warm_up: int | None, seconds: int | None) -> Workload:
    timing = plan.QUICK if quick else workload.timing
    if warm_up is not None:
        timing = replace(timing, warm_up_seconds=warm_up)
    return replace(workload, timing=replace(timing, seconds=seconds or timing.seconds))


def _show(edition: Edition, runs: Sequence[Run], load_before: float, folder: Path | None) -> None:
    if not runs:
        return
    text = output.show(edition.heading + report(runs), load_before)
    if folder is not None:
        output.keep(edition.name, text, measure.to_json(runs), load_before, folder)
        _draw(edition, runs, folder)


def _redraw(edition: Edition, folder: Path) -> None:
    """Redraw tables and plots from stored results. The description of the machine is kept from the original run."""
    table = folder / f"{edition.name}.md"
    try:
        document = json.loads(table.with_suffix(".json").read_text(encoding="utf-8"))
        runs = measure.from_json(document["values"])
        about = table.read_text(encoding="utf-8").rstrip().rpartition("\n\n")[2]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise click.UsageError(f"{folder} has no results of an earlier run that can be drawn again: {error}") from error
    table.write_text(f"{edition.heading}{report(runs)}\n\n{about}\n", encoding="utf-8")
    _draw(edition, runs, folder)


def _draw(edition: Edition, runs: Sequence[Run], folder: Path) -> None:
    if not edition.drawn:
        return
    from bench.batch import plot  # imported on demand, because importing matplotlib takes a second

    plot.draw(runs, folder, edition.name)
    output.errors.print(f"drawn: {folder / edition.name}.png and .svg")
