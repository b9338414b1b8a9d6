"""Reasons why pods have not started, derived from Warning events. Pure functions of Kubernetes objects.

An event remains for an hour, even if its cause has been resolved. An event therefore counts only while the state that
it explains persists, and only if it is about that very object (the same uid, if known):

state                    event                                       typical causes
missing pod              FailedCreate of its StatefulSet             quota, admission rule, rejected claim
pod without a node       ProvisioningFailed of its volume claims     missing StorageClass, exhausted capacity
pod without a sandbox    FailedMount, FailedAttachVolume,            missing Secret, disk attached to another node,
                         FailedCreatePodSandBox of the pod           no free address in the pod network

A pod has a sandbox when its volumes are mounted and its network is set up; the image may still be pulled. Before
Kubernetes 1.29 the kubelet does not report this condition; there a pod that never ran counts as one without a sandbox.
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
    """An object whose events may explain why `pod` is missing or has not started."""

    pod: str
    kind: str
    name: str
    uid: str
    """uid of the object; "" when unknown."""
    since: str = ""
    """Events before this time (RFC 3339) are ignored."""


def subjects(workloads: Sequence[Manifest], pods: Sequence[Manifest]) -> list[Subject]:
    """Return the objects whose events to read, for at most `MAX_PODS` pods. `workloads` are unsettled StatefulSets."""
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
    """Return the message of the newest relevant Warning event of each subject, joined; "" without any."""
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
    if subject.kind == "StatefulSet":  # only the message tells which pod of the set is affected
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
    """Return whether the pod has a sandbox, or one of its containers has run."""
    status = pod.get("status", {})
    if any(one["type"] == _HAS_SANDBOX and one["status"] == "True" for one in status.get("conditions", [])):
        return True
    containers = status.get("containerStatuses", [])
    return any(one.get("restartCount") or "waiting" not in one.get("state", {}) for one in containers)


def _message(event: Manifest) -> str:
    return str(event.get("message") or "").strip()


def time_of(event: Manifest) -> datetime:
    """Return the time of an event's last occurrence. Event sources fill in only some of these fields."""
    series: Manifest = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((_read(time) for time in times if time), _NEVER)


def _read(time: str) -> datetime:
    """Parse an RFC 3339 time of the API server."""
    return datetime.fromisoformat(time)
