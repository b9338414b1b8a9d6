"""Reconciliation of a SparkPipeline: observe, check what a driver needs, decide, write the status, take the step.

This module does the I/O; `pipeline_plan` decides. Nothing about a pipeline is kept in memory except delays, so a
restarted operator continues from the status. There is no finalizer: Kubernetes deletes the objects with their owner.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime

from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq_operator import clock as time_of_day
from raptormq_operator import pipeline_plan
from raptormq_operator.cluster_probe import probe_cluster
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.differences import differences
from raptormq_operator.driver_progress import DriverProgress, Progress
from raptormq_operator.event_diagnostics import time_of
from raptormq_operator.kube.errors import Conflict, Invalid, KubeError
from raptormq_operator.manifests import pipeline as manifests
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.manifests.spark_application import spark_application
from raptormq_operator.metrics import STEPS
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.model.pipeline import Pipeline, Reference
from raptormq_operator.parts import ReconcilerParts
from raptormq_operator.pipeline_plan import Decision, Phase, Seen, Step
from raptormq_operator.pod_diagnostics import cut
from raptormq_operator.retries import Retries

PULSE_S = 15.0
"""Interval in seconds of checks of a pipeline with a driver, for progress and executors."""
COMPARE_S = 60.0
"""Minimum interval in seconds between comparisons of the objects of a driver with the wanted ones."""
RESYNC_S = 300.0
"""Interval in seconds of checks of a pipeline that has ended."""
RETRY_FIRST_S = 2.0
RETRY_MAX_S = 60.0
"""First and maximum interval in seconds of checks while a prerequisite of a driver is missing."""
NO_SPARK_OPERATOR = "runBy needs the Apache Spark Kubernetes Operator (kind SparkApplication of spark.apache.org/v1)"
NO_RIGHT = "the operator may not run pipelines: value sparkPipelines.enabled of its chart gives it the rights"
_FORBIDDEN, _NOT_FOUND = 403, 404

log = get_logger(__name__)


class PipelineReconciler:
    """Reconciles one pipeline per call."""

    def __init__(
        self,
        parts: ReconcilerParts,
        drivers: DriverProgress,
        *,
        enabled: bool,
        today: Callable[[], datetime] = time_of_day.now,
        clock: Callable[[], float] = time.monotonic,
        vary: Callable[[], float] = random.random,
    ) -> None:
        """`enabled` is True if the operator has the permissions to run pipelines."""
        self._parts = parts
        self._api = parts.api
        self._drivers = drivers
        self._enabled = enabled
        self._today = today
        self._clock = clock
        self._compared_at: dict[tuple[str, str], float] = {}
        self._retries: Retries[tuple[str, str]] = Retries(RETRY_FIRST_S, RETRY_MAX_S, clock=clock, vary=vary)

    async def __call__(self, namespace: str, name: str) -> float | None:
        """Reconcile the pipeline. Return the delay in seconds until the next check; None after a deletion."""
        body = await self._api.get("SparkPipeline", namespace, name)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._retries.succeeded((namespace, name))
            self._compared_at.pop((namespace, name), None)
            self._parts.writer.forget("SparkPipeline", namespace, name)
            return None
        pipeline = Pipeline.from_object(body)
        if not self._enabled:
            status = {**body.get("status", {}), "observedGeneration": pipeline.generation}
            status.pop("conditions", None)
            await self._parts.writer.write(body, status, Verdict(Reason.NOT_SUPPORTED, NO_RIGHT))
            return None
        seen = await self._observe(pipeline)
        before = body.get("status", {})
        wanted, refusal = None, _foreign(pipeline, seen.application)
        if refusal is None and not pipeline.suspended:
            wanted, refusal = await self._prepare(body, pipeline, seen)
        wanted_hash = "" if wanted is None else manifests.hash_of(wanted)
        decision = pipeline_plan.decide(pipeline, wanted_hash, seen, before, refusal, self._today())
        status, verdict = decision.status, decision.verdict
        if status["phase"] == Phase.RUNNING and seen.driver is not None:
            answer = await self._drivers.ask(seen.driver["status"].get("podIP", ""))
            kept = {key: before[key] for key in ("queries", "lag", "rowsPerSecond") if key in before}
            status |= kept if answer is None else answer
            if verdict.ready and not _runs_queries(answer, before):
                verdict = Verdict(Reason.PROGRESSING, f"{verdict.message}; no streaming query has started yet")
        await self._parts.writer.write(body, status, verdict)
        await self._take(body, decision, wanted, seen.runner(pipeline))
        return self._next((namespace, name), decision, refusal)

    async def _prepare(self, body: Manifest, pipeline: Pipeline, seen: Seen) -> tuple[Manifest | None, Verdict | None]:
        """Create the objects that the driver needs. Return the object that runs it, and why it cannot start now."""
        if (refusal := _invalid(pipeline)) is not None:
            return None, refusal
        address, application, refusal = await self._sources(pipeline)
        runner = spark_application if pipeline.by_spark_operator else manifests.driver_pod
        wanted = runner(pipeline, address, application)
        starts = pipeline_plan.starts_driver(pipeline, manifests.hash_of(wanted), seen, body.get("status", {}))
        refusal = refusal or (await self._fault(pipeline, seen) if starts else None)
        refusal = refusal or await self._surround(body, pipeline, afresh=starts)
        if starts and refusal is None:
            refusal = await self._refused_pod(manifests.driver_pod(pipeline, address, application))
        return wanted, refusal

    async def _refused_pod(self, pod: Manifest) -> Verdict | None:
        """Return why the API server does not accept a driver, such as an invalid affinity or a missing service account.
        The executors have the same volumes, mounts and scheduling. The driver of the previous spec continues.
        """
        try:
            await self._api.create(pod, dry_run=True)
        except Conflict:  # the previous driver exists; the API server has validated the next one
            return None
        except Invalid as error:
            return Verdict(Reason.APPLY_REFUSED, str(error))
        return None

    async def _observe(self, pipeline: Pipeline) -> Seen:
        labels = names.selector({names.PIPELINE_LABEL: pipeline.name})
        pods, claim = await asyncio.gather(
            self._api.select("Pod", pipeline.namespace, labels),
            self._api.get("PersistentVolumeClaim", pipeline.namespace, pipeline.checkpoint.claim),
        )
        application: Manifest | None = None
        if pipeline.by_spark_operator:
            application = await self._api.get("SparkApplication", pipeline.namespace, pipeline.name)
            drivers = [pod for pod in pods if _is_driver(pod)]
            driver = max(drivers, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), default=None)
            executors = [pod for pod in pods if not _is_driver(pod)]
        else:
            driver = await self._api.get("Pod", pipeline.namespace, names.driver(pipeline.name))
            executors = [pod for pod in pods if pod["metadata"]["name"] != names.driver(pipeline.name)]
        fault = ""
        if driver is not None and (claim is None or claim.get("status", {}).get("phase") != "Bound"):
            fault = await self._claim_fault(pipeline)
        return Seen(driver, executors, claim, fault, application)

    async def _claim_fault(self, pipeline: Pipeline) -> str:
        try:
            found = await self._api.warnings(pipeline.namespace, "PersistentVolumeClaim", pipeline.checkpoint.claim)
        except KubeError as error:
            log.debug("events of %s/%s cannot be listed: %s", pipeline.namespace, pipeline.name, error)
            return ""
        newest = max(found, key=time_of, default=None)
        return "" if newest is None else cut(str(newest.get("message") or newest["reason"]))

    async def _sources(self, pipeline: Pipeline) -> tuple[str, str, Verdict | None]:
        """Return the address of the name servers, the application in a ConfigMap, and why one of them is missing. The
        address depends only on the spec of the cluster, so an unavailable cluster does not affect a running driver.
        """
        body = await self._api.get("BrokerCluster", pipeline.namespace, pipeline.cluster)
        if body is None:
            text = f"there is no BrokerCluster {pipeline.cluster} in {pipeline.namespace}"
            return "", "", Verdict(Reason.CLUSTER_NOT_FOUND, text)
        cluster = Cluster.from_object(body, self._parts.surroundings)
        source, text = pipeline.application, ""
        if source.config_map:
            found = await self._api.get("ConfigMap", pipeline.namespace, source.config_map)
            if found is None or source.key not in found.get("data", {}):
                what = f"ConfigMap {source.config_map}" + ("" if found is None else f" has no key {source.key}")
                said = f"{what} does not exist" if found is None else what
                return cluster.name_server_address, "", Verdict(Reason.APPLICATION_NOT_FOUND, said)
            text = found["data"][source.key]
        return cluster.name_server_address, text, None

    async def _fault(self, pipeline: Pipeline, seen: Seen) -> Verdict | None:
        """Return why no driver can be started now, or None."""
        if pipeline.by_spark_operator and (fault := await self._missing_spark_operator(pipeline)) is not None:
            return fault
        if (fault := await self._missing_topics(pipeline)) is not None:
            return fault
        return (
            await self._missing_keys(pipeline)
            or await self._missing_objects(pipeline)
            or await self._checkpoint_fault(pipeline, seen)
        )

    async def _missing_spark_operator(self, pipeline: Pipeline) -> Verdict | None:
        try:
            await self._api.select("SparkApplication", pipeline.namespace, "")
        except KubeError as error:
            if error.status not in (_FORBIDDEN, _NOT_FOUND):
                raise
            return Verdict(Reason.NOT_SUPPORTED, f"{NO_SPARK_OPERATOR}: {error}")
        return None

    async def _missing_topics(self, pipeline: Pipeline) -> Verdict | None:
        body = await self._api.get("BrokerCluster", pipeline.namespace, pipeline.cluster)
        if body is None or not pipeline.topics:
            return None
        cluster = Cluster.from_object(body, self._parts.surroundings)
        keys = await self._parts.keys.current(cluster)
        key = (cluster.namespace, cluster.name)
        probe = self._parts.probes.get(*key) or await probe_cluster(cluster, self._parts.admin, keys)
        cluster = cluster.with_sizes(probe.sizes)
        admin = self._parts.admin.speaking(cluster.tls, keys)
        silent = probe.silent()
        missing, faults = set(pipeline.topics), []
        answering = 0
        for member in probe.masters(cluster):
            try:
                if member.address in silent:
                    raise RaptorMQError(silent[member.address])
                topics = await admin.all_topics(member.address)
            except RaptorMQError as error:
                faults.append(f"{member.address}: {error}")
                continue
            answering += 1
            missing = {topic for topic in missing if topics.get(topic) is None}
        if not missing:
            return None
        if faults or not answering:
            said = "; ".join(faults) or "no broker leads its group"
            text = f"the topics of BrokerCluster {cluster.name} cannot be checked: {said}"
            return Verdict(Reason.CLUSTER_NOT_READY, text)
        return Verdict(
            Reason.TOPIC_NOT_FOUND, f"BrokerCluster {cluster.name} has no topic {', '.join(sorted(missing))}"
        )

    async def _surround(self, body: Manifest, pipeline: Pipeline, *, afresh: bool) -> Verdict | None:
        """Create the objects that the driver needs. Objects that were compared within `COMPARE_S` are compared again
        only with `afresh`, before a new driver.
        """
        key, now = (pipeline.namespace, pipeline.name), self._clock()
        if not afresh and now - self._compared_at.get(key, -COMPARE_S) < COMPARE_S:
            return None
        try:
            fault = await self._apply_objects(body, pipeline)
        except Invalid as error:
            return Verdict(Reason.APPLY_REFUSED, str(error))
        self._compared_at[key] = now
        return fault

    async def _missing_keys(self, pipeline: Pipeline) -> Verdict | None:
        """Check the Secrets with the credentials and certificates of the connector."""
        secrets = ((pipeline.credentials_secret, ("accessKey", "secretKey")), (pipeline.tls_secret, ("ca.crt",)))
        needed = [("Secret", name, frozenset(keys)) for name, keys in secrets if name is not None]
        return await self._absent(pipeline, needed, Reason.SECRET_NOT_USABLE)

    async def _missing_objects(self, pipeline: Pipeline) -> Verdict | None:
        """Check the objects that the spec refers to."""
        return await self._absent(pipeline, pipeline.references, Reason.REFERENCE_NOT_FOUND)

    async def _absent(self, pipeline: Pipeline, needed: Iterable[Reference], reason: Reason) -> Verdict | None:
        """Return the verdict for the first object that does not exist or lacks a key, from kinds, names and keys. The
        kubelet reports those that the operator may not read.
        """
        for kind, name, keys in needed:
            try:
                found = await self._api.get(kind, pipeline.namespace, name)
            except KubeError as error:
                if error.status != _FORBIDDEN:
                    raise
                continue
            if found is None:
                return Verdict(reason, f"{kind} {name} does not exist")
            data = found.get("data", {}).keys() | found.get("binaryData", {}).keys()
            if missing := sorted(keys - data):
                return Verdict(reason, f"{kind} {name} has no {' and no '.join(missing)}")
        return None

    async def _checkpoint_fault(self, pipeline: Pipeline, seen: Seen) -> Verdict | None:
        checkpoint = pipeline.checkpoint
        for other in map(Pipeline.from_object, await self._api.select("SparkPipeline", pipeline.namespace, "")):
            older = (other.created, other.name) < (pipeline.created, pipeline.name)
            if other.name != pipeline.name and older and other.checkpoint.place == checkpoint.place:
                text = f"SparkPipeline {other.name} has folder {checkpoint.folder} of claim {checkpoint.claim}"
                return Verdict(Reason.CHECKPOINT_CONFLICT, f"{text}: set another checkpoint.folder")
        if checkpoint.owned:
            return None
        if seen.claim is None:
            return Verdict(Reason.CHECKPOINT_PENDING, f"volume claim {checkpoint.claim} does not exist")
        shared = "ReadWriteMany" in seen.claim["spec"].get("accessModes", [])
        if pipeline.stateful and not shared and not pipeline.executors.on_driver_node:
            text = f"stateful is true, and volume claim {checkpoint.claim} has no access mode ReadWriteMany"
            return Verdict(Reason.CHECKPOINT_NOT_SHARED, f"{text}: use another claim, or set executors.onDriverNode")
        return None

    async def _apply_objects(self, body: Manifest, pipeline: Pipeline) -> Verdict | None:
        """Create or update the objects that the driver needs. Return a verdict if one of their names belongs to another
        owner.
        """
        for manifest in manifests.objects(pipeline):
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            current = await self._api.get(kind, pipeline.namespace, name)
            if current is not None and not _is_ours(pipeline, current):
                return Verdict(Reason.NAME_CONFLICT, f"{kind} {name} exists and does not belong to this pipeline")
            if current is None or differences(current, manifest):
                after = await self._api.apply(manifest)
                if current is None:
                    await self._say(body, "Created", "made", kind, name)
                elif after["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"]:
                    await self._say(body, "Updated", "changed", kind, name)
        return None

    async def _take(
        self, body: Manifest, decision: Decision, wanted: Manifest | None, current: Manifest | None
    ) -> None:
        namespace = body["metadata"]["namespace"]
        if decision.step is Step.CREATE and wanted is not None:
            try:
                await self._api.create(wanted)
            except Conflict:  # the previous driver is still terminating; its end is an event
                return
            await self._say(body, "Created", "made", wanted["kind"], wanted["metadata"]["name"])
        elif decision.step is Step.DELETE and current is not None:
            kind, metadata = current["kind"], current["metadata"]
            await self._api.delete(kind, namespace, metadata["name"], metadata["uid"])
            await self._say(body, "Deleted", "deleted", kind, metadata["name"])

    async def _say(self, body: Manifest, reason: str, verb: str, kind: str, name: str) -> None:
        STEPS.labels(verb, kind).inc()
        await self._parts.events.normal(body, reason, f"{verb} {kind} {name}")

    def _next(self, key: tuple[str, str], decision: Decision, refusal: Verdict | None) -> float:
        if refusal is not None:
            return self._retries.failed(key, f"{refusal.reason} {refusal.message}")
        self._retries.succeeded(key)
        if decision.wait_s is not None:
            return max(decision.wait_s, 1.0)
        rests = decision.status["phase"] in (Phase.COMPLETED, Phase.FAILED, Phase.SUSPENDED)
        return RESYNC_S if rests else PULSE_S


def _runs_queries(answer: Progress | None, before: Manifest) -> bool:
    """Return whether a driver runs streaming queries. A driver that does not respond now is in the state before."""
    if answer is not None:
        return bool(answer.get("queries"))
    conditions = before.get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _is_driver(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("labels", {}).get(names.COMPONENT_LABEL) == names.SPARK_DRIVER)


def _invalid(pipeline: Pipeline) -> Verdict | None:
    """Return what is invalid in the spec and cannot be checked by its definition."""
    if reserved := manifests.reserved_properties(pipeline):
        text = f"sparkConf must not contain {', '.join(reserved)}: the operator sets them from other fields"
        return Verdict(Reason.CONFIG_DENIED, text)
    try:
        re.compile(pipeline.topic_pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return Verdict(Reason.INVALID_SPEC, f"topicPattern is not a regular expression of Python: {error}")
    return None


def _foreign(pipeline: Pipeline, application: Manifest | None) -> Verdict | None:
    if application is None or _is_ours(pipeline, application):
        return None
    text = f"SparkApplication {pipeline.name} exists and does not belong to this pipeline"
    return Verdict(Reason.NAME_CONFLICT, text)


def _is_ours(pipeline: Pipeline, current: Manifest) -> bool:
    """Return whether an object belongs to this pipeline. A retained claim has no owner, only the label."""
    owners = current["metadata"].get("ownerReferences", [])
    if any(owner["uid"] == pipeline.uid for owner in owners):
        return True
    labels = current["metadata"].get("labels", {})
    label = names.pipeline_labels(pipeline.name).items() <= labels.items()
    return current["kind"] == "PersistentVolumeClaim" and not owners and label
