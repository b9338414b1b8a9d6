"""What Kubernetes says of pods that have not begun, in its Warning events. Pure: lists in as the API server shows them.

An event stays for an hour although its cause is gone, and says nothing of when it ends. So an event counts only while
what it speaks of is still missing:

no pod                   FailedCreate of its StatefulSet            a quota, an admission rule, a claim that is refused
a pod without a node     ProvisioningFailed of its volume claims    a StorageClass that is not there, a full cloud
a pod that never ran     FailedMount, FailedAttachVolume of it      a Secret that is not there, a disk elsewhere
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.pod_words import cut, joined

_NOT_MOUNTED = frozenset({"FailedMount", "FailedAttachVolume"})


def expects(replicas: Mapping[str, int], pods: Sequence[Manifest]) -> bool:
    """Whether a pod is missing or has not begun, so that events may say why. `replicas`: StatefulSet -> its pods."""
    there = _by_name(pods)
    return any(name not in there or not _has_begun(there[name]) for _, name in _pods_of(replicas))


def listen(replicas: Mapping[str, int], pods: Sequence[Manifest], warnings: Sequence[Manifest]) -> str:
    """What the newest events say of each pod that is missing or has not begun; "" when none does."""
    there = _by_name(pods)
    said = []
    for owner, name in _pods_of(replicas):
        newest = max(_about(owner, there.get(name), warnings), key=_time, default=None)
        if newest is not None:
            said.append((name, cut(str(newest.get("message", "")).strip())))
    return joined(said)


def _pods_of(replicas: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    return ((owner, f"{owner}-{ordinal}") for owner, count in replicas.items() for ordinal in range(count))


def _by_name(pods: Sequence[Manifest]) -> dict[str, Manifest]:
    return {pod["metadata"]["name"]: pod for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def _about(owner: str, pod: Manifest | None, warnings: Sequence[Manifest]) -> Iterable[Manifest]:
    """The warnings that explain why a pod is not there, or has not begun."""
    for event in warnings:
        about, reason = event["involvedObject"], event.get("reason")
        if pod is None:
            explains = reason == "FailedCreate" and (about.get("kind"), about.get("name")) == ("StatefulSet", owner)
        elif "nodeName" not in pod["spec"]:
            of_a_claim = about.get("kind") == "PersistentVolumeClaim" and about.get("name") in _claims(pod)
            explains = reason == "ProvisioningFailed" and of_a_claim
        else:
            explains = not _has_begun(pod) and reason in _NOT_MOUNTED and about.get("uid") == pod["metadata"]["uid"]
        if explains:
            yield event


def _claims(pod: Manifest) -> set[str]:
    volumes = pod["spec"].get("volumes", [])
    return {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}


def _has_begun(pod: Manifest) -> bool:
    """Whether a container runs or ever ran."""
    containers = pod.get("status", {}).get("containerStatuses", [])
    return any(one.get("restartCount") or "waiting" not in one.get("state", {}) for one in containers)


def _time(event: Manifest) -> str:
    """When it was last seen (RFC 3339); who writes events fills in one of these."""
    series: Manifest = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), "")
