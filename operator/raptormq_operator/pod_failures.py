"""Why pods fail, in their own last words or in those of Kubernetes. Pure: pods in as the API server shows them.

A pod fails when waiting alone will not make it ready: its container ends again and again, its image cannot be had, its
container cannot be made, or no node takes it. One that starts for the first time, or for the first time after an end,
does not. The last words are the last line of what the container wrote before it ended, which Kubernetes keeps when the
container's terminationMessagePolicy is FallbackToLogsOnError (Kubernetes documentation, "Determine the Reason for Pod
Failure").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raptormq_operator.manifests.metadata import Manifest

TEXT_MAX = 500
"""Characters of one pod's words: enough for what to change, with the place where it stands."""
PODS_MAX = 5
"""A fault in the configuration is the same in every pod."""
_CANNOT_START = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
_RESTARTS_OF_A_LOOP = 2
"""A container that runs again after so many ends is expected to end once more, until it is ready."""


def failures(pods: Sequence[Manifest]) -> str:
    """What the failing ones of these pods say, one after the other; "" when none fails."""
    said = [
        f"{pod['metadata']['name']} {why}"
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
        if "deletionTimestamp" not in pod["metadata"] and (why := _why(pod.get("status", {})))
    ]
    more = [f"{len(said) - PODS_MAX} more pods"] if len(said) > PODS_MAX else []
    return "; ".join(said[:PODS_MAX] + more)


def _why(status: Manifest) -> str | None:
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return f"finds no node: {_cut(condition.get('message', ''))}"
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return next(filter(None, map(_why_container, containers)), None)


def _why_container(container: Manifest) -> str | None:
    if container.get("ready"):
        return None
    state = container.get("state", {})
    waiting: dict[str, Any] = state.get("waiting", {})
    if waiting.get("reason") in _CANNOT_START:
        return f"cannot start, {waiting['reason']}: {_cut(waiting.get('message', ''))}"
    ended: dict[str, Any] | None = state.get("terminated") or container.get("lastState", {}).get("terminated")
    if ended is None or (ended["exitCode"] == 0 and "terminated" in state):  # an init container that is done
        return None
    if "running" in state and container.get("restartCount", 0) < _RESTARTS_OF_A_LOOP:
        return None
    return f"ended with exit code {ended['exitCode']}: {_last_words(ended)}"


def _last_words(ended: Manifest) -> str:
    lines = [line for line in str(ended.get("message", "")).splitlines() if line.strip()]
    return _cut(lines[-1].strip()) if lines else str(ended.get("reason", "it said nothing"))


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."
