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
8.  A difference that an apply does not change (`convergence`) is no reason for a step: it holds up nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from raptormq_operator.differences import Difference, differences
from raptormq_operator.manifests.cluster_objects import Unit, Wanted
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.manifests.pod import has_access_secrets
from raptormq_operator.model import names

Key = tuple[str, str]
"""Kind and name; everything is in the namespace of the cluster."""

MAX_WORDS = 5
_HASHES = (names.CONFIG_HASH_ANNOTATION, names.MANIFEST_HASH_ANNOTATION)


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
    accepted: Mapping[Key, frozenset[Difference]] = field(default_factory=dict)
    """Differences that an apply left as they are: the API server's way to write the same."""
    contested: Mapping[Key, frozenset[Difference]] = field(default_factory=dict)
    """Differences that came back after an apply, and that are not to be applied again yet."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of the manifest, which is there with these differences, or is not there."""

    manifest: Manifest
    exists: bool
    unit: Key | None = None
    """The last object of what it is changed with: when one of the objects is refused the rest is left as it is."""
    differences: frozenset[Difference] = frozenset()


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
class Held:
    """A broker whose change has to wait."""

    broker: str
    change: str
    """What would change, in words."""
    why: str
    """What it waits for, in words."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`steps` may be taken now, in order. `waiting` names the workloads whose pods do not serve yet, `conflicts` the
    foreign objects that are in the way, `held` the brokers that are not changed yet, `staying` what differs after an
    apply, too. All of them empty: the cluster is as it is wanted."""

    steps: tuple[Step, ...]
    waiting: tuple[str, ...]
    conflicts: tuple[str, ...]
    held: tuple[Held, ...] = ()
    staying: tuple[str, ...] = ()
    updated: frozenset[str] = frozenset()
    """Names of the brokers whose pods run what is wanted."""

    @property
    def done(self) -> bool:
        """Nothing is left to do or to wait for."""
        return not (self.steps or self.waiting or self.conflicts or self.held or self.staying)


def plan(observed: Observed, wanted: Wanted) -> Plan:
    """The steps that are safe now."""
    name_server_steps = _changes(observed, wanted.name_servers)
    steps = [*_shared_changes(observed, wanted.shared), *name_server_steps]
    broker_steps = list(_broker_changes(observed, wanted, name_servers_change=bool(name_server_steps)))
    steps += broker_steps
    steps += _leftovers(observed, wanted)
    changing = {step.unit for step in broker_steps if isinstance(step, Apply) and step.unit is not None}
    changing |= {("StatefulSet", step.stateful_set) for step in broker_steps if isinstance(step, Evict)}
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


def name_servers_may_authenticate(observed: Observed, wanted: Wanted) -> bool:
    """Whether name servers may refuse unsigned requests, so that every broker stays listed while access control is
    turned on: all brokers that there are sign. Name servers that do it already go on while brokers come and go.
    """
    brokers = [unit for unit in wanted.brokers if _workload(unit) in observed.objects]
    if not all(has_access_secrets(observed.objects[_workload(unit)]) for unit in brokers if _ours(observed, unit)):
        return False
    servers = observed.objects.get(_workload(wanted.name_servers))
    if servers is not None and _ours(observed, wanted.name_servers) and has_access_secrets(servers):
        return True
    return all(_all_updated(observed.objects[_workload(unit)]) for unit in brokers if _ours(observed, unit))


def _ours(observed: Observed, unit: Unit) -> bool:
    return not _foreign(observed, _workload(unit))


def _broker_changes(observed: Observed, wanted: Wanted, *, name_servers_change: bool) -> Iterator[Step]:
    """Steps of all brokers that are away, and of at most one that may serve while the name servers are well."""
    brokers = wanted.brokers
    away = {_workload(unit) for unit in brokers if _away(observed, unit)}
    may_disturb = _settled(observed, wanted.name_servers) and not name_servers_change
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


def _held(observed: Observed, wanted: Wanted, changing: set[Key], *, name_servers_change: bool) -> Iterator[Held]:
    """Brokers with a change that is no step now. The reasons are those of `_broker_changes`."""
    for unit in wanted.brokers:
        key = _workload(unit)
        changes = [step for step in _changes(observed, unit) if isinstance(step, Apply)]
        if key not in changing and (changes or _outdated(observed, unit)):
            found = [difference for step in changes for difference in sorted(step.differences)]
            why = _why_held(observed, wanted, changing, name_servers_change=name_servers_change)
            yield Held(key[1], in_words(found) if changes else "eviction of the pod from before the change", why)


def _why_held(observed: Observed, wanted: Wanted, changing: set[Key], *, name_servers_change: bool) -> str:
    servers = _workload(wanted.name_servers)[1]
    if name_servers_change:
        return f"{servers} is changed first"
    brokers = wanted.brokers
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
    """What a change is about: `image raptormq:2, configuration`."""
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
    """Name servers serve as soon as they are ready; a roll waits until they are available (`minReadySeconds`)."""
    if not _serving(observed, wanted.name_servers):
        yield _workload(wanted.name_servers)[1]
    for unit in wanted.brokers:
        if not _settled(observed, unit):
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
    return [step for manifest in unit.objects for step in _change(observed, manifest, _workload(unit))]


def _shared_changes(observed: Observed, unit: Unit) -> list[Step]:
    """Steps of objects that stand alone: a foreign one only stops itself."""
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
    """What differs, without what is only written another way."""
    return frozenset(differences(current, manifest)) - observed.accepted.get(key_of(manifest), frozenset())


def _serving(observed: Observed, unit: Unit) -> bool:
    key = _workload(unit)
    workload = observed.objects.get(key)
    if workload is None or _foreign(observed, key):
        return False
    return _all_updated(workload) and workload["status"].get("readyReplicas", 0) == workload["spec"]["replicas"]


def _updated(observed: Observed, unit: Unit) -> bool:
    """True when the pods of a unit run what its StatefulSet says."""
    workload = observed.objects.get(_workload(unit))
    if workload is None or any(_foreign(observed, key_of(manifest)) for manifest in unit.objects):
        return False
    return _all_updated(workload)


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
