"""Command line of `python -m bench spark`."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import click

from bench import machine, output
from bench.spark.comparison import table
from bench.spark.connector import KAFKA_PYSPARK
from bench.spark.plan import FULL, QUICK, ROWS, measure


@click.command("spark")
@click.option("--quick", is_flag=True, help="Few rows and one run, not kept: to see that it works.")
@click.option("--runs", type=click.IntRange(1), help="Runs that count, after one that does not.  [default: 5]")
@click.option("--only", type=click.Choice(list(ROWS)), multiple=True, help="Only this; not kept.")
def command(quick: bool, runs: int | None, only: tuple[str, ...]) -> None:
    """Our data source for Spark beside the Kafka connector of Spark: read, stream, micro-batches, write."""
    plan = QUICK if quick else FULL
    if runs is not None:
        plan = replace(plan, runs=runs)
    load_before = machine.load_average()
    if not quick:
        output.errors.print("the free memory is written to once, which may take a minute")
        machine.touch_memory()
    with tempfile.TemporaryDirectory(prefix="raptormq-bench-") as folder:
        measured = measure(plan, only, Path(folder))
    import pyspark  # imported on demand, because the other benchmarks do not need it

    about = (
        f"Medians of {plan.runs} runs with {plan.rows:,} rows of 1 KiB. RaptorMQ on Spark {pyspark.__version__}; the "
        f"Kafka connector {KAFKA_PYSPARK} on Spark {KAFKA_PYSPARK} with Apache Kafka 4.3.1."
    )
    text = output.show(f"{table(measured)}\n\n{about}", load_before)
    if not (quick or only):
        output.keep("spark", text, [asdict(each) for each in measured], load_before)
