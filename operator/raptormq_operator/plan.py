"""The mind of the operator: what exists and what is wanted in, the next safe steps out. Pure.

`plan` is asked again whenever anything changes, and each time says only what may be done now. Every step is idempotent;
after a crash between two steps the next plan simply starts from what is there. The rules:

1.  An object that this cluster does not own is never touched. A foreign object under a wanted name blocks its unit.
2.  What does not exist is made at once. Services come before workloads.
3.  Workloads that exist change one after the other: the name servers first; then a broker only while every other broker
    is available, that is, its StatefulSet is settled and every name server lists it.
4.  A broker that is away may always be changed: nothing is lost, and the change may be its cure. Away is one whose
    StatefulSet is not settled and that does not answer either. One of the two proves little: while a name server
    restarts, no broker is listed and none is ready, and all of them serve.
5.  A broker that may serve and is not available is changed while nobody is away or being changed, also one at a time.
6.  A change is written first and its pod evicted afterwards, in the same turn: the API server evicts no pod that the
    disruption budget protects, so a roll and a drain never take two brokers.
7.  What is owned and wanted no longer is deleted last. Volume claims are never deleted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from raptormq_operator.manifest_matches import manifest_matches
from raptormq_operator.manifests.cluster_objects import Unit, Wanted
from raptormq_operator.manifests.metadata import Manifest

Key = tuple[str, str]
"""Kind and name; everything is in the namespace of the cluster."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Children of one cluster, and whatever else lives under a wanted name.

    `registered` holds the names of the StatefulSets whose broker every name server lists, `answering` of those whose
    broker gives a sign of life.
    """

    owner_uid: str
    objects: Mapping[Key, Manifest]
    registered: frozenset[str] = frozenset()
    answering: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of the manifest; `exists` only chooses the word in the event."""

    manifest: Manifest
    exists: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of exactly the object that was seen, by its uid."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Eviction of the pods of a StatefulSet that do not run its revision."""

    stateful_set: str
    revision: str
    labels: Mapping[str, str]


Step = Apply | Delete | Evict


@dataclass(frozen=True, slots=True)
class Plan:
    """`steps` may be taken now, in order. `waiting` names the workloads whose pods are not available yet, `conflicts`
    the foreign objects that are in the way. All three empty: the cluster is as it is wanted."""

    steps: tuple[Step, ...]
    waiting: tuple[str, ...]
    conflicts: tuple[str, ...]


def plan(observed: Observed, wanted: Wanted) -> Plan:
    """The steps that are safe now."""
    name_server_steps = _changes(observed, wanted.name_servers)
    name_servers_settled = _settled(observed, wanted.name_servers)
    steps = [*_shared_changes(observed, wanted.shared), *name_server_steps]
    brokers_may_change = name_servers_settled and not name_server_steps
    steps += _broker_changes(observed, wanted.brokers, may_disturb=brokers_may_change)
    steps += _leftovers(observed, wanted)
    workloads = [wanted.name_servers, *wanted.brokers]
    return Plan(
        steps=tuple(steps),
        waiting=tuple(_workload(unit)[1] for unit in workloads if not _settled(observed, unit)),
        conflicts=tuple(
            f"{kind} {name}" for kind, name in map(key_of, wanted.objects) if _foreign(observed, (kind, name))
        ),
    )


def _broker_changes(observed: Observed, brokers: Sequence[Unit], *, may_disturb: bool) -> Iterable[Step]:
    """Steps of all brokers that are away, and of at most one that may serve, if `may_disturb`."""
    away = {_workload(unit) for unit in brokers if _away(observed, unit)}
    may_disturb = may_disturb and not away and all(_rolled(observed, unit) for unit in brokers)
    unavailable = {_workload(unit) for unit in brokers if not _available(observed, unit)}
    # Whose turn has begun goes on.
    for unit in sorted(brokers, key=lambda unit: not _outdated(observed, unit)):
        key = _workload(unit)
        if key in away:
            yield from _turn(observed, unit)
        elif may_disturb and (key in unavailable or not unavailable):
            steps = _turn(observed, unit)
            may_disturb = not steps
            yield from steps


def _turn(observed: Observed, unit: Unit) -> list[Step]:
    """What is to be written; when everything is, the eviction of a pod that does not run it yet."""
    steps = _changes(observed, unit)
    if steps or not _outdated(observed, unit):
        return steps
    kind, name = _workload(unit)
    workload = observed.objects[kind, name]
    return [Evict(name, workload["status"]["updateRevision"], workload["spec"]["selector"]["matchLabels"])]


def key_of(manifest: Manifest) -> Key:
    """Kind and name of an object."""
    return manifest["kind"], manifest["metadata"]["name"]


def settled(workload: Manifest | None) -> bool:
    """True when a StatefulSet's controller has seen its last change and all pods run it and are available."""
    if workload is None:
        return False
    status = workload.get("status", {})
    replicas = workload["spec"]["replicas"]
    return (
        _all_updated(workload)
        and status.get("availableReplicas", 0) == replicas
        and status.get("replicas", 0) == replicas
    )


def _all_updated(workload: Manifest) -> bool:
    """True when a StatefulSet's controller has seen its last change and has made all pods anew."""
    status = workload.get("status", {})
    return bool(
        status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == workload["spec"]["replicas"]
    )


def _changes(observed: Observed, unit: Unit) -> list[Step]:
    """Steps of a unit that is changed as one: none while a foreign object is in the way."""
    if any(_foreign(observed, key_of(manifest)) for manifest in unit.objects):
        return []
    return [step for manifest in unit.objects for step in _change(observed, manifest)]


def _shared_changes(observed: Observed, unit: Unit) -> list[Step]:
    """Steps of objects that stand alone: a foreign one only stops itself."""
    return [step for manifest in unit.objects for step in _changes(observed, Unit((manifest,)))]


def _change(observed: Observed, manifest: Manifest) -> Iterable[Step]:
    current = observed.objects.get(key_of(manifest))
    if current is None or not manifest_matches(current, manifest):
        yield Apply(manifest, exists=current is not None)


def _settled(observed: Observed, unit: Unit) -> bool:
    key = _workload(unit)
    return not _foreign(observed, key) and settled(observed.objects.get(key))


def _rolled(observed: Observed, unit: Unit) -> bool:
    """False while the pod of a broker goes and comes."""
    key = _workload(unit)
    workload = observed.objects.get(key)
    return workload is None or _foreign(observed, key) or _all_updated(workload) or _outdated(observed, unit)


def _outdated(observed: Observed, unit: Unit) -> bool:
    """True when a StatefulSet's controller has seen its last change and its pod is there and has to be evicted."""
    key = _workload(unit)
    workload = observed.objects.get(key)
    if workload is None or _foreign(observed, key):
        return False
    status = workload.get("status", {})
    return bool(
        status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
        and status.get("updateRevision")
        and status.get("replicas", 0) == workload["spec"]["replicas"]
        and status.get("updatedReplicas", 0) < workload["spec"]["replicas"]
    )


def _away(observed: Observed, unit: Unit) -> bool:
    return not _settled(observed, unit) and _workload(unit)[1] not in observed.answering


def _available(observed: Observed, unit: Unit) -> bool:
    """True when clients can use it, also when it still waits to be evicted for a change."""
    key = _workload(unit)
    if key[1] not in observed.registered:
        return False
    if not _outdated(observed, unit):
        return _settled(observed, unit)
    workload = observed.objects[key]
    return bool(workload["status"].get("availableReplicas", 0) == workload["spec"]["replicas"])


def _workload(unit: Unit) -> Key:
    return key_of(unit.objects[-1])


def _foreign(observed: Observed, key: Key) -> bool:
    current = observed.objects.get(key)
    return current is not None and not _owned(observed, current)


def _owned(observed: Observed, current: Manifest) -> bool:
    owners = current["metadata"].get("ownerReferences", [])
    return any(owner.get("controller") and owner["uid"] == observed.owner_uid for owner in owners)


def _leftovers(observed: Observed, wanted: Wanted) -> Iterable[Step]:
    keys = {key_of(manifest) for manifest in wanted.objects}
    for key, current in sorted(observed.objects.items()):
        if key not in keys and _owned(observed, current):
            yield Delete(*key, uid=current["metadata"]["uid"])
