"""Reconciliation of a BrokerCluster: probe the servers, observe, plan, take the steps, write the status.

This module does the I/O. The decisions are made by pure modules (`plan`, `cluster_status`, `concerns`, `conditions`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq_operator import clock as time_of_day
from raptormq_operator import (
    cluster_status,
    concerns,
    event_diagnostics,
    leader_spread,
    membership,
    pod_diagnostics,
    promotion,
    reused_claims,
    security_change,
)
from raptormq_operator.admin import BrokerFigures
from raptormq_operator.cluster_probe import ClusterProbe, probe_cluster
from raptormq_operator.concerns import Facts, Stores
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.convergence import Convergence
from raptormq_operator.differences import differences
from raptormq_operator.kube.errors import Invalid, KubeError
from raptormq_operator.manifests.cluster_objects import Wanted, wanted
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.manifests.services import led_to
from raptormq_operator.membership import Action, MemberChange
from raptormq_operator.metrics import STEPS
from raptormq_operator.model import names
from raptormq_operator.model.cluster import DLEDGER, Cluster
from raptormq_operator.parts import ReconcilerParts
from raptormq_operator.plan import (
    Apply,
    Delete,
    Evict,
    Key,
    Observed,
    Plan,
    Step,
    Transfer,
    counts_outdated_pod,
    in_words,
    is_owned_by,
    key_of,
    plan,
)
from raptormq_operator.plan import ended as has_ended
from raptormq_operator.pod_diagnostics import NO_DIAGNOSTICS, PodDiagnostics
from raptormq_operator.promotion import Decision
from raptormq_operator.retries import Retries

log = get_logger(__name__)

CHILD_KINDS = ("ConfigMap", "PodDisruptionBudget", "Service", "StatefulSet")
PULSE_S = 4.0
"""Interval in seconds of probes of name servers and brokers, which send no events. Including the request timeout, a
failed server or a changed topic is detected within 8 s."""
RESYNC_S = 300.0
"""Interval in seconds of full reconciliations of a ready cluster."""
RETRY_FIRST_S = 2.0
RETRY_MAX_S = 30.0
"""First and maximum interval in seconds of full reconciliations while a cluster is not ready. Such a cluster often
waits for a change that causes no event. A change of the condition resets the backoff."""
REFUSED_FIRST_S = 10.0
REFUSED_MAX_S = 300.0
"""First and maximum interval in seconds while the spec or an object is rejected. Usually only a new spec helps, whose
event triggers a reconciliation."""
RECORD_S = 60.0
"""Minimum interval in seconds between updates of recorded commit log offsets. Each update is a write of the status."""
CERTIFICATES_S = 240.0
"""Interval in seconds of reading the servers' certificates."""
REFUSALS = frozenset({Reason.NOT_SUPPORTED, Reason.CONFIG_DENIED, Reason.APPLY_REFUSED})

Name = tuple[str, str]
"""Namespace and name of a BrokerCluster."""


@dataclass(slots=True)
class _Known:
    """State of a cluster from the last full reconciliation."""

    cluster: Cluster
    probe: ClusterProbe
    refused: bool
    whole_look_at: float


@dataclass(slots=True)
class _Outcome:
    """Result of the steps of one plan."""

    changed: bool = False
    refused: list[str] = field(default_factory=list)
    """Errors for objects that the API server rejected."""
    protected: list[str] = field(default_factory=list)
    """Pods whose eviction the disruption budget forbids."""
    not_evicted: list[str] = field(default_factory=list)
    """Errors of the API server for evictions that it refuses."""
    disturbed: set[str] = field(default_factory=set)
    """StatefulSets whose pod was evicted, or whose broker transferred leadership."""
    delayed: list[str] = field(default_factory=list)
    """Leaders that could not transfer leadership, with the reasons."""


class _Taken(NamedTuple):
    """The steps that were taken, and the verdict on the cluster."""

    plan: Plan
    verdict: Verdict
    disturbed: frozenset[str]
    """StatefulSets whose pod was evicted, or whose broker transferred leadership."""
    security: security_change.Decision


class ClusterReconciler:
    """Reconciles one cluster per call, as far as is safe now.

    Between full reconciliations, which read the objects, only the servers are probed; a probe causes no load on the API
    server. A changed probe triggers a full reconciliation, or the reconciliation of the cluster's Topics.
    """

    def __init__(
        self,
        parts: ReconcilerParts,
        look_at_topics: Callable[[str, str], None] = lambda namespace, name: None,
        follow_leaders: Callable[[str, str], None] = lambda namespace, name: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        vary: Callable[[], float] = random.random,
        now: Callable[[], str] = time_of_day.timestamp,
        today: Callable[[], datetime] = time_of_day.now,
    ) -> None:
        self._api = parts.api
        self._admin = parts.admin
        self._events = parts.events
        self._writer = parts.writer
        self._surroundings = parts.surroundings
        self._probes = parts.probes
        self._keys = parts.keys
        self._leaders = parts.leaders
        self._look_at_topics = look_at_topics
        self._follow_leaders = follow_leaders
        self._clock = clock
        self._vary = vary
        self._now = now
        self._today = today
        self._convergence: dict[Name, Convergence] = {}
        self._recorded_at: dict[Name, float] = {}
        self._certificates: dict[Name, tuple[float, dict[str, datetime]]] = {}
        self._spread_at: dict[Name, float] = {}
        """Time of the next transfer that spreads leaders, of the clusters that need one."""
        self._known: dict[Name, _Known] = {}
        self._retries: Retries[Name] = Retries(RETRY_FIRST_S, RETRY_MAX_S, clock=clock, vary=vary)
        self._refused: Retries[Name] = Retries(REFUSED_FIRST_S, REFUSED_MAX_S, clock=clock, vary=vary)

    async def __call__(self, namespace: str, name: str, *, changed: bool = True) -> float | None:
        """Reconcile the cluster after an event (`changed`), otherwise probe it or reconcile it when that is due.

        Return the delay in seconds until the next call; None after a deletion.
        """
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
        """Run a full reconciliation. Return the seconds until the next one, or None if the cluster is deleted.

        `probe` is the result of probing the cluster `probed`. It is used in place of another probe, because every
        unresponsive server costs a timeout, unless the cluster or its keys have changed or the cluster is replicated.
        """
        body = await self._api.get("BrokerCluster", namespace, name)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._forget(namespace, name)
            return None
        key = (namespace, name)
        cluster = Cluster.from_object(body, self._surroundings)
        refused = cluster_status.refusal(cluster)
        # A cluster with a rejected spec is probed, too: existing servers keep running, and the status counts them.
        before = await self._keys.current(cluster)
        fault = await self._keys.ensure(cluster) if refused is None else None
        if fault is not None:
            refused = cluster_status.secret_not_usable(fault)
        keys = await self._keys.current(cluster)
        config_maps, workloads = await self._broker_objects(cluster)
        there = membership.Facts.of(cluster, config_maps, workloads) if cluster.is_dledger else membership.Facts()
        if cluster.is_dledger:
            cluster = cluster.with_sizes(membership.sizes_to_probe(cluster, there))
        figures: Mapping[
            str, BrokerFigures
        ] = {}  # a probe between reconciliations requests none and copies those of the last full reconciliation
        # A probe between reconciliations does not request which members may be restarted.
        if probe is None or cluster != probed or keys != before or cluster.is_replicated:
            probe = await probe_cluster(cluster, self._admin, keys)
            figures = probe.figures
        members = membership.decide(cluster, there, probe) if cluster.is_dledger else membership.Decision()
        cluster = cluster.with_sizes(members.sizes)
        probe = probe.within(cluster)
        self._take_notice(key, cluster, probe)
        self._watch_leaders(cluster, probe, refused=refused is not None)
        claims = await self._claims(cluster)
        refused = refused or reused_claims.refusal(cluster, claims, await self._existing_brokers(cluster, claims))
        before_status = body.get("status", {})
        previous = {broker["name"]: broker for broker in before_status.get("brokers", [])}
        seen = promotion.Facts(
            {each["metadata"]["name"]: each for each in config_maps},
            before_status,
            probe,
            frozenset(each["metadata"]["name"] for each in workloads if has_ended(each)),
        )
        if cluster.is_master_slave:
            cluster = cluster.with_masters(promotion.configured(cluster, seen))
        stores = self._stores(key, cluster, figures, claims, previous, probe)
        lost = frozenset(name for name, store in stores.items() if "lostAt" in store)
        seen = replace(seen, losing=concerns.losing_claims(cluster, claims), lost=lost)
        decision = promotion.decide(cluster, seen) if cluster.is_master_slave and refused is None else Decision()
        next_steps, verdict, security = None, refused, security_change.Decision()
        if verdict is None:
            next_steps, verdict, security = await self._converge(body, cluster, probe, claims, decision, members)
            await self._record_writers(cluster, claims)
        facts = Facts(
            claims,
            await self._missing_secrets(cluster),
            await self._certificate_ends(key, cluster, probe),
            probe.slave_ends(cluster),
        )
        status = cluster_status.status(cluster, probe, next_steps, previous, self._now(), stores) | decision.status()
        found = concerns.concerns(cluster, facts, stores, self._today()) | decision.concerns() | security.concerns()
        found |= members.concerns(cluster) if refused is None else {}
        await self._writer.write(body, status, verdict, found)
        look_at = self._whole_look_at(key, verdict)
        if verdict.ready and (due := await self._spread_leaders(body, cluster, probe)) is not None:
            look_at = min(look_at, due)
        known = _Known(cluster, probe, verdict.reason in REFUSALS, look_at)
        self._known[key] = known
        return self._next(known)

    async def _converge(
        self,
        body: Manifest,
        cluster: Cluster,
        probe: ClusterProbe,
        claims: Sequence[Manifest],
        decision: Decision,
        members: membership.Decision,
    ) -> tuple[Plan | None, Verdict, security_change.Decision]:
        """Take the steps that are safe now, then request membership changes. Return the plan, the verdict, and the
        settings of access control and TLS.
        """
        try:
            done = await self._act(body, cluster, probe, claims, decision)
            refusals = await self._change_members(body, cluster, members.changes, done.disturbed)
        except Invalid as error:  # a required read is denied, for example by a custom role
            return None, Verdict(Reason.APPLY_REFUSED, str(error)), security_change.Decision()
        members = replace(members, progress=(*members.progress, *refusals))
        verdict = members.said_with(decision.said_with(done.security.said_with(done.verdict)))
        return done.plan, verdict, done.security

    async def _spread_leaders(self, body: Manifest, cluster: Cluster, probe: ClusterProbe) -> float | None:
        """Transfer the leadership of one group of a ready cluster, if the leaders are spread unevenly and the last
        transfer is long enough ago. Return the time at which the next transfer may be due; None if none is needed.
        """
        key, now = (cluster.namespace, cluster.name), self._clock()
        move = None
        if leader_spread.wanted(cluster):
            try:
                pods = await self._api.select(
                    "Pod", cluster.namespace, names.selector(names.broker_labels(cluster.name))
                )
            except KubeError as error:
                log.debug("pods of %s/%s cannot be listed: %s", cluster.namespace, cluster.name, error)
                return None
            move = leader_spread.next_move(cluster, probe, leader_spread.nodes_of(cluster, pods))
        if move is None:
            self._spread_at.pop(key, None)
            return None
        due = self._spread_at.setdefault(key, now + leader_spread.WAIT_S)
        if now < due:
            return due
        due = self._spread_at[key] = now + leader_spread.WAIT_S
        admin = self._admin.speaking(cluster.tls, await self._keys.current(cluster))
        try:
            await admin.transfer_leadership(move.leader.address, move.successor.id)
        except RaptorMQError as error:
            log.warning("%s did not hand over %s: %s", move.leader.name, move.leader.broker_name, error)
            return due
        STEPS.labels("transferred", "StatefulSet").inc()
        text = f"{move.leader.name} handed {move.leader.broker_name} over to {move.successor.name} on node {move.node}"
        await self._events.normal(body, "LeaderTransferred", f"{text}, to spread the leaders over nodes")
        return due

    def _watch_leaders(self, cluster: Cluster, probe: ClusterProbe, *, refused: bool) -> None:
        """Watch the leaders, so that their Services are updated as soon as a leader changes."""
        if refused or not cluster.is_dledger:
            self._leaders.forget(cluster.namespace, cluster.name)
            return
        is_new = self._leaders.watched(cluster.namespace, cluster.name) is None
        self._leaders.watch(cluster)
        for member in probe.masters(cluster):
            self._leaders.heard(cluster, member, probe.replication[member.address])
        if is_new:
            self._follow_leaders(cluster.namespace, cluster.name)

    def _whole_look_at(self, key: Name, verdict: Verdict) -> float:
        failing = self._refused if verdict.reason in REFUSALS else self._retries
        for retries in (self._retries, self._refused):
            if retries is not failing or verdict.ready:
                retries.succeeded(key)
        if verdict.ready:
            return self._clock() + RESYNC_S
        return self._clock() + failing.failed(key, f"{verdict.reason} {verdict.message}")

    def _next(self, known: _Known) -> float:
        """Return the seconds until the next probe or full reconciliation. A rejected cluster without responding brokers
        is not probed."""
        whole = max(0.0, known.whole_look_at - self._clock())
        quiet = known.refused and not known.probe.topics
        return whole if quiet else min(whole, PULSE_S)

    def _take_notice(self, key: Name, cluster: Cluster, probe: ClusterProbe) -> None:
        """Store the probe. Trigger the Topics when the listed or responding brokers, or their topics, changed."""
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
        self._spread_at.pop(key, None)
        self._retries.succeeded(key)
        self._refused.succeeded(key)
        self._probes.forget(namespace, name)
        self._leaders.forget(namespace, name)
        self._keys.forget(namespace, name)
        self._writer.forget("BrokerCluster", namespace, name)
        self._look_at_topics(namespace, name)

    def _stores(
        self,
        key: Name,
        cluster: Cluster,
        figures: Mapping[str, BrokerFigures],
        claims: Sequence[Manifest],
        previous: Mapping[str, Mapping[str, Any]],
        probe: ClusterProbe,
    ) -> Stores:
        record = self._clock() - self._recorded_at.get(key, -RECORD_S) >= RECORD_S
        if record:
            self._recorded_at[key] = self._clock()
        offsets = {each: said.max_offset for each, said in figures.items() if said.max_offset is not None}
        in_groups = {each: state for each, state in probe.replication.items() if state.mode == DLEDGER}
        if cluster.is_dledger:
            offsets = {each: state.confirmed_offset for each, state in in_groups.items()}
        kept = {name: broker.get("store", {}) for name, broker in previous.items()}
        return concerns.stores(
            cluster,
            claims,
            offsets,
            kept,
            self._today(),
            record=record,
            leaders=probe.majority_leaders(cluster),
            lost_ranges={each: state.lost for each, state in in_groups.items()},
        )

    async def _broker_objects(self, cluster: Cluster) -> tuple[Sequence[Manifest], Sequence[Manifest]]:
        """Return the ConfigMaps and StatefulSets of the brokers, which define the masters and the members; empty
        without replication.
        """
        if not cluster.is_replicated:
            return (), ()
        labels = names.selector(names.broker_labels(cluster.name))
        config_maps, workloads = await asyncio.gather(
            *(self._api.select(kind, cluster.namespace, labels) for kind in ("ConfigMap", "StatefulSet"))
        )
        return config_maps, workloads

    async def _claims(self, cluster: Cluster) -> Sequence[Manifest]:
        """Return the volume claims of the brokers; empty if the operator's role does not permit listing them."""
        labels = names.selector(names.broker_labels(cluster.name))
        try:
            return await self._api.select("PersistentVolumeClaim", cluster.namespace, labels)
        except KubeError as error:
            log.debug("volume claims of %s/%s cannot be listed: %s", cluster.namespace, cluster.name, error)
            return ()

    async def _existing_brokers(self, cluster: Cluster, claims: Sequence[Manifest]) -> frozenset[str]:
        """Return the names of the cluster's StatefulSets of brokers; empty if all claims have the right writer."""
        is_recorded = not reused_claims.to_record(cluster, claims, frozenset(each.name for each in cluster.members))
        if is_recorded and not reused_claims.has_foreign(cluster, claims):
            return frozenset()
        labels = names.selector(names.broker_labels(cluster.name))
        workloads = await self._api.select("StatefulSet", cluster.namespace, labels)
        return frozenset(each["metadata"]["name"] for each in workloads if is_owned_by(cluster.uid, each))

    async def _record_writers(self, cluster: Cluster, claims: Sequence[Manifest]) -> None:
        """Record in the claims which cluster writes their stores, if the operator's role permits it."""
        existing = await self._existing_brokers(cluster, claims)
        for name, writer in reused_claims.to_record(cluster, claims, existing).items():
            patch = {"metadata": {"annotations": {names.STORE_ANNOTATION: writer}}}
            try:
                await self._api.merge("PersistentVolumeClaim", cluster.namespace, name, patch)
            except KubeError as error:
                log.debug("claim %s/%s cannot be annotated: %s", cluster.namespace, name, error)

    async def _missing_secrets(self, cluster: Cluster) -> list[str]:
        """Return the missing Secrets: from reading the Secrets, or from the kubelet's events if that is not
        permitted."""
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
        """Return the expiry times of the servers' certificates, cached, since each costs a TLS handshake."""
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

    async def _act(
        self, body: Manifest, cluster: Cluster, probe: ClusterProbe, claims: Sequence[Manifest], decision: Decision
    ) -> _Taken:
        """Take the steps that are safe now.

        Applies that change nothing reveal differences in representation only. The plan is then computed again without
        these differences, so that they do not delay other changes.
        """
        convergence = self._convergence.setdefault(
            (cluster.namespace, cluster.name), Convergence(clock=self._clock, vary=self._vary)
        )
        forming = probe.forming(cluster) | decision.groups
        cluster = cluster.with_masters(decision.masters)
        objects = wanted(cluster, forming=forming)
        observed = await self._observe(cluster, objects, probe)
        losing = concerns.losing_claims(cluster, claims)
        observed = replace(observed, losing_claims=losing, promoting=decision.at_once)
        security = security_change.decide(cluster, observed, probe.unknown_settings)
        # Not earlier, because a leader may have changed while the objects were read.
        leaders = led_groups(cluster, observed.objects) | self._leaders.of(cluster)
        objects = wanted(
            cluster,
            brokers=security.brokers,
            name_servers=security.name_servers,
            forming=forming,
            leaders=leaders,
            workloads={name: each for (kind, name), each in observed.objects.items() if kind == "StatefulSet"},
        )
        disturbed: set[str] = set()
        while True:
            observed = replace(observed, accepted=convergence.accepted, contested=convergence.contested())
            next_steps: Plan = plan(observed, objects)
            outcome = await self._take_all(body, cluster, next_steps.steps, observed, convergence)
            disturbed |= outcome.disturbed
            if outcome.refused or outcome.changed or not next_steps.steps:
                break
        verdict = _unfinished(outcome, next_steps)
        if verdict is None:
            convergence.converged(_as_wanted(observed, objects))
            waiting = [] if next_steps.steps or next_steps.conflicts else next_steps.waiting
            words = await self._words(cluster, [observed.objects["StatefulSet", name] for name in waiting])
            verdict = cluster_status.verdict(cluster, next_steps, probe, words)
        served = leaders.keys() if cluster.is_dledger else _mastered(cluster, body) - decision.groups
        for worse in (cluster_status.outage(cluster, probe, served), cluster_status.divergence(cluster, probe)):
            verdict = cluster_status.with_outage(worse, verdict)
        return _Taken(next_steps, verdict, frozenset(disturbed), security)

    async def _take_all(
        self, body: Manifest, cluster: Cluster, steps: Sequence[Step], observed: Observed, convergence: Convergence
    ) -> _Outcome:
        """Take the steps. After a rejected object, the remaining objects of the same unit are skipped."""
        outcome, units = _Outcome(), set()
        for step in steps:
            if isinstance(step, Evict):
                try:
                    protected = await self._evict(body, step)
                    outcome.protected += protected
                    outcome.disturbed |= set() if protected else {step.stateful_set}
                except Invalid as error:
                    outcome.not_evicted.append(f"{step.stateful_set} cannot be evicted for a change: {error}")
                    STEPS.labels("refused", "Pod").inc()
                outcome.changed = True
            elif isinstance(step, Transfer):
                outcome.delayed += await self._hand_over(body, cluster, step)
                outcome.disturbed.add(step.stateful_set)
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
        """Return the diagnostics of the pods of these StatefulSets, from pod statuses and events.

        Errors are ignored, since the operator's role may not permit reading pods or events.
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
        # The lists lack foreign objects without our labels. Such an object must not be overwritten.
        missing = [key for key in map(key_of, objects.objects) if key not in found]
        others = await asyncio.gather(*(self._api.get(kind, cluster.namespace, name) for kind, name in missing))
        found |= {key: manifest for key, manifest in zip(missing, others, strict=True) if manifest is not None}
        replaced = await self._replaced(cluster, found.values())
        observed = Observed(cluster.uid, found, probe.registered(cluster), probe.answering(cluster), replaced=replaced)
        if not cluster.is_replicated:
            return observed
        leaders = frozenset(member.name for member in probe.masters(cluster))
        return replace(observed, restartable=probe.restartable, leaders=leaders, elects=cluster.is_dledger)

    async def _replaced(self, cluster: Cluster, objects: Iterable[Manifest]) -> frozenset[str]:
        """Return the StatefulSets that count an outdated pod which is being deleted, or which no longer exists."""
        counting = [each for each in objects if each["kind"] == "StatefulSet" and counts_outdated_pod(each)]
        if not counting:
            return frozenset()
        try:
            pods = await self._api.select("Pod", cluster.namespace, names.selector(names.managed_labels(cluster.name)))
        except KubeError as error:
            log.debug("pods of %s/%s cannot be listed: %s", cluster.namespace, cluster.name, error)
            return frozenset()
        return frozenset(
            workload["metadata"]["name"]
            for workload in counting
            if not any(_is_outdated(pod, workload) for pod in pods)
        )

    async def _evict(self, body: Manifest, step: Evict) -> list[str]:
        """Evict the outdated pods. Return the pods whose eviction the disruption budget forbids."""
        protected: list[str] = []
        namespace = body["metadata"]["namespace"]
        for pod in await self._api.select("Pod", namespace, names.selector(dict(step.labels))):
            metadata = pod["metadata"]
            revision = metadata["labels"].get(names.REVISION_LABEL)
            if revision == step.revision or "deletionTimestamp" in metadata:
                continue  # replaced since the objects were read
            name = metadata["name"]
            if await self._api.evict(namespace, name, metadata["uid"]):
                STEPS.labels("evicted", "Pod").inc()
                await self._events.normal(body, "Evicted", f"evicted Pod {name} to apply a change")
            else:
                protected.append(name)
        return protected

    async def _hand_over(self, body: Manifest, cluster: Cluster, step: Transfer) -> list[str]:
        """Request a transfer of leadership. Return the reason if it was not possible."""
        (member,) = [member for member in cluster.members if member.name == step.stateful_set]
        admin = self._admin.speaking(cluster.tls, await self._keys.current(cluster))
        try:
            await admin.transfer_leadership(member.address)
        except RaptorMQError as error:
            return [f"{member.name} leads {member.broker_name} and cannot hand leadership over yet: {error}"]
        STEPS.labels("transferred", "StatefulSet").inc()
        await self._events.normal(body, "LeaderTransferred", f"{member.name} handed over {member.broker_name}")
        return []

    async def _change_members(
        self, body: Manifest, cluster: Cluster, changes: Sequence[MemberChange], disturbed: frozenset[str]
    ) -> list[str]:
        """Request membership changes from leaders. Return the reasons of those that failed.

        A group with a broker that is being changed waits: each of the two changes leaves a majority, but both together
        may not.
        """
        failures = []
        admin = self._admin.speaking(cluster.tls, await self._keys.current(cluster))
        for change in changes:
            if disturbed & {member.name for member in cluster.group(change.member.group)}:
                continue
            try:
                if change.action is Action.TRANSFER:
                    await admin.transfer_leadership(change.leader.address, change.member.id)
                else:
                    await admin.change_members(change.leader.address, change.action, change.member.id)
            except RaptorMQError as error:
                failures.append(f"{change.member.broker_name} cannot {change.action} {change.member.name} yet: {error}")
                continue
            STEPS.labels(change.action, "StatefulSet").inc()
            await self._events.normal(body, "MembersChanged", _in_words(change))
        return failures

    async def _take(self, body: Manifest, step: Apply | Delete, observed: Observed, convergence: Convergence) -> bool:
        """Take one step. Return whether it changed an object."""
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


def _unfinished(outcome: _Outcome, steps: Plan) -> Verdict | None:
    """Return the verdict on steps that could not be taken; None if all steps were taken."""
    if outcome.refused:
        return Verdict(Reason.APPLY_REFUSED, "; ".join(dict.fromkeys(outcome.refused)))
    if outcome.not_evicted and not steps.conflicts:
        return cluster_status.eviction_refused(outcome.not_evicted)
    if outcome.delayed:
        return Verdict(Reason.PROGRESSING, "; ".join(outcome.delayed))
    if outcome.protected and not steps.conflicts:
        return cluster_status.held_by_budget(outcome.protected)
    return None


def led_groups(cluster: Cluster, objects: Mapping[Key, Manifest]) -> dict[int, int]:
    """Return by group the index of the member that the leader's Service selects. The Service keeps this member until
    another one reports that it leads.
    """
    found = {}
    for group in range(cluster.groups):
        service = objects.get(("Service", names.leader_service(cluster.name, group)))
        index = led_to(service) if service is not None else None
        if index is not None and index < len(cluster.group(group)):
            found[group] = index
    return found


def _is_outdated(pod: Manifest, workload: Manifest) -> bool:
    """Return whether a pod belongs to a StatefulSet, runs an outdated revision, and is not being deleted."""
    labels, metadata = workload["spec"]["selector"]["matchLabels"], pod["metadata"]
    return (
        labels.items() <= metadata.get("labels", {}).items()
        and metadata["labels"].get(names.REVISION_LABEL) != workload["status"]["updateRevision"]
        and "deletionTimestamp" not in metadata
    )


def _mastered(cluster: Cluster, body: Manifest) -> set[int]:
    """Return the groups whose master has responded before: the status records the end of its commit log."""
    brokers = body.get("status", {}).get("brokers", [])
    recorded = {broker["group"] for broker in brokers if "maxOffset" in broker.get("store", {})}
    return {group for group in range(cluster.groups) if names.broker(group) in recorded}


def _in_words(change: MemberChange) -> str:
    group = change.member.broker_name
    return {
        Action.ADD: f"{change.member.name} is a learner of {group}",
        Action.PROMOTE: f"{change.member.name} is a voter of {group}",
        Action.REMOVE: f"{change.member.name} is no member of {group} any more",
        Action.TRANSFER: f"{change.leader.name} handed {group} over to {change.member.name}, since it leaves",
    }[change.action]


def _as_wanted(observed: Observed, objects: Wanted) -> set[tuple[str, str]]:
    """Return the keys of the objects without differences."""
    return {
        key
        for key, manifest in ((key_of(manifest), manifest) for manifest in objects.objects)
        if key in observed.objects
        and set(differences(observed.objects[key], manifest)) <= observed.accepted.get(key, frozenset())
    }
