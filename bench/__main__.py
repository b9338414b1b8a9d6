"""Command line of the benchmarks: `python -m bench --help`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import click

from bench import (
    backlog,
    client_load,
    client_load_table,
    compared_loads,
    figure,
    flushing,
    full_load,
    idle_consumers,
    late_group,
    machine,
    many_queues,
    ordering,
    output,
    own_client,
    rebuild,
    replication,
    starting,
    timers,
    wake_up,
)
from bench.batch.command import command as batch_command
from bench.batch.omb_build import command as omb_build_command
from bench.client_load import Layout
from bench.figure import Figure
from bench.peers import System
from bench.spark.command import command as spark_command
from tests.interop.rocketmq_java import BuildError, ProcessError

SYSTEMS = {"rocketmq": System.ROCKETMQ, "raptormq": System.RAPTORMQ}


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Measure RaptorMQ and its peers. The default command is client-load."""
    if context.invoked_subcommand is None:
        context.invoke(client_load_command)


main.add_command(batch_command)
main.add_command(omb_build_command)
main.add_command(spark_command)


@main.command("client-load")
@click.option("--quick", is_flag=True, help="One short round, not kept: to see that it works.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--system", "names", type=click.Choice(list(SYSTEMS)), multiple=True, help="Only this one.")
@click.option(
    "--layout",
    "layouts",
    type=click.Choice([layout.value for layout in Layout]),
    multiple=True,
    help="Only this use of the CPUs.",
)
@click.option("--nice", "niceness", type=click.IntRange(0, 19), default=0, help="Be nice to other users.")
def client_load_command(
    quick: bool = False,
    rounds: int = 3,
    names: tuple[str, ...] = (),
    layouts: tuple[str, ...] = (),
    niceness: int = 0,
) -> None:
    """Load from the official Java client on Apache RocketMQ 5.5.0 and on RaptorMQ."""
    plan, count = (client_load.QUICK, 1) if quick else (client_load.FULL, rounds)
    systems = [SYSTEMS[name] for name in names] or list(System)
    load_before = machine.load_average()
    measured = client_load.measure(plan, count, systems, [Layout(name) for name in layouts] or list(Layout), niceness)
    text = output.show(client_load_table.table(measured), load_before)
    if not (quick or names or layouts):
        output.keep("client_load", text, client_load_table.values(measured), load_before)


@main.command("backlog")
@click.option("--quick", is_flag=True, help="A small backlog, not kept: to see that it works.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--system", "names", type=click.Choice(list(SYSTEMS)), multiple=True, help="Only this one; not kept.")
def backlog_command(quick: bool, rounds: int, names: tuple[str, ...]) -> None:
    """Consumption of a backlog of a million messages by the Java push consumer, on Apache RocketMQ 5.5.0 and on
    RaptorMQ."""
    load_before = machine.load_average()
    systems = [SYSTEMS[name] for name in names] or list(System)
    measured = backlog.measure(backlog.QUICK if quick else backlog.FULL, 1 if quick else rounds, systems)
    text = output.show(backlog.table(measured), load_before)
    if not (quick or names):
        output.keep("backlog", text, [asdict(each) for each in measured], load_before)


@main.command("idle-consumers")
@click.option("--quick", is_flag=True, help="Few consumers for a short time, not kept: to see that it works.")
def idle_consumers_command(quick: bool) -> None:
    """Cost of 5,000 idle consumers in 500 groups."""
    load_before = machine.load_average()
    if quick:
        measured = idle_consumers.measure(idle_consumers.QUICK, settle=5.0, seconds=5.0)
    else:
        measured = idle_consumers.measure(idle_consumers.FULL)
    text = output.show(figure.table(measured), load_before)
    if not quick:
        output.keep("idle_consumers", text, [asdict(each) for each in measured], load_before)


@main.command("ordering")
@click.option("--quick", is_flag=True, help="Few messages, not kept: to see that it works.")
def ordering_command(quick: bool) -> None:
    """Throughput of order by key compared with order by queue and with no order."""
    load_before = machine.load_average()
    measured = ordering.measure(ordering.QUICK if quick else ordering.FULL)
    text = output.show(figure.table(measured), load_before)
    if not quick:
        output.keep("ordering", text, [asdict(each) for each in measured], load_before)


@main.command("wake-up")
@click.option("--quick", is_flag=True, help="Few messages, not kept: to see that it works.")
def wake_up_command(quick: bool) -> None:
    """Latency from a send to the response of a waiting pull, on Apache RocketMQ 5.5.0 and on RaptorMQ."""
    load_before = machine.load_average()
    measured = wake_up.measure(wake_up.QUICK if quick else wake_up.FULL, list(System))
    text = output.show(wake_up.table(measured), load_before)
    if not quick:
        output.keep("wake_up", text, [asdict(each) for each in measured], load_before)


@main.command("late-group")
@click.option("--quick", is_flag=True, help="Few messages, not kept: to see that it works.")
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True)
def late_group_command(quick: bool, rounds: int) -> None:
    """Reading of 8 million unconsumed messages by a first group, with and without release of page cache."""
    load_before = machine.load_average()
    measured = late_group.measure(late_group.QUICK, 1) if quick else late_group.measure(late_group.FULL, rounds)
    text = output.show(late_group.table(measured), load_before)
    if not quick:
        output.keep("late_group", text, [asdict(each) for each in measured], load_before)


@main.command("rebuild")
@click.option("--quick", is_flag=True, help="A small log, not kept: to see that it works.")
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True)
def rebuild_command(quick: bool, rounds: int) -> None:
    """Startup time with a rebuild of all queues and the index from 4 GB of log, with and without concurrency."""
    load_before = machine.load_average()
    measured = rebuild.measure(rebuild.QUICK, 1) if quick else rebuild.measure(rebuild.FULL, rounds)
    text = output.show(rebuild.table(measured), load_before)
    if not quick:
        output.keep("rebuild", text, [asdict(each) for each in measured], load_before)


@main.command("figures")
@click.option("--quick", is_flag=True, help="Small amounts, not kept: to see that it works.")
@click.option("--only", type=click.Choice(["ready", "idle", "large-log", "queues", "flush", "timers"]), multiple=True)
def figures_command(quick: bool, only: tuple[str, ...]) -> None:
    """Documented figures of startup, idle use, many queues, timers and flushing."""
    load_before = machine.load_average()
    with tempfile.TemporaryDirectory(prefix="raptormq-bench-") as scratch:
        folder = Path(scratch)
        measures: dict[str, Callable[[], list[Figure]]] = {
            "ready": lambda: starting.ready_time(folder),
            "idle": lambda: starting.idle(folder, 5 if quick else 60),
            "large-log": lambda: starting.large_log(folder, 1_000_000_000 if quick else 10_000_000_000),
            "queues": lambda: many_queues.many_queues(folder, 200 if quick else 5000),
            "timers": lambda: timers.timers(folder, 20_000 if quick else 1_000_000),
            "flush": lambda: flushing.flushing(folder, 3 if quick else 6, 4 if quick else 12),
        }
        measured: list[Figure] = []
        for name, measure in measures.items():
            if not only or name in only:
                output.errors.print(f"measuring: {name}")
                measured += measure()
                shutil.rmtree(folder)
                folder.mkdir()
    text = output.show(figure.table(measured), load_before)
    if not quick and not only:
        output.keep("figures", text, [asdict(each) for each in measured], load_before)


@main.command("own-client")
@click.option("--quick", is_flag=True, help="Few messages, not kept: to see that it works.")
def own_client_command(quick: bool) -> None:
    """Rates of the RaptorMQ client: sends with AutoBatch, a backlog consumed by each interface, and single sends beside
    the official Java client."""
    load_before = machine.load_average()
    measured = own_client.measure(own_client.QUICK if quick else own_client.FULL)
    text = output.show(figure.table(measured), load_before)
    if not quick:
        output.keep("own_client", text, [asdict(each) for each in measured], load_before)


@main.command("replication")
@click.option("--quick", is_flag=True, help="Few rounds and messages, not kept: to see that it works.")
@click.option("--only", type=click.Choice(list(replication.FIGURES)), multiple=True, help="Only this; not kept.")
@click.option("--minutes", type=click.FloatRange(1), help="How long full-load runs  [default: 20; quick: 1]")
@click.option("--log-gb", type=click.FloatRange(2), help="Limit of a log in full-load  [default: 6; quick: 2]")
@click.option(
    "--memory-gib",
    type=click.IntRange(6),
    help="Leave so much memory and hold the rest, so that the page cache gets full; not kept.",
)
@click.option("--check", is_flag=True, help="Exit code 1 if a figure is not kept.")
def replication_command(
    quick: bool,
    only: tuple[str, ...],
    minutes: float | None,
    log_gb: float | None,
    memory_gib: int | None,
    check: bool,
) -> None:
    """A Dledger group of three: fail-over, transfer, rates compared with a single broker, an empty member.

    full-load runs only by name: 20 minutes as fast as it goes, with retention and one loss of the leader; 30 GB of
    disk.
    """
    if (minutes or log_gb) and "full-load" not in only:
        raise click.UsageError("--minutes and --log-gb are for --only full-load")
    plan = compared_loads.QUICK if quick else compared_loads.FULL
    plan = replace(
        plan,
        minutes=minutes or plan.minutes,
        log_limit_bytes=int(log_gb * 1e9) if log_gb else plan.log_limit_bytes,
    )
    if "full-load" in only:
        full_load.require_disk(plan.log_limit_bytes)
    load_before = machine.load_average()
    with machine.memory_left(memory_gib << 30) if memory_gib is not None else nullcontext():
        measured = replication.measure(plan, only)
    text = output.show(figure.table(measured), load_before)
    if not (quick or only or memory_gib):
        output.keep("replication", text, [asdict(each) for each in measured], load_before)
    if check and not all(each.kept for each in measured):
        raise SystemExit(1)


if __name__ == "__main__":
    try:
        main()
    except (BuildError, ProcessError) as error:
        raise SystemExit(str(error)) from error
