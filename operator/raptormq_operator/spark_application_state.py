"""Derives the state of a SparkPipeline's driver from the status of its SparkApplication. Pure.

Apache's operator deletes a failed driver before it starts the next one. The error of a driver is therefore read from
the recorded state of the SparkApplication. Its states correspond to phases of the pipeline:

    Submitted, or no status               Starting
    Driver..., Initialized..., Running... those of the driver pod
    ScheduledToRestart, a failure         BackingOff
    ResourceReleased, Terminated...       Failed or Completed, by the state before

Source: apache/spark-kubernetes-operator 1.0.0, classes ApplicationStatus and ApplicationStateSummary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from raptormq_operator.manifests.metadata import Manifest

_FAILURES = {
    "DriverEvicted",
    "DriverReadyTimedOut",
    "DriverStartTimedOut",
    "ExecutorsStartTimedOut",
    "Failed",
    "SchedulingFailure",
}
_WAITS = {"Submitted", ""}
_UNKNOWN_TIME = "1970-01-01T00:00:00Z"
_ENDED = {"ResourceReleased", "TerminatedWithoutReleaseResources"}


class Course(Enum):
    """Progress of an application."""

    SUBMITTED = auto()
    """Apache's operator has not requested a driver yet."""
    DRIVER = auto()
    """A driver exists; the status of its pod has the details."""
    BETWEEN = auto()
    """A driver has ended. Another one follows, or the end is not final yet."""
    ENDED = auto()
    """No driver follows."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a driver."""

    summary: str
    """Name of the state: `Failed`, `DriverEvicted`, ..."""
    message: str
    time: str
    """Time of the failure (RFC 3339)."""
    pod_status: Manifest | None
    """The last status of the driver pod."""


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """State of a SparkApplication."""

    course: Course
    summary: str
    restarts: int
    failures: int
    """Number of failures in a row."""
    failure: Failure | None
    """The last failure in the recorded history of this attempt and the previous one."""
    failed: bool
    """Whether the last driver that ended has failed."""


def state_of(application: Manifest) -> ApplicationState:
    """Return the state. Fields that are missing count as their initial values."""
    status = application.get("status") or {}
    attempt = (status.get("currentAttemptSummary") or {}).get("attemptInfo") or {}
    current = status.get("currentState") or {}
    summary = str(current.get("currentStateSummary", ""))
    history = [*_history(status), current]
    ended = [each for each in history if each.get("currentStateSummary") in {*_FAILURES, "Succeeded"}]
    failures = [each for each in ended if each["currentStateSummary"] != "Succeeded"]
    return ApplicationState(
        course=_course(summary),
        summary=summary,
        restarts=int(attempt.get("id", 0)),
        failures=int(attempt.get("failureRestartCounter", 0)),
        failure=_failure(failures[-1]) if failures else None,
        failed=bool(ended) and ended[-1] in failures,
    )


def _course(summary: str) -> Course:
    if summary in _WAITS:
        return Course.SUBMITTED
    if summary in _ENDED:
        return Course.ENDED
    if summary in _FAILURES or summary in ("ScheduledToRestart", "Succeeded"):
        return Course.BETWEEN
    return Course.DRIVER


def _history(status: Mapping[str, Any]) -> Iterator[Manifest]:
    """Yield the recorded states, the oldest first. A separate field may contain those of the previous attempt."""
    for part in (status.get("previousAttemptSummary") or {}, status):
        states = part.get("stateTransitionHistory") or {}
        for number in sorted(states, key=int):
            yield states[number]


def _failure(state: Manifest) -> Failure:
    return Failure(
        str(state["currentStateSummary"]),
        str(state.get("message", "")),
        str(state.get("lastTransitionTime") or _UNKNOWN_TIME),
        state.get("lastObservedDriverStatus"),
    )
