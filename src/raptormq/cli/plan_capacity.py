"""``raptormq plan-capacity``: computes the brokers, cores, memory and volumes for a load. Sends no request."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from raptormq.cli import capacity
from raptormq.cli.amounts import rate as message_rate
from raptormq.cli.amounts import size as byte_size
from raptormq.cli.amounts import time_span
from raptormq.cli.capacity import GIB, LARGEST_BODY_BYTES, MIB, MOST_GROUPS, Capacity, Load, Sends
from raptormq.cli.options import output_option
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
@click.option("--rate", type=message_rate, required=True, metavar="RATE", help="Messages per second: 500, 20k, 1.5M.")
@click.option(
    "--size", type=byte_size, required=True, metavar="SIZE", help="Average size of a message: 1000, 1kB, 1KiB."
)
@click.option(
    "--retention", type=time_span, default="72h", show_default=True, metavar="TIME", help="Retention of messages."
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
    help="Number of consumer groups that consume every message.",
)
@click.option(
    "--sends",
    type=click.Choice([each.value for each in Sends]),
    default=Sends.SINGLE.value,
    show_default=True,
    help="Type of sends: batches (AutoBatch or lists), single asynchronous messages, or threads that wait for each "
    "response.",
)
@output_option
def plan_capacity(
    rate: float, size: float, retention: float, replicas: int, consumer_groups: int, sends: str, output: str
) -> None:
    """Plan broker groups, cores, memory and volumes for a load, from measurements on a machine with 2 cores.

    The planned load of a broker is half of the measured rate. See docs/guides/capacity.md for the formulas.
    """
    if size > LARGEST_BODY_BYTES:
        raise click.BadParameter(
            f"brokers accept messages of up to {LARGEST_BODY_BYTES:,} bytes (maxMessageSize)", param_hint="--size"
        )
    planned = capacity.plan(Load(rate, size, retention, replicas, consumer_groups, Sends(sends)))
    if output == "json":
        print_json(_as_json(planned))
        return
    print_table(["resource", "total", "per broker", "reason"], _rows(planned))
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
            f"{planned.limited_by}; {measured * capacity.PLANNED_SHARE:,.0f} msg/s per group (half the measured rate)",
        ],
        ["brokers", f"{count:,}", None, f"{planned.groups:,} groups of {load.copies}"],
        [
            "cores",
            f"{count * planned.cores_per_broker:,}",
            f"{planned.cores_per_broker}",
            f"{planned.busy_cores / planned.groups:.2f} busy, with {cpu_s:.1f} s of CPU time per million messages",
        ],
        [
            "memory",
            _bytes(count * planned.memory_per_broker_bytes),
            _bytes(planned.memory_per_broker_bytes),
            "mostly page cache: 3Gi, or the data written in a minute",
        ],
        [
            "volumes",
            _bytes(count * planned.volume_per_broker_bytes),
            _bytes(planned.volume_per_broker_bytes),
            f"{capacity.STORED_BESIDE_BODY_BYTES} bytes overhead per message, at most {capacity.FILLED_SHARE:.0%} full",
        ],
        [
            "written per second",
            _bytes(count * planned.written_per_broker_bytes_s),
            _bytes(planned.written_per_broker_bytes_s),
            "sustained write rate of the disk",
        ],
    ]


def _lines(planned: Capacity) -> list[str]:
    load, figure = planned.load, planned.figure
    hours = f"{load.retention_s / _HOUR_S:,.1f}".removesuffix(".0") + " h"
    cpu = f"{figure.store_cpu_s} s of CPU time to store a million messages, {figure.deliver_cpu_s} s per consumer group"
    disk = f"{_decimal(planned.body_bytes_per_day)} per day, {_decimal(planned.published_disk_bytes)} in {hours}"
    lines = [
        f"measurement: {figure.what}: {figure.rate:,.0f} msg/s, {cpu}",
        f"measured on {capacity.MACHINE}: {figure.source}",
        f"published rule: {planned.published_cores:,.1f} cores (1 for 10,000 msg/s), at least 8 GB of memory, {disk}",
    ]
    if load.body_bytes > capacity.MEASURED_BODY_BYTES:
        lines.append("note: messages larger than 1 KiB need more CPU time, which was not measured")
    if load.copies > 1:
        lines.append(
            "note: this version does not replicate yet; a BrokerCluster takes replicas above 1 with replication"
        )
    if planned.groups > MOST_GROUPS:
        lines.append(
            f"note: a BrokerCluster has at most {MOST_GROUPS} groups; distribute the topics to several clusters"
        )
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
