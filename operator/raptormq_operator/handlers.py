"""What kopf watches and what follows from it: a key in the work queue, never more.

Only `on.event` is used. It sees every object at the start and every change afterwards, without annotations or
finalizers of kopf's own on anything, so nothing of ours ever hangs because the operator is gone. Children are found
by our labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from raptormq_operator.model import names
from raptormq_operator.queue import Key, WorkQueue
from raptormq_operator.topic_claims import TopicClaims

CHILDREN = {"configmaps": "v1", "poddisruptionbudgets": "policy/v1", "services": "v1", "statefulsets": "apps/v1"}
OURS: dict[str, Any] = {
    names.MANAGED_BY_LABEL: names.FIELD_MANAGER,
    names.CLUSTER_LABEL: kopf.PRESENT,
}


def register(registry: kopf.OperatorRegistry, queue: WorkQueue, claims: TopicClaims) -> None:
    """Registers the handlers of both resources and of the objects that a BrokerCluster has."""

    @kopf.on.event(names.API_VERSION, "brokerclusters", registry=registry)
    async def on_cluster(body: kopf.Body, name: str, **_: Any) -> None:
        namespace = body["metadata"]["namespace"]
        queue.add(Key("BrokerCluster", namespace, name))
        for topic in claims.topics_of(namespace, name):
            queue.add(Key("Topic", namespace, topic))

    @kopf.index(names.API_VERSION, "topics", registry=registry)
    async def index_topics(body: kopf.Body, **_: Any) -> None:
        # An index is filled before any handler runs, so that two claims to one topic are known before either is served.
        claims.see(body)

    @kopf.on.event(names.API_VERSION, "topics", registry=registry)
    async def on_topic(type: str | None, body: kopf.Body, name: str, **_: Any) -> None:  # noqa: A002 - kopf's name
        rivals = claims.forget(body) if type == "DELETED" else claims.see(body)
        for topic in {name, *rivals}:
            queue.add(Key("Topic", body["metadata"]["namespace"], topic))

    for plural, version in CHILDREN.items():
        _register_child(registry, queue, plural, version)


def _register_child(registry: kopf.OperatorRegistry, queue: WorkQueue, plural: str, version: str) -> None:
    @kopf.on.event(version, plural, labels=OURS, registry=registry)
    async def on_child(body: kopf.Body, labels: Mapping[str, str], **_: Any) -> None:
        queue.add(Key("BrokerCluster", body["metadata"]["namespace"], labels[names.CLUSTER_LABEL]))
