"""Plot of the results as PNG and SVG: throughput above, p99 below; by mode, queues, batch size and delay.

The colours are those of Okabe and Ito, which are distinguishable with colour blindness. Each series also has its own
marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from bench.batch import goals, plan
from bench.batch.goals import Medians, Point, Value
from bench.batch.result import Run
from bench.batch.systems import System
from bench.batch.workload import Workload


@dataclass(frozen=True)
class Series:
    """One line of a plot: a system and its client."""

    label: str
    system: System
    own: bool
    colour: str
    marker: str
    line: str


SERIES = (
    Series("RaptorMQ, Java client", System.RAPTORMQ, False, "#0072B2", "o", "-"),
    Series("Apache RocketMQ 5.5.0, Java client", System.ROCKETMQ, False, "#D55E00", "s", "--"),
    Series("Apache Kafka 4.3.1, Java client", System.KAFKA, False, "#009E73", "^", "-."),
    Series("RaptorMQ, our Python client", System.RAPTORMQ, True, "#CC79A7", "D", ":"),
)
_BAR_WIDTH = 0.2

Places = list[tuple[float, str, Workload, Workload | None]]
"""Position on the x axis, label, workload of the Java clients, workload of the RaptorMQ client."""

MODES: Places = [
    (0, "no\nbatching", plan.SINGLE_PUBLISH, plan.OWN_SINGLE_PUBLISH),
    (1, "SimpleCQ", plan.SIMPLECQ_PUBLISH, plan.OWN_SIMPLECQ_PUBLISH),
    (2, "BatchCQ", plan.PUBLISH, plan.OWN_PUBLISH),
    (3, "BatchCQ,\nconsumed", plan.FULL_SPEED, plan.OWN_BATCHCQ),
]
QUEUES: Places = [
    (0, "16", plan.FULL_SPEED, plan.OWN_BATCHCQ),
    (1, "1,000", plan.QUEUES_1000, None),
    (2, "10,000", plan.QUEUES_10000, plan.OWN_10000),
]
BATCH_BYTES: Places = [
    (0, "off", plan.SINGLE, None),
    (1, "8", plan.BYTES[0], plan.OWN_BYTES[0]),
    (2, "32", plan.FULL_SPEED, plan.OWN_BATCHCQ),
    (3, "128", plan.BYTES[1], plan.OWN_BYTES[1]),
]
DELAYS: Places = [
    (0, "1", plan.DELAYS[0], plan.OWN_FIXED[0]),
    (1, "10", plan.FIXED, plan.OWN_FIXED[1]),
    (2, "50", plan.DELAYS[1], plan.OWN_FIXED[2]),
]


def draw(runs: Sequence[Run], folder: Path, name: str) -> None:
    """Write `name`.png and `name`.svg to `folder`."""
    # These two settings make the files reproducible.
    with mpl.rc_context({"svg.hashsalt": name, "font.size": 9}):
        figure = _figure(Medians(runs))
        figure.savefig(folder / f"{name}.png", dpi=110)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def _figure(medians: Medians) -> Figure:
    figure = Figure(figsize=(15, 7.6), layout="constrained")
    axes = figure.subplots(2, 4, width_ratios=(1.25, 1, 1.1, 1))
    speed, p99 = "messages per second", "p99, ms (log scale)"
    _bars(axes[0][0], medians, MODES, goals.sent, "Sent, 16 queues, by AutoBatch and queue type", speed)
    _bars(axes[1][0], medians, MODES, goals.publish_p99, "Publish p99, 16 queues", p99)
    _lines(axes[0][1], medians, QUEUES, goals.sent, "Sent, by queues (thin: consumed)", speed, goals.consumed)
    _lines(axes[1][1], medians, QUEUES, goals.publish_p99, "Publish p99, by queues", p99)
    _lines(axes[0][2], medians, BATCH_BYTES, goals.sent, "Sent, by batch size (thin: consumed)", speed, goals.consumed)
    _lines(axes[1][2], medians, BATCH_BYTES, goals.publish_p99, "Publish p99, by batch size", p99)
    _lines(axes[0][3], medians, DELAYS, goals.publish_p99, "Publish p99 at 20,000 msg/s", p99)
    _lines(axes[1][3], medians, DELAYS, goals.end_to_end_p99, "End to end p99 at 20,000 msg/s", p99)
    for column, label in ((1, "queues"), (2, "largest batch, KiB"), (3, "longest delay of a batch, ms")):
        for row in (0, 1):
            axes[row][column].set_xlabel(label)
    handles = {
        label: handle for each in axes.flat for handle, label in zip(*each.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(SERIES), frameon=False)
    figure.suptitle("Batches of 1 KiB messages; load and broker on the same CPUs; BatchCQ where nothing else is said")
    return figure


def _known(medians: Medians, places: Places, value: Value, series: Series) -> list[tuple[float, float]]:
    found = []
    for x, _, official, own in places:
        workload = own if series.own else official
        y = medians.get(Point(workload, value, series.system)) if workload is not None else None
        if y is not None:
            found.append((x, y))
    return found


def _lines(
    axes: Any, medians: Medians, places: Places, value: Value, title: str, unit: str, thin: Value | None = None
) -> None:
    for series in SERIES:
        look = {"color": series.colour, "linestyle": series.line, "marker": series.marker}
        if points := _known(medians, places, value, series):
            axes.plot(*zip(*points, strict=True), label=series.label, markersize=6, **look)
        if thin is not None and (points := _known(medians, places, thin, series)):
            axes.plot(*zip(*points, strict=True), linewidth=0.7, markersize=3, fillstyle="none", **look)
    _finish(axes, places, title, unit)


def _bars(axes: Any, medians: Medians, places: Places, value: Value, title: str, unit: str) -> None:
    for number, series in enumerate(SERIES):
        if points := _known(medians, places, value, series):
            shift = (number - (len(SERIES) - 1) / 2) * _BAR_WIDTH
            x, y = [x + shift for x, _ in points], [y for _, y in points]
            axes.bar(x, y, _BAR_WIDTH, color=series.colour)
            axes.plot(x, y, color=series.colour, marker=series.marker, markersize=4, linestyle="none")
    _finish(axes, places, title, unit)


def _finish(axes: Any, places: Places, title: str, unit: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(unit)
    axes.set_xticks([x for x, *_ in places], [label for _, label, *_ in places])
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if unit.startswith("p99"):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
