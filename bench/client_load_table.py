"""Table of the measurements: medians over the rounds, and the ratio of RaptorMQ to its peer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from typing import Any

from bench.client_load import Layout, Measurement
from bench.load_run import LoadResult
from bench.output import markdown
from bench.peers import System

NAMES = {"sync": "sync, {} threads", "async": "async, {1} under way", "batch": "`send(list)` of {1}, {0} threads"}
CPUS = {Layout.SHARED: "shared", Layout.APART: "apart"}
HEADER = ["1 KiB messages", "system", "msg/s", "p50 ms", "p99 ms", "CPU s per 1M", "resident MB", "of it private"]


def load_name(load: str) -> str:
    """Return a description of a load such as `batch:8:32`."""
    kind, *numbers = load.split(":")
    return NAMES[kind].format(*numbers)


def table(measurements: list[Measurement]) -> str:
    """Return one block per layout and load: the systems and, for two systems, the ratio of the last to the first."""
    rows: list[list[str]] = []
    for layout in Layout:
        for load in dict.fromkeys(each.result.load for each in measurements):
            block = {
                system: [
                    each.result
                    for each in measurements
                    if (each.system, each.layout, each.result.load) == (system, layout, load)
                ]
                for system in System
            }
            rows += _block(f"{load_name(load)}; CPUs {CPUS[layout]}", {k: v for k, v in block.items() if v})
    return markdown(HEADER, rows)


FIGURES: list[tuple[str, Callable[[LoadResult], float]]] = [
    ("{:,.0f}", lambda result: result.messages_per_second),
    ("{:,.1f}", lambda result: result.p50_ms),
    ("{:,.1f}", lambda result: result.p99_ms),
    ("{:,.1f}", lambda result: result.cpu_seconds_per_million),
    ("{:,.0f}", lambda result: result.resident_bytes / 1e6),
    ("{:,.0f}", lambda result: result.anonymous_bytes / 1e6),
]


def _block(title: str, results: dict[System, list[LoadResult]]) -> list[list[str]]:
    medians = {system: [median(map(value, runs)) for _, value in FIGURES] for system, runs in results.items()}
    rows = [
        [title, system.value, *(form.format(value) for (form, _), value in zip(FIGURES, values, strict=True))]
        for system, values in medians.items()
    ]
    if len(medians) == 2:
        peer, ours = medians.values()
        rows.append([title, "**ratio**", *(f"**{b / a:.2f}**" if a else "" for a, b in zip(peer, ours, strict=True))])
    return rows


def values(measurements: list[Measurement]) -> list[dict[str, Any]]:
    """Return all single measurements for the JSON file."""
    return [
        {"system": each.system, "layout": each.layout, "round": each.round, **asdict(each.result)}
        for each in measurements
    ]
