"""Reconciliation of a BrokerCluster: observe, plan, take the steps, look at the brokers, say so in the status.

Everything that is decided here is decided by pure neighbours (`plan`, `cluster_status`, `conditions`); this is their
shell.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from raptormq.logs import get_logger
from raptormq_operator import clock as time_of_day
from raptormq_operator import cluster_status, concerns, event_diagnostics, pod_diagnostics
from raptormq_operator.access_keys import AccessKeys
from raptormq_operator.admin import Admin, BrokerFigures
from raptormq_operator.cluster_probe import ClusterProbe, LatestProbes, probe_cluster
from raptormq_operator.concerns import Facts, Stores
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.convergence import Convergence
from raptormq_operator.differences import differences
from raptormq_operator.kube.client import KubeApi
from raptormq_operator.kube.errors import Invalid, KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.manifests.cluster_objects import Wanted, wanted
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.metrics import STEPS
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Surroundings
from raptormq_operator.plan import (
    Apply,
    Delete,
    Evict,
    Observed,
    Plan,
    Step,
    in_words,
    key_of,
    name_servers_may_authenticate,
    plan,
)
from raptormq_operator.pod_diagnostics import NO_DIAGNOSTICS, PodDiagnostics
from raptormq_operator.retries import Retries
from raptormq_operator.status_writer import StatusWriter

log = get_logger(__name__)

CHILD_KINDS = ("ConfigMap", "PodDisruptionBudget", "Service", "StatefulSet")
PULSE_S = 4.0
"""Name servers and brokers are asked this often, since they send no events: with the time-out of a request, silence and
topics that someone else has changed are known within 8 seconds."""
RESYNC_S = 300.0
"""A ready cluster is looked at as a whole this often although nothing seems to happen."""
RETRY_FIRST_S = 2.0
RETRY_MAX_S = 30.0
"""A cluster that is not ready is looked at as a whole between these: what it waits for is often not a Kubernetes object
of ours. It begins anew whenever the condition changes."""
REFUSED_FIRST_S = 10.0
REFUSED_MAX_S = 300.0
"""The same while the spec, or the API server, refuses: only a change of the spec can help, which is an event."""
RECORD_S = 60.0
"""Where commit logs end is kept in the status this often at most: each time is a write."""
CERTIFICATES_S = 240.0
REFUSALS = frozenset({Reason.NOT_SUPPORTED, Reason.CONFIG_DENIED, Reason.APPLY_REFUSED})

Name = tuple[str, str]
"""Namespace and name of a BrokerCluster."""


@dataclass(slots=True)
class _Known:
    """A cluster as it was found by the last whole look."""

    cluster: Cluster
    probe: ClusterProbe
    refused: bool
    whole_look_at: float


@dataclass(slots=True)
class _Outcome:
    """Of the steps of one plan."""

    changed: bool = False
    refused: list[str] = field(default_factory=list)
    """What the API server said of objects that it does not take."""
    protected: list[str] = field(default_factory=list)
    """Pods that a disruption budget protects."""


class ClusterReconciler:
    """One call brings one cluster as far as it can safely go now.

    Between the whole looks, which read its objects, its servers are asked for signs of life: a pulse costs the API
    server nothing. What differs from the last one is a reason for a whole look, or for one at its Topics.
    """

    def __init__(
        self,
        api: KubeApi,
        admin: Admin,
        events: EventRecorder,
        writer: StatusWriter,
        surroundings: Surroundings,
        probes: LatestProbes,
        keys: AccessKeys,
        look_at_topics: Callable[[str, str], None] = lambda namespace, name: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        vary: Callable[[], float] = random.random,
        now: Callable[[], str] = time_of_day.timestamp,
        today: Callable[[], datetime] = time_of_day.now,
    ) -> None:
        self._api = api
        self._admin = admin
        self._events = events
        self._writer = writer
        self._surroundings = surroundings
        self._probes = probes
        self._keys = keys
        self._look_at_topics = look_at_topics
        self._clock = clock
        self._vary = vary
        self._now = now
        self._today = today
        self._convergence: dict[Name, Convergence] = {}
        self._recorded_at: dict[Name, float] = {}
        self._certificates: dict[Name, tuple[float, dict[str, datetime]]] = {}
        self._known: dict[Name, _Known] = {}
        self._retries: Retries[Name] = Retries(RETRY_FIRST_S, RETRY_MAX_S, clock=clock, vary=vary)
        self._refused: Retries[Name] = Retries(REFUSED_FIRST_S, REFUSED_MAX_S, clock=clock, vary=vary)

    async def __call__(self, namespace: str, name: str, *, changed: bool = True) -> float | None:
        """`changed` says that an event has come; otherwise it is time for a pulse, or for a whole look."""
        known = self._known.get((namespace, name))
        if changed or known is None or known.whole_look_at <= self._clock():
            return await self._look(namespace, name)
        keys = await self._keys.current(known.cluster)
        probe = await probe_cluster(known.cluster, self._admin, keys, figures=False)
        probe = replace(probe, figures=known.probe.figures)
        if not probe.same_peers(known.probe, known.cluster):
            return await self._look(namespace, name, known.cluster, probe)
        self._take_notice((namespace, name), known.cluster, probe)
        known.probe = probe
        return self._next(known)

    async def _look(
        self, namespace: str, name: str, probed: Cluster | None = None, probe: ClusterProbe | None = None
    ) -> float | None:
        """Reads, plans, acts and writes the status. With `probe`, of the cluster as `probed`, nobody is asked again: to
        find out once more who is silent takes seconds."""
        body = await self._api.get("BrokerCluster", namespace, name)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._forget(namespace, name)
            return None
        key = (namespace, name)
        cluster = Cluster.from_object(body, self._surroundings)
        refused = cluster_status.refusal(cluster)
        # One whose spec is refused is asked too: what ran before goes on, and its counts are to be true.
        before = await self._keys.current(cluster)
        fault = await self._keys.ensure(cluster) if refused is None else None
        if fault is not None:
            refused = cluster_status.secret_not_usable(fault)
        keys = await self._keys.current(cluster)
        figures: Mapping[str, BrokerFigures] = {}  # those of a pulse are from the last whole look
        if probe is None or cluster != probed or keys != before:
            probe = await probe_cluster(cluster, self._admin, keys)
            figures = probe.figures
        self._take_notice(key, cluster, probe)
        next_steps = None
        if refused is None:
            next_steps, verdict = await self._act(body, cluster, probe)
        else:
            verdict = refused
        previous = {broker["name"]: broker for broker in body.get("status", {}).get("brokers", [])}
        facts = await self._facts(key, cluster, probe)
        stores = self._stores(key, cluster, figures, facts, previous)
        status = cluster_status.status(cluster, probe, next_steps, previous, self._now(), stores)
        await self._writer.write(body, status, verdict, concerns.concerns(cluster, facts, stores, self._today()))
        known = _Known(cluster, probe, verdict.reason in REFUSALS, self._whole_look_at(key, verdict))
        self._known[key] = known
        return self._next(known)

    def _whole_look_at(self, key: Name, verdict: Verdict) -> float:
        failing = self._refused if verdict.reason in REFUSALS else self._retries
        for retries in (self._retries, self._refused):
            if retries is not failing or verdict.ready:
                retries.succeeded(key)
        if verdict.ready:
            return self._clock() + RESYNC_S
        return self._clock() + failing.failed(key, f"{verdict.reason} {verdict.message}")

    def _next(self, known: _Known) -> float:
        """Seconds until the next pulse or whole look. Where nobody answers for a spec that is refused there is none."""
        whole = max(0.0, known.whole_look_at - self._clock())
        quiet = known.refused and not known.probe.topics
        return whole if quiet else min(whole, PULSE_S)

    def _take_notice(self, key: Name, cluster: Cluster, probe: ClusterProbe) -> None:
        """What Topics depend on is what name servers list, which brokers answer, and what topics those have."""
        before = self._probes.get(*key)
        self._probes.set(*key, probe)
        if before is None or before.topics != probe.topics or not probe.same_peers(before, cluster):
            self._look_at_topics(*key)

    def _forget(self, namespace: str, name: str) -> None:
        key = (namespace, name)
        self._known.pop(key, None)
        self._convergence.pop(key, None)
        self._recorded_at.pop(key, None)
        self._certificates.pop(key, None)
        self._retries.succeeded(key)
        self._refused.succeeded(key)
        self._probes.forget(namespace, name)
        self._keys.forget(namespace, name)
        self._writer.forget("BrokerCluster", namespace, name)
        self._look_at_topics(namespace, name)

    def _stores(
        self,
        key: Name,
        cluster: Cluster,
        figures: Mapping[str, BrokerFigures],
        facts: Facts,
        previous: Mapping[str, Mapping[str, Any]],
    ) -> Stores:
        record = self._clock() - self._recorded_at.get(key, -RECORD_S) >= RECORD_S
        if record:
            self._recorded_at[key] = self._clock()
        offsets = {each: said.max_offset for each, said in figures.items() if said.max_offset is not None}
        kept = {name: broker.get("store", {}) for name, broker in previous.items()}
        return concerns.stores(cluster, facts.claims, offsets, kept, self._today(), record=record)

    async def _facts(self, key: Name, cluster: Cluster, probe: ClusterProbe) -> Facts:
        """What the conditions beside Ready are about. What the operator's role does not let it see is left out."""
        labels = names.selector(names.broker_labels(cluster.name))
        claims: Sequence[Manifest] = ()
        try:
            claims = await self._api.select("PersistentVolumeClaim", cluster.namespace, labels)
        except KubeError as error:
            log.debug("volume claims of %s/%s cannot be listed: %s", cluster.namespace, cluster.name, error)
        return Facts(claims, await self._missing_secrets(cluster), await self._certificate_ends(key, cluster, probe))

    async def _missing_secrets(self, cluster: Cluster) -> list[str]:
        """By the Secrets themselves, or by what the kubelet says of pods where those may not be read."""
        missing, unknown = [], []
        for name in concerns.secrets_of(cluster):
            try:
                if await self._api.get("Secret", cluster.namespace, name) is None:
                    missing.append(name)
            except KubeError:
                unknown.append(name)
        if unknown:
            try:
                pods = [f"{names.name_server(cluster.name)}-0", f"{cluster.members[0].name}-0"]
                events = [event for pod in pods for event in await self._api.warnings(cluster.namespace, "Pod", pod)]
                missing += concerns.lacking(unknown, events, self._today())
            except KubeError as error:
                log.debug("events of %s/%s cannot be listed: %s", cluster.namespace, cluster.name, error)
        return missing

    async def _certificate_ends(self, key: Name, cluster: Cluster, probe: ClusterProbe) -> dict[str, datetime]:
        """Asked for now and then only: each is a handshake."""
        if cluster.tls is None:
            self._certificates.pop(key, None)
            return {}
        asked_at, ends = self._certificates.get(key, (-RESYNC_S, {}))
        if self._clock() - asked_at >= CERTIFICATES_S or not ends:
            admin = self._admin.speaking(cluster.tls)
            answering = [each for each, said in probe.brokers.items() if said is None]
            answering += [each for each, said in probe.name_servers.items() if not isinstance(said, str)]
            found = await asyncio.gather(*map(admin.certificate_end, answering), return_exceptions=True)
            ends = {each: end for each, end in zip(answering, found, strict=True) if isinstance(end, datetime)}
            self._certificates[key] = (self._clock(), ends)
        return ends

    async def _act(self, body: Manifest, cluster: Cluster, probe: ClusterProbe) -> tuple[Plan, Verdict]:
        """Take the steps that are safe now; return the plan and what is to be said of it.

        Steps that change nothing have only shown how the API server writes what is wanted: then it is planned again,
        so that they hold up nothing.
        """
        convergence = self._convergence.setdefault(
            (cluster.namespace, cluster.name), Convergence(clock=self._clock, vary=self._vary)
        )
        objects = wanted(cluster)
        observed = await self._observe(cluster, objects, probe)
        if cluster.authenticates:
            authenticate = name_servers_may_authenticate(observed, objects)
            objects = wanted(cluster, name_servers_authenticate=authenticate)
        while True:
            observed = replace(observed, accepted=convergence.accepted, contested=convergence.contested())
            next_steps: Plan = plan(observed, objects)
            outcome = await self._take_all(body, next_steps.steps, observed, convergence)
            if outcome.refused:
                text = "; ".join(dict.fromkeys(outcome.refused))
                return next_steps, Verdict(Reason.APPLY_REFUSED, text)
            if outcome.changed or not next_steps.steps:
                break
        if outcome.protected and not next_steps.conflicts:
            return next_steps, cluster_status.held_by_budget(outcome.protected)
        convergence.converged(_as_wanted(observed, objects))
        waiting = [] if next_steps.steps or next_steps.conflicts else next_steps.waiting
        words = await self._words(cluster, [observed.objects["StatefulSet", name] for name in waiting])
        return next_steps, cluster_status.verdict(cluster, next_steps, probe, words)

    async def _take_all(
        self, body: Manifest, steps: Sequence[Step], observed: Observed, convergence: Convergence
    ) -> _Outcome:
        """A refusal leaves the rest of the same unit as it is, and nothing else."""
        outcome, units = _Outcome(), set()
        for step in steps:
            if isinstance(step, Evict):
                outcome.protected += await self._evict(body, step)
                outcome.changed = True
            elif not (isinstance(step, Apply) and step.unit in units):
                try:
                    outcome.changed |= await self._take(body, step, observed, convergence)
                except Invalid as error:
                    outcome.refused.append(str(error))
                    if isinstance(step, Apply):
                        units.add(step.unit)
                        STEPS.labels("refused", key_of(step.manifest)[0]).inc()
        return outcome

    async def _words(self, cluster: Cluster, waiting: Sequence[Manifest]) -> PodDiagnostics:
        """What the pods of StatefulSets say, and what Kubernetes says of those that have not begun.

        Both explain only, so it does not matter when they cannot be listed: the role of the operator may be the user's
        own, and have no pods or events.
        """
        words = NO_DIAGNOSTICS
        if not waiting:
            return words
        try:
            pods = await self._api.select("Pod", cluster.namespace, names.selector(names.managed_labels(cluster.name)))
            words = pod_diagnostics.diagnose(pods)
            about = [] if words.failing else event_diagnostics.subjects(waiting, pods)
            events = [await self._api.warnings(cluster.namespace, each.kind, each.name) for each in about]
            said = event_diagnostics.diagnose(list(zip(about, events, strict=True)))
            words = words._replace(waiting="; ".join(filter(None, (words.waiting, said))))
        except KubeError as error:
            log.debug("pods or events of %s/%s cannot be listed: %s", cluster.namespace, cluster.name, error)
        return words

    async def _observe(self, cluster: Cluster, objects: Wanted, probe: ClusterProbe) -> Observed:
        selector = names.selector(names.managed_labels(cluster.name))
        lists = await asyncio.gather(*(self._api.select(kind, cluster.namespace, selector) for kind in CHILD_KINDS))
        found = {key_of(manifest): manifest for manifests in lists for manifest in manifests}
        # An object under a wanted name without our labels is not in the lists, and must be seen before it is
        # overwritten.
        missing = [key for key in map(key_of, objects.objects) if key not in found]
        others = await asyncio.gather(*(self._api.get(kind, cluster.namespace, name) for kind, name in missing))
        found |= {key: manifest for key, manifest in zip(missing, others, strict=True) if manifest is not None}
        return Observed(cluster.uid, found, probe.registered(cluster), probe.answering(cluster))

    async def _evict(self, body: Manifest, step: Evict) -> list[str]:
        """Evicts the pods of before the change; returns those that the disruption budget protects."""
        protected: list[str] = []
        namespace = body["metadata"]["namespace"]
        for pod in await self._api.select("Pod", namespace, names.selector(dict(step.labels))):
            metadata = pod["metadata"]
            revision = metadata["labels"].get(names.REVISION_LABEL)
            if revision == step.revision or "deletionTimestamp" in metadata:
                continue  # the status of the StatefulSet is older than its pod
            name = metadata["name"]
            if await self._api.evict(namespace, name, metadata["uid"]):
                STEPS.labels("evicted", "Pod").inc()
                await self._events.normal(body, "Evicted", f"evicted Pod {name}, which is made anew with its change")
            else:
                protected.append(name)
        return protected

    async def _take(self, body: Manifest, step: Apply | Delete, observed: Observed, convergence: Convergence) -> bool:
        """Returns whether it changed anything."""
        if isinstance(step, Delete):
            await self._api.delete(step.kind, body["metadata"]["namespace"], step.name, step.uid)
            await self._say(body, "Deleted", "deleted", step.kind, step.name)
            return True
        key = key_of(step.manifest)
        after = await self._api.apply(step.manifest)
        if not step.exists:
            await self._say(body, "Created", "made", *key)
        elif convergence.applied(key, step.differences, observed.objects[key], after):
            await self._say(body, "Updated", "changed", *key, in_words(sorted(step.differences)))
        else:
            return False
        return True

    async def _say(self, body: Manifest, reason: str, verb: str, kind: str, name: str, what: str = "") -> None:
        STEPS.labels(verb, kind).inc()
        await self._events.normal(body, reason, f"{verb} {kind} {name}" + (f": {what}" if what else ""))


def _as_wanted(observed: Observed, objects: Wanted) -> set[tuple[str, str]]:
    """Keys of the objects that are as they are wanted."""
    return {
        key
        for key, manifest in ((key_of(manifest), manifest) for manifest in objects.objects)
        if key in observed.objects
        and set(differences(observed.objects[key], manifest)) <= observed.accepted.get(key, frozenset())
    }
