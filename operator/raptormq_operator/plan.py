"""Computes the next safe steps from the observed and the wanted objects of a cluster. No I/O.

`plan` is called after every change and returns only steps that are safe now. Every step is idempotent. After a crash
between two steps, the next plan starts from the observed state. The rules:

1. An object that this cluster does not own is never changed. A foreign object with a wanted name blocks its unit.
2. Missing objects are created at once. Services come before workloads.
3. Existing workloads are changed one at a time: first the name servers; then a broker, only while every other broker is
   available, that is, its StatefulSet is settled and every name server lists it.
4. An unavailable broker may always be changed: nothing is lost, and the change may repair it. A broker is unavailable
   if its StatefulSet is not settled and it does not respond. One of the two is not sufficient: while a name server
   restarts, brokers are neither listed nor ready, although all of them serve clients.
5. A broker that is not available but may serve clients is changed while no broker is unavailable or being changed, also
   one at a time.
6. A change is written first, and the pod is evicted afterwards in the same reconciliation. The API server evicts no pod
   that the disruption budget protects, so a rolling update and a drain never evict two brokers at a time.
7. Owned objects that are no longer wanted are deleted last. Volume claims are never deleted here.
8. A broker whose volume claim is being deleted is not evicted, because only its pod still keeps the disk.
9. A member of a Dledger group is changed when its leader reports that the group keeps a quorum of caught-up members
   without it: one member of the cluster at a time, followers first. A leader transfers leadership before its change. A
   broker that will become the first member of a group has no replicas yet, and is changed although the other members
   wait for it.
10. A slave is changed while its master responds and the other slaves have caught up. A master is changed after its
    slaves, while one of them has all its messages. There is no transfer: no other member accepts messages meanwhile.
11. A promotion (`promotion`) names the brokers that are changed at once: first the old master, which becomes a slave,
    then the new master.
12. A difference that remains after an apply (`convergence`) causes no step and delays no other change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from raptormq_operator.differences import Difference, differences
from raptormq_operator.manifests.cluster_objects import Unit, Wanted
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names

Key = tuple[str, str]
"""Kind and name; everything is in the namespace of the cluster."""

MAX_WORDS = 5
_HASHES = (names.CONFIG_HASH_ANNOTATION, names.MANIFEST_HASH_ANNOTATION)


@dataclass(frozen=True, slots=True)
class Observed:
    """Child objects of one cluster, and other objects with a wanted name. `registered` has the names of the
    StatefulSets whose broker every name server lists, `answering` those whose broker responds.
    """

    owner_uid: str
    objects: Mapping[Key, Manifest]
    registered: frozenset[str] = frozenset()
    answering: frozenset[str] = frozenset()
    accepted: Mapping[Key, frozenset[Difference]] = field(default_factory=dict)
    """Differences that an apply did not change: normalized forms of the API server."""
    contested: Mapping[Key, frozenset[Difference]] = field(default_factory=dict)
    """Differences that reappeared after an apply, and must not be applied again yet."""
    losing_claims: frozenset[str] = frozenset()
    """Names of the StatefulSets whose volume claim will be deleted at the end of their pod."""
    restartable: frozenset[str] | None = None
    """Names of the StatefulSets whose broker may be restarted, according to the leader of its group; None for brokers
    without replication.
    """
    leaders: frozenset[str] = frozenset()
    """Names of the StatefulSets whose broker leads its group, or is its master."""
    elects: bool = True
    """Whether groups elect their leaders, so that a leader can transfer leadership."""
    replaced: frozenset[str] = frozenset()
    """Names of the StatefulSets whose outdated pod is being deleted or has been replaced. Their status does not show
    this: it counts a pod that is being deleted, but not as an updated one.
    """
    promoting: frozenset[str] = frozenset()
    """Names of the StatefulSets whose broker is changed immediately, because a promotion requires it."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of a manifest. The object has these differences or does not exist."""

    manifest: Manifest
    exists: bool
    unit: Key | None = None
    """Key of the last object in the object's unit. If the API server rejects one object of a unit, the rest is not
    changed."""
    differences: frozenset[Difference] = frozenset()


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of exactly the observed object, by its uid."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Eviction of the pods of a StatefulSet that run an outdated revision."""

    stateful_set: str
    revision: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Transfer of leadership from a leader, so that it can be changed."""

    stateful_set: str


Step = Apply | Delete | Evict | Transfer


@dataclass(frozen=True, slots=True)
class Held:
    """A broker whose change must wait."""

    broker: str
    change: str
    """Summary of the change."""
    why: str
    """Reason for the wait."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`steps` may be taken now, in order. `waiting` has the workloads whose pods do not serve yet, `conflicts` the
    foreign objects with wanted names, `held` the brokers whose change must wait, `staying` the differences that remain
    after an apply. If all are empty, the cluster is in the wanted state.
    """

    steps: tuple[Step, ...]
    waiting: tuple[str, ...]
    conflicts: tuple[str, ...]
    held: tuple[Held, ...] = ()
    staying: tuple[str, ...] = ()
    updated: frozenset[str] = frozenset()
    """Names of the brokers whose pods run the wanted revision."""

    @property
    def done(self) -> bool:
        """Whether there is nothing to do or to wait for."""
        return not (self.steps or self.waiting or self.conflicts or self.held or self.staying)


def plan(observed: Observed, wanted: Wanted) -> Plan:
    """Return the steps that are safe now."""
    name_server_steps = _changes(observed, wanted.name_servers)
    steps = [*_shared_changes(observed, wanted.shared), *name_server_steps]
    broker_steps = list(_broker_changes(observed, wanted, name_servers_change=bool(name_server_steps)))
    steps += broker_steps
    steps += _leftovers(observed, wanted)
    changing = {step.unit for step in broker_steps if isinstance(step, Apply) and step.unit is not None}
    changing |= {("StatefulSet", step.stateful_set) for step in broker_steps if isinstance(step, Evict | Transfer)}
    return Plan(
        steps=tuple(steps),
        waiting=tuple(_waiting(observed, wanted)),
        conflicts=tuple(
            f"{kind} {name}" for kind, name in map(key_of, wanted.objects) if _foreign(observed, (kind, name))
        ),
        held=tuple(_held(observed, wanted, changing, name_servers_change=bool(name_server_steps))),
        staying=tuple(_staying(observed, wanted)),
        updated=frozenset(
            _workload(unit)[1] for unit in wanted.brokers if _updated(observed, unit) and not _changes(observed, unit)
        ),
    )


def _broker_changes(observed: Observed, wanted: Wanted, *, name_servers_change: bool) -> Iterator[Step]:
    """Return the steps of all unavailable brokers, and of at most one that may serve clients if the name servers are
    healthy. Missing objects of the others are created, so that a restarted pod finds its configuration.
    """
    if observed.restartable is not None:
        yield from _member_changes(observed, wanted, observed.restartable, name_servers_change=name_servers_change)
        return
    brokers = wanted.brokers
    away = {_workload(unit) for unit in brokers if _away(observed, unit)}
    may_disturb = _settled(observed, wanted.name_servers) and not name_servers_change
    may_disturb = may_disturb and not away and all(_rolled(observed, unit) for unit in brokers)
    unavailable = {_workload(unit) for unit in brokers if not _available(observed, unit)}
    young = {_workload(unit) for unit in brokers if _young(observed, unit)}
    # A change that has begun continues.
    for unit in sorted(brokers, key=lambda unit: not _outdated(observed, unit)):
        key = _workload(unit)
        if key in away:
            yield from _turn(observed, unit)
        elif may_disturb and not young - {key} and (key in unavailable or not unavailable):
            steps = _turn(observed, unit)
            may_disturb = not steps
            yield from steps
        else:
            yield from _missing(observed, unit)


def _missing(observed: Observed, unit: Unit) -> Iterator[Step]:
    """Return the steps that create missing objects, so that a restarted pod finds its configuration."""
    return (step for step in _changes(observed, unit) if isinstance(step, Apply) and not step.exists)


def _member_changes(
    observed: Observed, wanted: Wanted, restartable: frozenset[str], *, name_servers_change: bool
) -> Iterator[Step]:
    """Return the steps of all unavailable members, and of at most one whose group keeps a quorum without it."""
    may_disturb = _settled(observed, wanted.name_servers) and not name_servers_change
    may_disturb = may_disturb and all(_rolled(observed, unit) for unit in wanted.brokers)
    # Before the first leader, no client can have cached an address.
    young = {_workload(unit)[1] for unit in wanted.brokers if observed.leaders and _young(observed, unit)}

    def turn_order(unit: Unit) -> tuple[bool, bool]:
        return _workload(unit)[1] in observed.leaders, not _outdated(observed, unit)

    for unit in sorted(wanted.brokers, key=turn_order):
        name = _workload(unit)[1]
        steps = _turn(observed, unit)
        if _away(observed, unit) or name in observed.promoting:
            yield from steps
        elif (
            steps and may_disturb and name in restartable and not young - {name} and not _waits(observed, wanted, unit)
        ):
            may_disturb = False
            yield from [Transfer(name)] if observed.elects and name in observed.leaders else steps
        else:
            yield from _missing(observed, unit)


def _waits(observed: Observed, wanted: Wanted, unit: Unit) -> bool:
    """Return True for a master while one of its slaves still has to be changed."""
    if observed.elects or _workload(unit)[1] not in observed.leaders:
        return False
    return any(
        _turn(observed, other)
        for other in wanted.brokers
        if _group(other) == _group(unit) and _workload(other) != _workload(unit)
    )


def _group(unit: Unit) -> str:
    group: str = unit.objects[-1]["metadata"]["labels"][names.GROUP_LABEL]
    return group


def ended(workload: Manifest) -> bool:
    """Return True if no pod of a StatefulSet runs an outdated revision: each such pod was recreated or deleted.
    A pod on a lost node exists until its node or an administrator deletes it.
    """
    status = workload.get("status", {})
    if status.get("observedGeneration", 0) < workload["metadata"]["generation"]:
        return False
    return all_updated(workload) or status.get("replicas", 0) == 0


def _turn(observed: Observed, unit: Unit) -> list[Step]:
    """Return the pending applies of a unit; after these, the eviction of an outdated pod."""
    steps = _changes(observed, unit)
    if steps or not _outdated(observed, unit) or _workload(unit)[1] in observed.losing_claims:
        return steps
    kind, name = _workload(unit)
    workload = observed.objects[kind, name]
    return [Evict(name, workload["status"]["updateRevision"], workload["spec"]["selector"]["matchLabels"])]


def _held(observed: Observed, wanted: Wanted, changing: set[Key], *, name_servers_change: bool) -> Iterator[Held]:
    """Return the brokers whose change is not a step now. The reasons are those of `_broker_changes`."""
    for unit in wanted.brokers:
        key = _workload(unit)
        changes = [step for step in _changes(observed, unit) if isinstance(step, Apply)]
        if key not in changing and (changes or _outdated(observed, unit)):
            found = [difference for step in changes for difference in sorted(step.differences)]
            why = "its volume claim is being deleted, which completes when its pod ends"
            if changes or key[1] not in observed.losing_claims:
                why = _why_held(observed, wanted, unit, changing, name_servers_change=name_servers_change)
            yield Held(key[1], in_words(found) if changes else "eviction of the pod from before the change", why)


def _why_held(observed: Observed, wanted: Wanted, unit: Unit, changing: set[Key], *, name_servers_change: bool) -> str:
    servers = _workload(wanted.name_servers)[1]
    if name_servers_change:
        return f"{servers} is changed first"
    brokers = wanted.brokers
    if observed.restartable is not None:
        busy = sorted(name for _, name in changing) or [
            _workload(unit)[1] for unit in brokers if not _rolled(observed, unit)
        ]
        if busy:
            return f"{', '.join(busy)} is changed first"
        if _waits(observed, wanted, unit):
            return "its slaves are changed first"
        if _workload(unit)[1] not in observed.restartable:
            if not observed.elects:
                return "its master does not respond, or no other slave has caught up"
            return "its group has no quorum of caught-up members without it"
        if young := [_workload(each)[1] for each in brokers if _young(observed, each)]:
            return f"{', '.join(young)} is not available to all clients"
        return f"{servers} is not available"
    groups = (
        ("does not serve", [unit for unit in brokers if _away(observed, unit)]),
        ("is being made anew", [unit for unit in brokers if not _rolled(observed, unit)]),
        ("is not available", [] if _settled(observed, wanted.name_servers) else [wanted.name_servers]),
        ("is changed first", [unit for unit in brokers if _workload(unit) in changing]),
        ("is not available to all clients", [unit for unit in brokers if not _available(observed, unit)]),
    )
    for words, units in groups:
        if units:
            return f"{', '.join(_workload(unit)[1] for unit in units)} {words}"
    return "another broker is changed first"


def in_words(found: Iterable[Difference]) -> str:
    """Return a summary of a change: `image raptormq:2, configuration`."""
    words: dict[str, None] = {}
    for difference in found:
        name = difference.field.rpartition("]")[2].lstrip(".") or difference.field
        if name.endswith(_HASHES):
            continue
        if name == "image":
            words[f"image {difference.wants.strip(chr(34))}"] = None
        elif name.startswith("data."):
            words["configuration"] = None
        else:
            words[name.removeprefix("spec.template.spec.").removeprefix("spec.")] = None
    texts = list(words) or ["fields that are no longer wanted"]
    more = [f"{len(texts) - MAX_WORDS} more fields"] if len(texts) > MAX_WORDS else []
    return ", ".join(texts[:MAX_WORDS] + more)


def _waiting(observed: Observed, wanted: Wanted) -> Iterator[str]:
    """Return the workloads whose pods are not ready. Pods serve clients when they are ready; a rolling update waits
    until they are available (`minReadySeconds`).
    """
    for unit in (wanted.name_servers, *wanted.brokers):
        if not _serving(observed, unit):
            yield _workload(unit)[1]


def _staying(observed: Observed, wanted: Wanted) -> Iterator[str]:
    for manifest in wanted.objects:
        kind, name = key_of(manifest)
        current = observed.objects.get((kind, name))
        if current is not None and not _foreign(observed, (kind, name)):
            left = _left(observed, current, manifest)
            if left and left <= observed.contested.get((kind, name), frozenset()):
                yield f"{kind} {name}: {', '.join(map(str, sorted(left)))}"


def key_of(manifest: Manifest) -> Key:
    """Return the kind and name of an object."""
    return manifest["kind"], manifest["metadata"]["name"]


def settled(workload: Manifest | None) -> bool:
    """Return True if the StatefulSet controller has processed the last change and all pods run it and are available."""
    if workload is None:
        return False
    status = workload.get("status", {})
    replicas = workload["spec"]["replicas"]
    return (
        all_updated(workload)
        and status.get("availableReplicas", 0) == replicas
        and status.get("replicas", 0) == replicas
    )


def all_updated(workload: Manifest) -> bool:
    """Return True if the StatefulSet controller has processed the last change and has recreated all pods."""
    status = workload.get("status", {})
    return bool(
        status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == workload["spec"]["replicas"]
    )


def _changes(observed: Observed, unit: Unit) -> list[Step]:
    """Return the steps of a unit that is changed as a whole; none if a foreign object has one of its names."""
    if any(_foreign(observed, key_of(manifest)) for manifest in unit.objects):
        return []
    return [step for manifest in unit.objects for step in _change(observed, manifest, _workload(unit))]


def _shared_changes(observed: Observed, unit: Unit) -> list[Step]:
    """Return the steps of independent objects; a foreign object blocks only itself."""
    return [step for manifest in unit.objects for step in _changes(observed, Unit((manifest,)))]


def _change(observed: Observed, manifest: Manifest, unit: Key) -> Iterable[Step]:
    key = key_of(manifest)
    current = observed.objects.get(key)
    if current is None:
        yield Apply(manifest, exists=False, unit=unit)
        return
    left = _left(observed, current, manifest)
    if not left <= observed.contested.get(key, frozenset()):
        yield Apply(manifest, exists=True, unit=unit, differences=left)


def _left(observed: Observed, current: Manifest, manifest: Manifest) -> frozenset[Difference]:
    """Return the differences except those in representation only."""
    return frozenset(differences(current, manifest)) - observed.accepted.get(key_of(manifest), frozenset())


def _serving(observed: Observed, unit: Unit) -> bool:
    key = _workload(unit)
    workload = observed.objects.get(key)
    if workload is None or _foreign(observed, key):
        return False
    return all_updated(workload) and workload["status"].get("readyReplicas", 0) == workload["spec"]["replicas"]


def _updated(observed: Observed, unit: Unit) -> bool:
    """Return True if the pods of a unit run the revision of its StatefulSet."""
    workload = observed.objects.get(_workload(unit))
    if workload is None or any(_foreign(observed, key_of(manifest)) for manifest in unit.objects):
        return False
    return all_updated(workload)


def _settled(observed: Observed, unit: Unit) -> bool:
    key = _workload(unit)
    return not _foreign(observed, key) and settled(observed.objects.get(key))


def _rolled(observed: Observed, unit: Unit) -> bool:
    """Return False while the pod of a broker is being replaced."""
    key = _workload(unit)
    workload = observed.objects.get(key)
    return workload is None or _foreign(observed, key) or all_updated(workload) or _outdated(observed, unit)


def _outdated(observed: Observed, unit: Unit) -> bool:
    """Return True if the StatefulSet controller has processed the last change and its pod must be evicted."""
    key = _workload(unit)
    workload = observed.objects.get(key)
    if workload is None or _foreign(observed, key) or key[1] in observed.replaced:
        return False
    return counts_outdated_pod(workload)


def counts_outdated_pod(workload: Manifest) -> bool:
    """Return True if the pod of a StatefulSet is being deleted or runs an outdated revision, as its status shows."""
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
    """Return True if clients can use the broker, even if it will be evicted for a change."""
    key = _workload(unit)
    if key[1] not in observed.registered:
        return False
    if not _outdated(observed, unit):
        return _settled(observed, unit)
    workload = observed.objects[key]
    return bool(workload["status"].get("availableReplicas", 0) == workload["spec"]["replicas"])


def _young(observed: Observed, unit: Unit) -> bool:
    """Return True while clients may have cached the previous address of a broker (`minReadySeconds`)."""
    workload = observed.objects.get(_workload(unit))
    if workload is None or _workload(unit)[1] not in observed.registered or _foreign(observed, _workload(unit)):
        return False
    status, replicas = workload.get("status", {}), workload["spec"]["replicas"]
    return bool(status.get("readyReplicas", 0) == replicas > status.get("availableReplicas", 0))


def _workload(unit: Unit) -> Key:
    return key_of(unit.objects[-1])


def _foreign(observed: Observed, key: Key) -> bool:
    current = observed.objects.get(key)
    return current is not None and not is_owned(observed, current)


def is_owned(observed: Observed, current: Manifest) -> bool:
    """Return whether the cluster owns an object."""
    return is_owned_by(observed.owner_uid, current)


def is_owned_by(uid: str, current: Manifest) -> bool:
    """Return whether the cluster with this uid owns an object."""
    owners = current["metadata"].get("ownerReferences", [])
    return any(owner.get("controller") and owner["uid"] == uid for owner in owners)


def _leftovers(observed: Observed, wanted: Wanted) -> Iterable[Step]:
    keys = {key_of(manifest) for manifest in wanted.objects}
    for key, current in sorted(observed.objects.items()):
        if key not in keys and is_owned(observed, current):
            yield Delete(*key, uid=current["metadata"]["uid"])
