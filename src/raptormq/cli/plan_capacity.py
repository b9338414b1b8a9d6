"""``raptormq plan-capacity``: the brokers, cores, memory and volumes for a load. Queries no server."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from raptormq.cli import capacity
from raptormq.cli.amounts import rate as message_rate
from raptormq.cli.amounts import size as byte_size
from raptormq.cli.amounts import time_span
from raptormq.cli.capacity import GIB, LARGEST_BODY_BYTES, MIB, MOST_GROUPS, Capacity, Load, Sends
from raptormq.cli.output import Cell, print_json, print_table

_MOST_COPIES = 5
_HOUR_S = 3600


@click.command(
    "plan-capacity",
    epilog="""\b
Examples:
  raptormq plan-capacity --rate 100k --size 1000
  raptormq plan-capacity --rate 100k --size 1kB --sends batches --consumer-groups 3
  raptormq plan-capacity --rate 2,000 --size 64KiB --retention 7d -o json | jq .volume_per_broker_bytes""",
)
@click.option("--rate", type=message_rate, required=True, metavar="RATE", help="Messages a second: 500, 20k, 1.5M.")
@click.option(
    "--size", type=byte_size, required=True, metavar="SIZE", help="Average size of a message: 1000, 1kB, 1KiB."
)
@click.option(
    "--retention", type=time_span, default="72h", show_default=True, metavar="TIME", help="How long messages are kept."
)
@click.option(
    "--replicas",
    type=click.IntRange(1, _MOST_COPIES),
    default=1,
    show_default=True,
    help="Copies of each message: members of a broker group.",
)
@click.option(
    "--consumer-groups",
    type=click.IntRange(0, 1000),
    default=1,
    show_default=True,
    help="Consumer groups that consume every message.",
)
@click.option(
    "--sends",
    type=click.Choice([each.value for each in Sends]),
    default=Sends.SINGLE.value,
    show_default=True,
    help="How producers send: AutoBatch or lists; single messages, many under way; threads that wait for each answer.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people or JSON for machines.",
)
def plan_capacity(
    rate: float, size: float, retention: float, replicas: int, consumer_groups: int, sends: str, output: str
) -> None:
    """Plan the brokers for a load: groups, cores, memory and volumes, from measurements on a machine with 2 cores.

    A broker is planned for half of the measured rate. docs/guides/capacity.md has the formulas.
    """
    if size > LARGEST_BODY_BYTES:
        raise click.BadParameter(
            f"brokers take messages of up to {LARGEST_BODY_BYTES:,} bytes (maxMessageSize)", param_hint="--size"
        )
    planned = capacity.plan(Load(rate, size, retention, replicas, consumer_groups, Sends(sends)))
    if output == "json":
        print_json(_as_json(planned))
        return
    print_table(["what", "in all", "each broker", "because"], _rows(planned))
    for line in _lines(planned):
        click.echo(line)


def _rows(planned: Capacity) -> list[list[Cell]]:
    load, figure, count = planned.load, planned.figure, planned.brokers
    cpu_s = figure.cpu_s(load.consumer_groups)
    measured = figure.rate_with(load.consumer_groups)
    return [
        [
            "broker groups",
            f"{planned.groups:,}",
            None,
            f"{planned.limited_by}; one is planned for {measured * capacity.PLANNED_SHARE:,.0f} msg/s, half its most",
        ],
        ["brokers", f"{count:,}", None, f"{planned.groups:,} groups of {load.copies}"],
        [
            "cores",
            f"{count * planned.cores_per_broker:,}",
            f"{planned.cores_per_broker}",
            f"{planned.busy_cores / planned.groups:.2f} busy, at {cpu_s:.1f} s of CPU for a million messages",
        ],
        [
            "memory",
            _bytes(count * planned.memory_per_broker_bytes),
            _bytes(planned.memory_per_broker_bytes),
            "mostly page cache: 3Gi, or what is written in a minute",
        ],
        [
            "volumes",
            _bytes(count * planned.volume_per_broker_bytes),
            _bytes(planned.volume_per_broker_bytes),
            f"{capacity.STORED_BESIDE_BODY_BYTES} bytes beside each body, and {capacity.FILLED_SHARE:.0%} full at most",
        ],
        [
            "written a second",
            _bytes(count * planned.written_per_broker_bytes_s),
            _bytes(planned.written_per_broker_bytes_s),
            "what a disk has to take all the time",
        ],
    ]


def _lines(planned: Capacity) -> list[str]:
    load, figure = planned.load, planned.figure
    hours = f"{load.retention_s / _HOUR_S:,.1f}".removesuffix(".0") + " h"
    cpu = f"{figure.store_cpu_s} s of CPU to take a million messages, {figure.deliver_cpu_s} s for each consumer group"
    disk = f"{_decimal(planned.body_bytes_per_day)} a day, {_decimal(planned.published_disk_bytes)} in {hours}"
    lines = [
        f"figure: {figure.what}: {figure.rate:,.0f} msg/s, {cpu}",
        f"measured on {capacity.MACHINE}: {figure.source}",
        f"published rule: {planned.published_cores:,.1f} cores (1 for 10,000 msg/s), 8 GB of memory and more, {disk}",
    ]
    if load.body_bytes > capacity.MEASURED_BODY_BYTES:
        lines.append("note: messages of more than 1 KiB cost more CPU each, which was not measured")
    if load.copies > 1:
        lines.append(
            "note: this version does not replicate yet; a BrokerCluster takes replicas above 1 with replication"
        )
    if planned.groups > MOST_GROUPS:
        lines.append(f"note: a BrokerCluster has {MOST_GROUPS} groups at most; divide the topics among several")
    return lines


def _as_json(planned: Capacity) -> dict[str, Any]:
    return {
        **asdict(planned),
        "brokers": planned.brokers,
        "machine": capacity.MACHINE,
        "planned_share": capacity.PLANNED_SHARE,
    }


def _bytes(value: float) -> str:
    """Format bytes in the notation of Kubernetes."""
    unit, name = (GIB, "Gi") if value >= GIB else (MIB, "Mi")
    return f"{value / unit:.1f}".removesuffix(".0") + name


def _decimal(value: float) -> str:
    for unit, name in ((10**15, "PB"), (10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if value >= unit:
            return f"{value / unit:,.1f} {name}"
    return f"{value:,.0f} bytes"
