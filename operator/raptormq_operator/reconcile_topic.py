"""Reconciliation of a Topic: ask every broker, change those that answer otherwise, ask again, say so in the status.

The finalizer is ours and is there only while `deletionPolicy: Delete` says that something is to be done. It is
released at once when the cluster is gone or going, or when another resource owns the topic: a namespace never hangs
because of us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from raptormq.errors import RaptorMQError, ServerError
from raptormq_operator import cluster_status, topic_plan
from raptormq_operator.admin import Admin, ClusterAdmin, TopicAnswer
from raptormq_operator.cluster_probe import probe_cluster
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.kube.api import KubeApi
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Surroundings
from raptormq_operator.model.topic import Topic
from raptormq_operator.status_writer import StatusWriter
from raptormq_operator.topic_plan import Answer, Claim, Failure

FINALIZER_MANAGER = f"{names.FIELD_MANAGER}-finalizer"
RESYNC_S = 120.0
RETRY_S = 2.0
REFUSED_S = 300.0

Claims = Callable[[str, str, str], Sequence[Claim]]
"""(namespace, cluster, topic name) -> claims of all Topic resources that are not being deleted."""


class TopicReconciler:
    """One call brings one topic as far as it can go now."""

    def __init__(
        self,
        api: KubeApi,
        admin: Admin,
        events: EventRecorder,
        writer: StatusWriter,
        surroundings: Surroundings,
        claims: Claims,
    ) -> None:
        self._api = api
        self._admin = admin
        self._events = events
        self._writer = writer
        self._surroundings = surroundings
        self._claims = claims

    async def __call__(self, namespace: str, name: str) -> float | None:
        body = await self._api.get("Topic", namespace, name)
        if body is None:
            self._writer.forget("Topic", namespace, name)
            return None
        topic = Topic.from_object(body)
        cluster_body = await self._cluster_body(topic)
        cluster = Cluster.from_object(cluster_body, self._surroundings) if cluster_body else None
        refused = topic_plan.refusal(topic, self._claims(namespace, topic.cluster, topic.topic_name))
        if topic.deleting:
            return await self._end(body, topic, cluster, owner=refused is None)
        await self._guard(body, topic)
        if cluster_body is None or cluster is None or refused is not None:
            lost = Verdict(Reason.CLUSTER_NOT_FOUND, f"there is no BrokerCluster {topic.cluster} in {namespace}")
            await self._writer.write(body, topic_plan.status(topic, cluster, {}), refused or lost)
            return REFUSED_S
        return await self._converge(body, topic, cluster, cluster_body)

    async def _converge(self, body: Manifest, topic: Topic, cluster: Cluster, cluster_body: Manifest) -> float:
        answers = await self._ask(topic, cluster)
        to_change = topic_plan.changes(answers, topic_plan.wanted(topic))
        for address, change in to_change.items():
            answers[address] = await _change(self._admin.speaking(cluster.tls), topic, address, change)
        verdict = topic_plan.verdict(topic, answers)
        if verdict.ready:
            verdict = cluster_status.gaps_in(cluster, await probe_cluster(cluster, self._admin)) or verdict
        elif verdict.reason is Reason.BROKER_UNREACHABLE and not _is_ready(cluster_body):
            verdict = Verdict(Reason.CLUSTER_NOT_READY, f"BrokerCluster {cluster.name} is not ready: {verdict.message}")
        if to_change and verdict.ready:
            await self._events.normal(body, "Applied", f"topic {topic.topic_name} was made or changed on the brokers")
        await self._writer.write(body, topic_plan.status(topic, cluster, answers), verdict)
        return RESYNC_S if verdict.ready else RETRY_S

    async def _ask(self, topic: Topic, cluster: Cluster) -> dict[str, Answer]:
        addresses = [member.address for member in cluster.members]
        admin = self._admin.speaking(cluster.tls)
        answers = await asyncio.gather(*(_answer(admin, topic, address) for address in addresses))
        return dict(zip(addresses, answers, strict=True))

    async def _cluster_body(self, topic: Topic) -> Manifest | None:
        """The BrokerCluster, None when there is none or it is being deleted."""
        body = await self._api.get("BrokerCluster", topic.namespace, topic.cluster)
        return None if body is None or "deletionTimestamp" in body["metadata"] else body

    async def _guard(self, body: Manifest, topic: Topic) -> None:
        """Puts the finalizer where there will be something to do, and takes it away where there no longer is."""
        wanted = topic.deletion_policy == "Delete"
        if wanted != (names.TOPIC_FINALIZER in topic.finalizers):
            await self._set_finalizers(body, [names.TOPIC_FINALIZER] if wanted else [])

    async def _end(self, body: Manifest, topic: Topic, cluster: Cluster | None, *, owner: bool) -> float | None:
        """The resource is being deleted: deletes the topic when it is ours to delete, then lets the resource go."""
        if names.TOPIC_FINALIZER not in topic.finalizers:
            return None
        if topic.deletion_policy == "Delete" and cluster is not None and owner:
            left = await self._delete(topic, cluster)
            if left:
                verdict = Verdict(Reason.DELETING, f"the topic could not be deleted yet: {'; '.join(left)}")
                await self._writer.write(body, topic_plan.status(topic, cluster, {}), verdict)
                return RETRY_S
        await self._set_finalizers(body, [])
        return None

    async def _delete(self, topic: Topic, cluster: Cluster) -> list[str]:
        """What still stands in the way after an attempt to delete the topic everywhere."""
        try:
            await self._admin.speaking(cluster.tls).delete_topic(cluster.name_server_address, topic.topic_name)
        except RaptorMQError as error:
            return [str(error)]
        answers: Mapping[str, Answer] = await self._ask(topic, cluster)
        return [
            f"{address}: {answer.text if isinstance(answer, Failure) else 'it still has the topic'}"
            for address, answer in answers.items()
            if answer is not None
        ]

    async def _set_finalizers(self, body: Manifest, finalizers: list[str]) -> None:
        """Server-side apply under a manager of its own, which owns nothing but our entry of the list.

        The uid makes sure that a resource which is gone already is not made again.
        """
        metadata = {key: body["metadata"][key] for key in ("name", "namespace", "uid")}
        manifest = {
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "metadata": metadata | ({"finalizers": finalizers} if finalizers else {}),
        }
        try:
            await self._api.apply(manifest, manager=FINALIZER_MANAGER)
        except KubeError as error:
            if error.status not in (404, 409):
                raise


async def _answer(admin: ClusterAdmin, topic: Topic, address: str) -> Answer:
    try:
        return await admin.topic(address, topic.topic_name)
    except RaptorMQError as error:
        return _failure(error)


async def _change(admin: ClusterAdmin, topic: Topic, address: str, change: TopicAnswer) -> Answer:
    """Asks one broker to change; only what it answers afterwards counts."""
    try:
        await admin.change_topic(address, topic.topic_name, change)
    except RaptorMQError as error:
        return _failure(error)
    return await _answer(admin, topic, address)


def _is_ready(body: Manifest) -> bool:
    conditions = body.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _failure(error: RaptorMQError) -> Failure:
    reason = Reason.BROKER_REFUSED if isinstance(error, ServerError) else Reason.BROKER_UNREACHABLE
    return Failure(reason, str(error))
