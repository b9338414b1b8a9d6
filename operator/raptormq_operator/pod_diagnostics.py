"""What pods say of why they do not serve, in their own last words or in those of Kubernetes. Pure: pods in as the API
server shows them.

A pod fails when its container ends again and again, cannot be made, its image cannot be had, or a node has put it out.
One that starts for the first time, or for the first time after an end, does not, nor does one whose last run was long:
Kubernetes then begins anew too. One that finds no node waits: a volume or a node may come. The last words are the last
line of what the container wrote before it ended, which Kubernetes keeps when the container's terminationMessagePolicy
is FallbackToLogsOnError (Kubernetes documentation, "Determine the Reason for Pod Failure").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from raptormq_operator.manifests.metadata import Manifest

MAX_TEXT = 500
"""Characters of one pod's words: enough for what to change, with the place where it stands."""
MAX_PODS = 5
"""A fault in the configuration is the same in every pod."""
_CANNOT_START = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
_LOOP = "CrashLoopBackOff"
_RESTARTS_OF_A_LOOP = 2
"""A container that runs again after so many ends is expected to end once more, until it is ready."""
_LONG_RUN = timedelta(minutes=10)
"""After a run of this length Kubernetes restarts without a pause, as if it were the first end."""
_PLAIN_REASONS = frozenset({None, "Completed", "Error"})
"""What a container's end is called when there is nothing special about it."""


class PodDiagnostics(NamedTuple):
    """What the pods of a cluster say, one after the other; "" when none does."""

    failing: str = ""
    waiting: str = ""


NO_DIAGNOSTICS = PodDiagnostics()


def diagnose(pods: Sequence[Manifest]) -> PodDiagnostics:
    """What failing pods say, and those that wait for a node."""
    there = sorted(
        (pod for pod in pods if "deletionTimestamp" not in pod["metadata"]),
        key=lambda pod: str(pod["metadata"]["name"]),
    )
    return PodDiagnostics(_all_that_say(there, _why_it_fails), _all_that_say(there, _why_it_waits))


def joined(said: Sequence[tuple[str, str]]) -> str:
    """What pods (name, words) say as one text of bounded length."""
    texts = [f"{name}: {words}" for name, words in said[:MAX_PODS]]
    more = [f"{len(said) - MAX_PODS} more pods"] if len(said) > MAX_PODS else []
    return "; ".join(texts + more)


def _all_that_say(pods: Sequence[Manifest], why: Callable[[Manifest], str | None]) -> str:
    return joined([(pod["metadata"]["name"], words) for pod in pods if (words := why(pod.get("status", {})))])


def _why_it_waits(status: Manifest) -> str | None:
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return f"no node takes it: {cut(condition.get('message', ''))}"
    return None


def _why_it_fails(status: Manifest) -> str | None:
    if status.get("phase") == "Failed" and status.get("reason"):
        return f"{status['reason']}: {cut(status.get('message', ''))}"
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return next(filter(None, map(_why_container, containers)), None)


def _why_container(container: Manifest) -> str | None:
    if container.get("ready"):
        return None
    waiting: Manifest = container.get("state", {}).get("waiting", {})
    if waiting.get("reason") in _CANNOT_START:
        return f"{container['name']} cannot start, {waiting['reason']}: {cut(waiting.get('message', ''))}"
    ended = _end_of_a_loop(container)
    return None if ended is None else f"{container['name']} ended with {_end(ended)}"


def _end_of_a_loop(container: Manifest) -> Manifest | None:
    """How a container ended that is not expected to stay; None when it may."""
    state, restarts = container.get("state", {}), container.get("restartCount", 0)
    before: Manifest | None = container.get("lastState", {}).get("terminated")
    if state.get("waiting", {}).get("reason") == _LOOP:
        return before
    now: Manifest | None = state.get("terminated")
    if now is not None:
        return now if now["exitCode"] != 0 and restarts >= _RESTARTS_OF_A_LOOP - 1 else None
    goes_on = "running" in state and restarts >= _RESTARTS_OF_A_LOOP
    return before if goes_on and before is not None and not _was_long(before) else None


def _was_long(ended: Manifest) -> bool:
    times = [ended.get(name) for name in ("startedAt", "finishedAt")]
    if None in times:
        return False
    started, finished = (datetime.fromisoformat(str(time)) for time in times)
    return finished - started >= _LONG_RUN


def _end(ended: Manifest) -> str:
    reason = ended.get("reason")
    code = f"exit code {ended['exitCode']}" + ("" if reason in _PLAIN_REASONS else f" ({reason})")
    lines = [line for line in str(ended.get("message", "")).splitlines() if line.strip()]
    return f"{code}: {cut(lines[-1].strip())}" if lines else f"{code} and said nothing"


def cut(text: str) -> str:
    """As much of a text as belongs into a condition."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
