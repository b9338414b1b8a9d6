"""Reasons why pods are not ready, from the status of the pods. Pure functions of pods of the API server.

A pod is *failing* when its container is in a crash loop or cannot be created, its image cannot be pulled, or a node
evicted it. A first start, a first restart and a restart after a long run do not count; Kubernetes, too, resets its
backoff after a long run. A pod that cannot be scheduled is *waiting*: a volume or a node may become available. The
message of a terminated container is the last line of its log. Kubernetes provides it with the terminationMessagePolicy
FallbackToLogsOnError (Kubernetes documentation, "Determine the Reason for Pod Failure").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from raptormq_operator.manifests.metadata import Manifest

MAX_TEXT = 500
"""Maximum length of one pod's message in characters."""
MAX_PODS = 5
"""Maximum number of pods in a message. A configuration error usually affects all pods alike."""
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
"""Number of restarts after which a running container that is not ready counts as crash-looping."""
_LONG_RUN = timedelta(minutes=10)
"""After a run of this length Kubernetes resets the restart backoff."""
_PLAIN_REASONS = frozenset({None, "Completed", "Error"})
"""Termination reasons that add no information to the exit code."""


class PodDiagnostics(NamedTuple):
    """Messages about failing, waiting and ending pods of a cluster; "" when there are none."""

    failing: str = ""
    waiting: str = ""
    ending: str = ""
    """Pods that are being deleted, by whomever."""


NO_DIAGNOSTICS = PodDiagnostics()


def diagnose(pods: Sequence[Manifest]) -> PodDiagnostics:
    """Return the messages about failing pods, about pods that cannot be scheduled, and about pods that are being
    deleted.
    """
    ordered = sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
    there = [pod for pod in ordered if "deletionTimestamp" not in pod["metadata"]]
    ending = joined([(pod["metadata"]["name"], "being deleted") for pod in ordered if pod not in there])
    return PodDiagnostics(_all_that_say(there, _why_it_fails), _all_that_say(there, _why_it_waits), ending)


def joined(said: Sequence[tuple[str, str]]) -> str:
    """Join pairs of pod name and message into one text of bounded length."""
    texts = [f"{name}: {words}" for name, words in said[:MAX_PODS]]
    more = [f"{len(said) - MAX_PODS} more pods"] if len(said) > MAX_PODS else []
    return "; ".join(texts + more)


def _all_that_say(pods: Sequence[Manifest], why: Callable[[Manifest], str | None]) -> str:
    return joined([(pod["metadata"]["name"], words) for pod in pods if (words := why(pod.get("status", {})))])


def _why_it_waits(status: Manifest) -> str | None:
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return f"not schedulable: {cut(condition.get('message', ''))}"
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
    """Return the last termination of a crash-looping container; None if the container is not crash-looping."""
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
    return f"{code}: {cut(lines[-1].strip())}" if lines else f"{code} and no output"


def cut(text: str) -> str:
    """Truncate a text to `MAX_TEXT` characters."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
