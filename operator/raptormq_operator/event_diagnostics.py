"""What Kubernetes says of pods that have not begun, in its Warning events. Pure: objects as the API server shows them.

An event stays for an hour although its cause is gone, and says nothing of when it ends. So an event counts only while
what it speaks of is still missing, and it has to be about this very object:

no pod                   FailedCreate of its StatefulSet             a quota, an admission rule, a claim that is refused
a pod without a node     ProvisioningFailed of its volume claims     a StorageClass that is not there, a full cloud
a pod without a sandbox  FailedMount, FailedAttachVolume,            a Secret that is not there, a disk elsewhere,
                         FailedCreatePodSandBox of it                a network that has no address left

A pod has its sandbox once its volumes are mounted and its network is there: it may still pull its image for long. Where
the kubelet does not say so (before Kubernetes 1.29), what never ran counts as without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.pod_diagnostics import MAX_PODS, cut, joined

_HAS_SANDBOX = "PodReadyToStartContainers"
_KEEP_FROM_RUNNING = frozenset({"FailedAttachVolume", "FailedCreatePodSandBox", "FailedMount"})
_NEVER = datetime.min.replace(tzinfo=UTC)


class Subject(NamedTuple):
    """What may have an event that explains why `pod` is missing or has not begun."""

    pod: str
    kind: str
    name: str
    uid: str
    """Of the object; "" when it is not known."""
    since: str = ""
    """Events from before this time (RFC 3339) explain nothing."""


def subjects(workloads: Sequence[Manifest], pods: Sequence[Manifest]) -> list[Subject]:
    """Whose events to look for, those of a few pods. `workloads` are StatefulSets that are not settled."""
    found: list[Subject] = []
    for owner, name in _pods_of(workloads):
        if len({subject.pod for subject in found}) >= MAX_PODS:
            break
        pod = next((pod for pod in pods if pod["metadata"]["name"] == name), None)
        found += _subjects(owner, name, pod)
    return found


def _subjects(owner: Manifest, name: str, pod: Manifest | None) -> list[Subject]:
    if pod is None:
        return [Subject(name, "StatefulSet", owner["metadata"]["name"], owner["metadata"]["uid"])]
    metadata = pod["metadata"]
    if "deletionTimestamp" in metadata or _has_begun(pod):
        return []
    if "nodeName" in pod["spec"]:
        return [Subject(name, "Pod", name, metadata["uid"])]
    return [Subject(name, "PersistentVolumeClaim", claim, "", metadata["creationTimestamp"]) for claim in _claims(pod)]


def diagnose(warnings: Sequence[tuple[Subject, Sequence[Manifest]]]) -> str:
    """What the newest of the Warning events about each subject says that explains it; "" when none does."""
    said = []
    for subject, events in warnings:
        newest = max((event for event in events if _explains(event, subject)), key=time_of, default=None)
        if newest is not None:
            said.append((subject.pod, cut(_message(newest) or str(newest["reason"]))))
    return joined(said)


def _explains(event: Manifest, subject: Subject) -> bool:
    if subject.uid and event["involvedObject"].get("uid") != subject.uid:
        return False
    reason = event.get("reason")
    if subject.kind == "StatefulSet":  # it names the pod, others of the set may have had their own trouble
        return reason == "FailedCreate" and f"Pod {subject.pod} " in _message(event)
    if subject.kind == "PersistentVolumeClaim":
        return reason == "ProvisioningFailed" and time_of(event) >= _read(subject.since)
    return reason in _KEEP_FROM_RUNNING


def _pods_of(workloads: Sequence[Manifest]) -> Iterator[tuple[Manifest, str]]:
    for owner in workloads:
        for ordinal in range(owner["spec"]["replicas"]):
            yield owner, f"{owner['metadata']['name']}-{ordinal}"


def _claims(pod: Manifest) -> list[str]:
    volumes = pod["spec"].get("volumes", [])
    return [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume]


def _has_begun(pod: Manifest) -> bool:
    """Whether a container runs, ever ran, or could: nothing that keeps one from running is missing any more."""
    status = pod.get("status", {})
    if any(one["type"] == _HAS_SANDBOX and one["status"] == "True" for one in status.get("conditions", [])):
        return True
    containers = status.get("containerStatuses", [])
    return any(one.get("restartCount") or "waiting" not in one.get("state", {}) for one in containers)


def _message(event: Manifest) -> str:
    return str(event.get("message") or "").strip()


def time_of(event: Manifest) -> datetime:
    """When it was last seen; who writes events fills in one of these, some with a fraction of the second."""
    series: Manifest = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((_read(time) for time in times if time), _NEVER)


def _read(time: str) -> datetime:
    """Read a time as the API server writes it (RFC 3339, UTC)."""
    return datetime.fromisoformat(time)
