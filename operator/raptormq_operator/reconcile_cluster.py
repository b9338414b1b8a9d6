"""Reconciliation of a BrokerCluster: observe, plan, take the steps, look at the brokers, say so in the status.

Everything that is decided here is decided by pure neighbours (`plan`, `cluster_status`, `conditions`); this is their
shell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from raptormq.logs import get_logger
from raptormq_operator import cluster_status, event_diagnostics, pod_diagnostics
from raptormq_operator.admin import Admin
from raptormq_operator.cluster_probe import ClusterProbe, probe_cluster
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.kube.api import KubeApi
from raptormq_operator.kube.errors import Invalid, KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.manifests.cluster_objects import Wanted, wanted
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Surroundings
from raptormq_operator.plan import Apply, Observed, Plan, Step, key_of, plan
from raptormq_operator.pod_diagnostics import NO_DIAGNOSTICS, PodDiagnostics
from raptormq_operator.status_writer import StatusWriter

log = get_logger(__name__)

CHILD_KINDS = ("ConfigMap", "PodDisruptionBudget", "Service", "StatefulSet")
RESYNC_S = 60.0
"""A ready cluster is looked at this often although nothing seems to happen: brokers send no events."""
RETRY_S = 2.0
"""A cluster that is not ready is looked at this often: what it waits for is often not a Kubernetes object."""
BLOCKED_S = 15.0
"""The same while Kubernetes says why pods cannot begin: when they do, a change of their StatefulSet tells."""


class ClusterReconciler:
    """One call brings one cluster as far as it can safely go now."""

    def __init__(
        self, api: KubeApi, admin: Admin, events: EventRecorder, writer: StatusWriter, surroundings: Surroundings
    ) -> None:
        self._api = api
        self._admin = admin
        self._events = events
        self._writer = writer
        self._surroundings = surroundings

    async def __call__(self, namespace: str, name: str) -> float | None:
        body = await self._api.get("BrokerCluster", namespace, name)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._writer.forget("BrokerCluster", namespace, name)
            return None
        cluster = Cluster.from_object(body, self._surroundings)
        refused = cluster_status.refusal(cluster)
        # One whose spec is refused is asked too: what ran before goes on, and its counts are to be true.
        probe = await probe_cluster(cluster, self._admin)
        verdict, look_again_s = (refused, RESYNC_S) if refused else await self._act(body, cluster, probe)
        await self._writer.write(body, cluster_status.status(cluster, probe), verdict)
        return look_again_s

    async def _act(self, body: Manifest, cluster: Cluster, probe: ClusterProbe) -> tuple[Verdict, float]:
        """Take the steps that are safe now; return what is to be said of it, and when to look again."""
        objects = wanted(cluster)
        observed = await self._observe(cluster, objects, probe)
        next_steps: Plan = plan(observed, objects)
        for step in next_steps.steps:
            try:
                await self._take(body, step, cluster.namespace)
            except Invalid as error:
                return Verdict(Reason.APPLY_REFUSED, str(error)), RETRY_S
        waiting = [] if next_steps.steps or next_steps.conflicts else next_steps.waiting
        words = await self._words(cluster, [observed.objects["StatefulSet", name] for name in waiting])
        verdict = cluster_status.verdict(cluster, next_steps, probe, words)
        if words.waiting:
            return verdict, BLOCKED_S
        return verdict, RESYNC_S if verdict.ready else RETRY_S

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

    async def _take(self, body: Manifest, step: Step, namespace: str) -> None:
        if isinstance(step, Apply):
            kind, name = key_of(step.manifest)
            await self._api.apply(step.manifest)
            reason, verb = ("Updated", "changed") if step.exists else ("Created", "made")
            await self._events.normal(body, reason, f"{verb} {kind} {name}")
        else:
            await self._api.delete(step.kind, namespace, step.name, step.uid)
            await self._events.normal(body, "Deleted", f"deleted {step.kind} {step.name}")
