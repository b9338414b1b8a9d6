"""Performance goals: bounds for a measured value, or for its ratio to another measured value."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.batch import plan
from bench.batch.result import Run
from bench.batch.systems import System
from bench.batch.workload import Workload

Value = Callable[[Run], float | None]


def sent(run: Run) -> float | None:
    return run.load.sent_per_second if run.load else None


def consumed(run: Run) -> float | None:
    return run.load.received_per_second if run.load else None


def publish_p50(run: Run) -> float | None:
    return run.load.publish_p50_ms if run.load else None


def publish_p99(run: Run) -> float | None:
    return run.load.publish_p99_ms if run.load else None


def end_to_end_p50(run: Run) -> float | None:
    return run.load.end_to_end_p50_ms if run.load else None


def end_to_end_p99(run: Run) -> float | None:
    return run.load.end_to_end_p99_ms if run.load else None


def backlog(run: Run) -> float | None:
    return run.load.backlog if run.load else None


def cpu_per_million(run: Run) -> float | None:
    """CPU seconds of the broker per million messages sent (and consumed)."""
    if run.load is None or run.costs is None or not run.load.sent:
        return None
    return run.costs.broker_cpu_seconds / run.load.sent * 1e6


def client_cpu_per_million(run: Run) -> float | None:
    if run.load is None or run.costs is None or not run.load.sent:
        return None
    return (run.costs.client_cpu_seconds + run.load.consumer_cpu_seconds) / run.load.sent * 1e6


def stolen_percent(run: Run) -> float | None:
    """Share of CPU time that the host of the virtual machine used for others or for disk I/O, in percent."""
    if run.load is None or run.costs is None or run.costs.stolen_seconds is None:
        return None
    return run.costs.stolen_seconds / (run.load.seconds * (os.cpu_count() or 1)) * 100


def resident_mb(run: Run) -> float | None:
    return run.costs.resident_bytes / 1e6 if run.costs else None


def anonymous_mb(run: Run) -> float | None:
    return run.costs.anonymous_bytes / 1e6 if run.costs else None


def index_lag_ms(run: Run) -> float | None:
    return run.costs.index_lag_ms if run.costs else None


@dataclass(frozen=True)
class Point:
    """A metric of a workload on a system."""

    workload: Workload
    value: Value
    system: System = System.RAPTORMQ


@dataclass(frozen=True)
class Goal:
    """A performance goal."""

    what: str
    ours: Point
    bound: float
    """Bound of the value, or of its ratio to `base`."""
    at_least: bool = True
    base: Point | None = None
    unit: str = ""


class Medians:
    """Median of each measured point over the rounds."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs

    def get(self, point: Point) -> float | None:
        """Return the median; None if no run has measured it."""
        key = (point.workload.name, point.system)
        found = [point.value(run) for run in self._runs if (run.workload, run.system) == key]
        known = [value for value in found if value is not None]
        return median(known) if known else None


@dataclass(frozen=True)
class Outcome:
    """A goal with a measured value."""

    goal: Goal
    ours: float
    base: float | None

    @property
    def compared(self) -> float:
        """The value to which the bound applies: the measured value, or its ratio to ``base``."""
        if self.base is None:
            return self.ours
        return self.ours / self.base if self.base else float("inf")

    @property
    def kept(self) -> bool:
        return self.compared >= self.goal.bound if self.goal.at_least else self.compared <= self.goal.bound


def outcomes(runs: Sequence[Run]) -> list[Outcome]:
    """Return the outcomes of all goals with measured values."""
    medians = Medians(runs)
    found = []
    for goal in GOALS:
        ours = medians.get(goal.ours)
        base = medians.get(goal.base) if goal.base else None
        if ours is not None and (goal.base is None or base is not None):
            found.append(Outcome(goal, ours, base))
    return found


def _against(
    title: str, workload: Workload, value: Value, peer: System, bound: float, *, at_least: bool = True, unit: str
) -> Goal:
    ours, base = Point(workload, value), Point(workload, value, peer)
    return Goal(title, ours, bound, at_least, base, unit)


def _rocketmq_goals() -> list[Goal]:
    full, thousand, fixed, single = plan.FULL_SPEED, plan.QUEUES_1000, plan.FIXED, plan.SINGLE
    wanted: list[tuple[str, Workload, Value, float, bool, str]] = [
        ("16 queues, sent", full, sent, 1.2, True, "msg/s"),
        ("16 queues, consumed", full, consumed, 2.0, True, "msg/s"),
        ("16 queues, publish p99", full, publish_p99, 0.5, False, "ms"),
        ("16 queues, end to end p99", full, end_to_end_p99, 0.5, False, "ms"),
        ("16 queues, publish only, sent", plan.PUBLISH, sent, 1.4, True, "msg/s"),
        ("1,000 queues, sent", thousand, sent, 1.0, True, "msg/s"),
        ("1,000 queues, consumed", thousand, consumed, 1.0, True, "msg/s"),
        ("1,000 queues, publish p99", thousand, publish_p99, 0.7, False, "ms"),
        ("20,000 msg/s, publish p99", fixed, publish_p99, 0.5, False, "ms"),
        ("20,000 msg/s, end to end p99", fixed, end_to_end_p99, 0.5, False, "ms"),
        ("without batching, sent", single, sent, 1.2, True, "msg/s"),
        ("without batching, consumed", single, consumed, 1.2, True, "msg/s"),
        ("without batching, publish only, sent", plan.SINGLE_PUBLISH, sent, 1.2, True, "msg/s"),
        ("broker CPU of 1 million batched messages", full, cpu_per_million, 0.5, False, "s"),
        ("the same, publish only", plan.PUBLISH, cpu_per_million, 0.5, False, "s"),
    ]
    return [
        _against(what, workload, value, System.ROCKETMQ, bound, at_least=at_least, unit=unit)
        for what, workload, value, bound, at_least, unit in wanted
    ]


def _kafka_goals() -> list[Goal]:
    wanted: list[tuple[str, Workload, Value, float, bool, str]] = [
        ("16 queues, sent", plan.FULL_SPEED, sent, 1.0, True, "msg/s"),
        ("16 queues, publish p99", plan.FULL_SPEED, publish_p99, 0.5, False, "ms"),
        ("1,000 queues, sent", plan.QUEUES_1000, sent, 1.0, True, "msg/s"),
        ("1,000 queues, publish p99", plan.QUEUES_1000, publish_p99, 0.5, False, "ms"),
        ("20,000 msg/s, publish p99", plan.FIXED, publish_p99, 1.0, False, "ms"),
    ]
    return [
        _against(what, workload, value, System.KAFKA, bound, at_least=at_least, unit=unit)
        for what, workload, value, bound, at_least, unit in wanted
    ]


def _own_goals() -> list[Goal]:
    off, on = plan.OWN_FIRST_RUN_OFF, plan.OWN_FIRST_RUN_ON
    own, full = plan.OWN_BATCHCQ, plan.FULL_SPEED
    many = [
        ("10,000 queues against 16, sent", plan.QUEUES_10000, full),
        ("our client: 10,000 queues against 16, sent", plan.OWN_10000, own),
        ("our client: 10,000 queues against 16, publish only", plan.OWN_10000_PUBLISH, plan.OWN_PUBLISH),
    ]
    return [
        *(Goal(what, Point(load, sent), 0.9, base=Point(base, sent), unit="msg/s") for what, load, base in many),
        Goal(
            "our client: AutoBatch on against off",
            Point(plan.OWN_SIMPLECQ_PUBLISH, sent),
            4.0,
            base=Point(plan.OWN_SINGLE_PUBLISH, sent),
            unit="msg/s",
        ),
        Goal("our client, BatchCQ, AutoBatch: sent", Point(own, sent), 100_000, unit="msg/s"),
        Goal("our client, BatchCQ, AutoBatch: consumed meanwhile", Point(own, consumed), 100_000, unit="msg/s"),
        Goal(
            "our client, SimpleCQ, 100 queues, 4 + 4: AutoBatch on against off",
            Point(on, sent),
            3.0,
            base=Point(off, sent),
            unit="msg/s",
        ),
        Goal(
            "the same, consumed over sent",
            Point(on, consumed),
            0.98,
            base=Point(on, sent),
            unit="msg/s",
        ),
        Goal("lag of the queues, 16 queues", Point(full, index_lag_ms), 100, at_least=False, unit="ms"),
        Goal("lag of the queues, publish only", Point(plan.PUBLISH, index_lag_ms), 100, at_least=False, unit="ms"),
        Goal("memory of the broker besides page cache", Point(full, anonymous_mb), 1_074, at_least=False, unit="MB"),
    ]


GOALS = [*_rocketmq_goals(), *_kafka_goals(), *_own_goals()]
