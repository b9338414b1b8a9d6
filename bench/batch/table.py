"""Results as Markdown: first the goals with the ratios to both peers, then all workloads on all systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.batch import goals
from bench.batch.goals import Medians, Outcome, Point, Value
from bench.batch.plan import PLAN, QUICK_PLAN
from bench.batch.result import Run
from bench.batch.systems import System
from bench.batch.workload import Workload
from bench.output import markdown

COLUMNS: list[tuple[str, Value, str]] = [
    ("sent msg/s", goals.sent, ",.0f"),
    ("consumed msg/s", goals.consumed, ",.0f"),
    ("publish p50 ms", goals.publish_p50, ",.1f"),
    ("p99 ms", goals.publish_p99, ",.1f"),
    ("end to end p50 ms", goals.end_to_end_p50, ",.1f"),
    ("p99 ms", goals.end_to_end_p99, ",.1f"),
    ("backlog", goals.backlog, ",.0f"),
    ("broker CPU s per 1M", goals.cpu_per_million, ",.1f"),
    ("client CPU s per 1M", goals.client_cpu_per_million, ",.1f"),
    ("resident MB", goals.resident_mb, ",.0f"),
    ("of it private", goals.anonymous_mb, ",.0f"),
    ("queues behind ms", goals.index_lag_ms, ",.1f"),
    ("host took %", goals.stolen_percent, ",.1f"),
]
PEERS = (System.ROCKETMQ, System.KAFKA)


def report(runs: Sequence[Run]) -> str:
    """Return both tables and the notes."""
    parts = [markdown(_GOAL_HEADER, [_goal_row(outcome) for outcome in goals.outcomes(runs)]), all_runs(runs)]
    if notes := [f"- {_where(run)}: {note}" for run in runs for note in _notes(run)]:
        parts.append("To be noted:\n\n" + "\n".join(notes))
    return "\n\n".join(parts)


_GOAL_HEADER = ["figure to reach", "RaptorMQ", "against", "its figure", "ratio", "wanted", "reached"]


def _goal_row(outcome: Outcome) -> list[str]:
    goal = outcome.goal
    bound = "at least" if goal.at_least else "at most"
    row = [goal.what, _number(outcome.ours, goal.unit)]
    if goal.base is None or outcome.base is None:
        row += ["", "", "", f"{bound} {goal.bound:,g} {goal.unit}"]
    else:
        same = goal.base.workload == goal.ours.workload
        other = goal.base.system.value if goal.base.system is not goal.ours.system else "itself"
        other = other if same else goal.base.workload.title
        row += [other, _number(outcome.base, goal.unit), f"{outcome.compared:.2f}", f"{bound} {goal.bound:g} x"]
    return [*row, "yes" if outcome.kept else "**no**"]


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:,.1f} {unit}"


def all_runs(runs: Sequence[Run]) -> str:
    """Return one row per workload and system, with medians over the rounds and the ratio of sent messages to each
    peer."""
    known = {workload.name: workload for workload in (*PLAN, *QUICK_PLAN)}
    medians = Medians(runs)
    rows = []
    for name, system in dict.fromkeys((run.workload, run.system) for run in runs):
        workload = known[name]
        values = [(medians.get(Point(workload, value, system)), form) for _, value, form in COLUMNS]
        cells = ["-" if value is None else format(value, form) for value, form in values]
        rows.append([workload.title, system.value, *cells, *_ratios(medians, workload, system)])
    header = ["1 KiB messages", "system", *(title for title, *_ in COLUMNS), "sent over RocketMQ's", "over Kafka's"]
    return markdown(header, rows)


def _ratios(medians: Medians, workload: Workload, system: System) -> list[str]:
    ours = medians.get(Point(workload, goals.sent, system))
    if system is not System.RAPTORMQ or ours is None:
        return ["", ""]
    bases = [medians.get(Point(workload, goals.sent, peer)) for peer in PEERS]
    return [f"{ours / base:.2f}" if base else "" for base in bases]


def _where(run: Run) -> str:
    return f"{run.workload}, {run.system.value}, round {run.round}"


def _notes(run: Run) -> Iterator[str]:
    """Return notes about failures and undelivered messages."""
    if run.failure is not None:
        yield "failed: " + run.failure.replace("\n", "\n  ")
    elif run.load is not None:
        if run.load.failed:
            yield f"{run.load.failed:,} sends failed, the first with {run.load.first_error}"
        if run.load.undelivered:
            yield f"{run.load.undelivered:,} messages were not delivered {run.load.drain_seconds:.0f} s after the end"
        if run.load.surplus:
            yield f"{run.load.surplus:,} messages were delivered more than once"
