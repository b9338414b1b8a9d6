"""Reconciliation of the Topics of one cluster, in groups, so that the number of requests does not depend on their
number.

For each broker the operator reads all topics, updates the differing topics with one request, and reads all topics
again; the second response determines the status. Brokers that did not respond to the latest probe are skipped.

The finalizer is set only with `deletionPolicy: Delete`. It is removed as soon as the cluster is deleted or being
deleted, or when another resource owns the topic, so that it never blocks the deletion of a namespace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from raptormq.errors import RaptorMQError, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.unreadable import Unreadable
from raptormq_operator import cluster_status, topic_plan
from raptormq_operator.admin import BrokerTopics, TopicAnswer
from raptormq_operator.cluster_probe import ClusterProbe, probe_cluster
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.lanes import bounded
from raptormq_operator.manifests.metadata import Manifest, digest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Member
from raptormq_operator.model.topic import Topic
from raptormq_operator.parts import ReconcilerParts
from raptormq_operator.retries import Retries
from raptormq_operator.topic_finalizer import has_finalizer, set_finalizer
from raptormq_operator.topic_plan import Answer, Failure
from raptormq_operator.topic_store import ClusterName, TopicStore

HOLD_S = 30.0
"""Time in seconds for which a Topic that was Ready stays Ready although its cluster has a failure. Its cluster reports
the failure at once. The restart of a broker is usually shorter, and would otherwise cost two writes per Topic.
"""
GROUP_SIZE = 500
"""Maximum number of Topics per run; the next run takes the rest."""
RETRY_FIRST_S = 2.0
RETRY_MAX_S = 300.0

log = get_logger(__name__)


_LEADERLESS = "no member leads the group, or is its master"
_OF_CLUSTER = frozenset(
    {
        Reason.BROKER_UNREACHABLE,
        Reason.CLUSTER_NOT_READY,
        Reason.NAME_SERVER_UNREACHABLE,
        Reason.NOT_REGISTERED,
        Reason.NO_LEADER,
        Reason.NO_MASTER,
        Reason.NO_SLAVE,
        Reason.SLAVE_BEHIND,
    }
)
"""Reasons that concern all Topics of a cluster. The cluster reports them with an Event; its Topics record none."""
_OTHERS_TELL = _OF_CLUSTER - {Reason.BROKER_UNREACHABLE} | {
    Reason.READY,
    Reason.TOPIC_CONFLICT,
    Reason.CLUSTER_NOT_FOUND,
}
"""Reasons without a retry timer: an event of another resource or of the cluster triggers the next reconciliation."""
_HELD = "the state of the cluster"
""""Reason" for the retry of Topics whose status waits for `HOLD_S`."""
_UNREADABLE = "the messages that consumers do not read"
""""Reason" for the retry of Topics with such messages, or to which they can be sent: their number changes without an
event."""


@dataclass(slots=True)
class _Look:
    """A Topic during its reconciliation. Without a verdict its finalizer is removed."""

    body: Manifest
    topic: Topic
    answers: dict[str, Answer] = field(default_factory=dict)
    unreadable: dict[str, Unreadable] = field(default_factory=dict)
    """Messages that consumers do not read, by address of the broker."""
    changed: bool = False
    verdict: Verdict | None = None


class _TriedAgain:
    """Retries of one cluster's Topics, grouped by reason. The Topics of a group are retried together, which takes no
    more requests than one Topic."""

    def __init__(self) -> None:
        self._retries: Retries[str] = Retries(RETRY_FIRST_S, RETRY_MAX_S)
        self._groups: dict[str, set[str]] = {}

    def due(self) -> set[str]:
        """Return the names of the Topics whose retry is due."""
        return {name for group in self._retries.due() for name in self._groups.get(group, ())}

    def outcome(self, looked_at: set[str], failed: Mapping[str, set[str]]) -> None:
        """Record a run over the Topics `looked_at`. `failed` has the failed ones by reason."""
        for group in [*self._groups.keys() | failed.keys()]:
            before = self._groups.get(group, set())
            now = (before - looked_at) | failed.get(group, set())
            if not now:
                self._groups.pop(group, None)
                self._retries.succeeded(group)
            elif before & looked_at or now != before:
                self._groups[group] = now
                self._retries.failed(group, digest(sorted(now)))

    def wait(self) -> float | None:
        """Return the seconds until the next retry; None without failures."""
        return self._retries.next_wait()


class TopicsReconciler:
    """Reconciles the marked Topics of one cluster per call."""

    def __init__(
        self,
        parts: ReconcilerParts,
        store: TopicStore,
        suspect: Callable[[str, str], None] = lambda namespace, name: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`suspect` is called with namespace and name of a cluster when one of its brokers does not respond."""
        self._api = parts.api
        self._admin = parts.admin
        self._events = parts.events
        self._writer = parts.writer
        self._surroundings = parts.surroundings
        self._probes = parts.probes
        self._keys = parts.keys
        self._store = store
        self._suspect = suspect
        self._again: dict[ClusterName, _TriedAgain] = {}
        self._clock = clock
        self._held_since: dict[tuple[str, str], float] = {}
        """When the cluster of a Topic that is still Ready began to fail, by namespace and name of the Topic."""

    async def __call__(self, namespace: str, name: str) -> float | None:
        key = (namespace, name)
        again = self._again.setdefault(key, _TriedAgain())
        self._store.mark(key, again.due())
        taken = self._store.take_changed(key, GROUP_SIZE)
        looks = {each: _Look(body, Topic.from_object(body)) for each in taken if (body := self._store.get(key, each))}
        for each in taken:
            if each not in looks:
                self._writer.forget("Topic", namespace, each)
                self._held_since.pop((namespace, each), None)
        failed: dict[str, set[str]] = {}
        if looks:
            try:
                failed = await self._look_at(key, list(looks.values()))
            except BaseException:
                self._store.mark(key, list(looks))  # their state is unknown
                raise
        again.outcome(set(taken), failed)
        if self._store.has_changed(key):
            return 0.0
        wait = again.wait()
        if wait is None:
            del self._again[key]
        return wait

    async def _look_at(self, key: ClusterName, looks: Sequence[_Look]) -> dict[str, set[str]]:
        """Reconcile the Topics. Return the names of those to retry, by reason."""
        cluster_body = await self._cluster_body(key)
        cluster = Cluster.from_object(cluster_body, self._surroundings) if cluster_body else None
        serving, ending = [], []
        for look in looks:
            refused = topic_plan.refusal(look.topic, self._store.claims(key, look.topic.topic_name))
            if look.topic.deleting:
                if cluster is not None and refused is None and look.topic.deletion_policy == "Delete":
                    ending.append(look)
            elif cluster is None or refused is not None:
                lost = Verdict(Reason.CLUSTER_NOT_FOUND, f"there is no BrokerCluster {key[1]} in {key[0]}")
                look.verdict = refused or lost
            else:
                serving.append(look)
        if cluster is not None and cluster_body is not None:
            probe = self._probes.get(*key) or await self._probe(key, cluster)
            cluster = cluster.with_sizes(probe.sizes)
            if ending:
                await self._end(ending, cluster, probe)
            if serving:
                await self._converge(serving, cluster, probe)
                self._judge(serving, cluster, probe, cluster_is_ready=_is_ready(cluster_body))
        failed: dict[str, set[str]] = {}

        async def settle(look: _Look) -> None:
            if (group := await self._settle(look, cluster)) is not None:
                failed.setdefault(group, set()).add(look.topic.name)

        await bounded(map(settle, looks))
        return failed

    async def _probe(self, key: ClusterName, cluster: Cluster) -> ClusterProbe:
        probe = await probe_cluster(cluster, self._admin, await self._keys.current(cluster))
        self._probes.set(*key, probe)
        return probe

    async def _converge(self, looks: Sequence[_Look], cluster: Cluster, probe: ClusterProbe) -> None:
        """Read the topics of every responding broker, update the differing ones, and read again."""
        silent = probe.silent()
        admin = self._admin.speaking(cluster.tls, await self._keys.current(cluster))

        async def converge(address: str) -> None:
            if address in silent:
                _fail(looks, address, Failure(Reason.BROKER_UNREACHABLE, silent[address]))
                return
            try:
                before = await admin.all_topics(address)
                wanted = await _compare(looks, address, before)
                if wanted:
                    refused = await admin.change_topics(address, before, wanted)
                    await _compare(looks, address, await admin.all_topics(address))
                    for look in looks:
                        if (error := refused.get(look.topic.topic_name)) is not None:
                            look.answers[address] = Failure(Reason.BROKER_REFUSED, str(error))
            except RaptorMQError as error:
                reached = isinstance(error, ServerError)
                _fail(
                    looks, address, Failure(Reason.BROKER_REFUSED if reached else Reason.BROKER_UNREACHABLE, str(error))
                )
                if not reached:
                    self._suspect(cluster.namespace, cluster.name)

        # Followers get topics from their leader.
        electing = {names.broker(group) for group in probe.electing(cluster)}
        for group in probe.leaderless(cluster):
            reason = Reason.NO_LEADER if group in electing else Reason.BROKER_UNREACHABLE
            _fail(looks, group, Failure(Reason.NO_MASTER if cluster.is_master_slave else reason, _LEADERLESS))
        await asyncio.gather(*(converge(member.address) for member in probe.masters(cluster)))

    def _judge(self, looks: Sequence[_Look], cluster: Cluster, probe: ClusterProbe, *, cluster_is_ready: bool) -> None:
        gaps = cluster_status.gaps_in(cluster, probe)
        for look in looks:
            verdict = topic_plan.verdict(look.topic, look.answers)
            if verdict.ready:
                verdict = gaps or verdict
            elif verdict.reason is Reason.BROKER_UNREACHABLE and not cluster_is_ready:
                text = f"BrokerCluster {cluster.name} is not ready: {verdict.message}"
                verdict = Verdict(Reason.CLUSTER_NOT_READY, text)
            look.verdict = verdict

    async def _cluster_body(self, key: ClusterName) -> Manifest | None:
        """Return the BrokerCluster; None if it does not exist or is being deleted."""
        body = await self._api.get("BrokerCluster", *key)
        return None if body is None or "deletionTimestamp" in body["metadata"] else body

    async def _end(self, looks: Sequence[_Look], cluster: Cluster, probe: ClusterProbe) -> None:
        """Delete the topics of resources that are being deleted. A Topic that still exists on a broker gets a
        verdict."""
        left: dict[str, list[str]] = {look.topic.topic_name: [] for look in looks}
        masters = probe.masters(cluster)
        silent = {member.address: fault for member in masters if (fault := probe.brokers[member.address]) is not None}
        silent |= dict.fromkeys(probe.leaderless(cluster), _LEADERLESS)
        if silent:  # each further request would only time out again
            for said in left.values():
                said.extend(f"{address}: {fault}" for address, fault in silent.items())
        else:
            await self._delete(cluster, left)
            await self._find(cluster, masters, left)
        for look in looks:
            if said := left[look.topic.topic_name]:
                text = f"the topic could not be deleted yet: {'; '.join(said)}"
                look.verdict = Verdict(Reason.DELETING, text)

    async def _delete(self, cluster: Cluster, left: Mapping[str, list[str]]) -> None:
        admin = self._admin.speaking(cluster.tls, await self._keys.current(cluster))

        async def delete(topic: str) -> None:
            try:
                await admin.delete_topic(cluster.name_server_address, topic)
            except RaptorMQError as error:
                left[topic].append(str(error))

        await bounded(map(delete, left))

    async def _find(self, cluster: Cluster, masters: Sequence[Member], left: Mapping[str, list[str]]) -> None:
        """Record which brokers still have one of the topics."""
        admin = self._admin.speaking(cluster.tls, await self._keys.current(cluster))

        async def find(address: str) -> None:
            try:
                table = await admin.all_topics(address)
            except RaptorMQError as error:
                for said in left.values():
                    said.append(f"{address}: {error}")
            else:
                for topic, said in left.items():
                    if table.get(topic) is not None:
                        said.append(f"{address}: the topic still exists")

        await asyncio.gather(*(find(member.address) for member in masters))

    async def _settle(self, look: _Look, cluster: Cluster | None) -> str | None:
        """Write the status and set or remove the finalizer. Return the reason for a retry; None if none is needed."""
        topic = look.topic
        try:
            if look.verdict is None:
                self._held_since.pop((topic.namespace, topic.name), None)
                if has_finalizer(look.body):
                    await set_finalizer(self._api, look.body, present=False)
                return None
            if not topic.deleting:
                await self._guard(look.body, topic)
            if self._holds(look, look.verdict):
                return _HELD
            applied = look.changed and look.verdict.ready
            if applied:
                text = f"topic {topic.topic_name} was created or updated on the brokers"
                await self._events.normal(look.body, "Applied", text)
            status = topic_plan.status(topic, cluster, look.answers)
            told = applied or _told_by_cluster(look.body, look.verdict)
            previous = look.body.get("status", {}).get("conditions", [])
            found = topic_plan.concerns(look.answers, look.unreadable, previous)
            written = await self._writer.write(look.body, status, look.verdict, found, told=told)
        except KubeError as error:
            log.warning("Topic %s/%s: %s", topic.namespace, topic.name, error)
            return "the API server"
        if written is not None:
            self._store.written(written)
        if look.verdict.reason not in _OTHERS_TELL:
            return str(look.verdict.reason)
        return _UNREADABLE if found or (look.verdict.ready and topic.write_queues > topic.read_queues) else None

    def _holds(self, look: _Look, verdict: Verdict) -> bool:
        """Return whether a Topic stays Ready for now although its cluster has a failure."""
        place, condition = (look.topic.namespace, look.topic.name), _ready_condition(look.body)
        was_ready = condition.get("status") == "True" and condition["observedGeneration"] == look.topic.generation
        if verdict.reason not in _OF_CLUSTER or not was_ready:
            self._held_since.pop(place, None)
            return False
        since = self._held_since.setdefault(place, self._clock())
        if self._clock() - since < HOLD_S:
            return True
        del self._held_since[place]
        return False

    async def _guard(self, body: Manifest, topic: Topic) -> None:
        """Set the finalizer with `deletionPolicy: Delete`, otherwise remove it."""
        wanted = topic.deletion_policy == "Delete"
        if wanted != has_finalizer(body):
            await set_finalizer(self._api, body, present=wanted)


async def _compare(looks: Sequence[_Look], address: str, table: BrokerTopics) -> dict[str, TopicAnswer]:
    """Record the responses of a broker. Return the changes to request from it."""
    changes: dict[str, TopicAnswer] = {}
    for number, look in enumerate(looks):
        answer = table.get(look.topic.topic_name)
        look.answers[address] = answer
        look.unreadable.pop(address, None)
        if (unreadable := table.unreadable.get(look.topic.topic_name)) is not None:
            look.unreadable[address] = unreadable
        change = topic_plan.changes({address: answer}, topic_plan.wanted(look.topic)).get(address)
        if change is not None:
            changes[look.topic.topic_name] = change
            look.changed = True
        if number % 100 == 99:
            await asyncio.sleep(0)  # let other lanes run
    return changes


def _fail(looks: Sequence[_Look], address: str, failure: Failure) -> None:
    for look in looks:
        look.answers[address] = failure


def _told_by_cluster(body: Manifest, verdict: Verdict) -> bool:
    """Return whether the Events of the cluster already report a transition of a Topic to or from a failure of its
    cluster.
    """
    before = _ready_condition(body).get("reason")
    if verdict.reason in _OF_CLUSTER:
        return before is not None or verdict.reason is not Reason.CLUSTER_NOT_READY
    return verdict.ready and before in _OF_CLUSTER


def _ready_condition(body: Manifest) -> Manifest:
    """Return the Ready condition; empty if there is none."""
    conditions = body.get("status", {}).get("conditions", [])
    found: Manifest = next((each for each in conditions if each["type"] == "Ready"), {})
    return found


def _is_ready(body: Manifest) -> bool:
    return bool(_ready_condition(body).get("status") == "True")
