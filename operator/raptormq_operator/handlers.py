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
DELETED = "DELETED"


class Triggers:
    """Which keys an event puts into the queue. `body` is the object, `event` what happened to it."""

    def __init__(self, queue: WorkQueue, claims: TopicClaims) -> None:
        self._queue = queue
        self._claims = claims
        self._known: dict[Key, object] = {}

    def cluster(self, event: str | None, body: Mapping[str, Any]) -> None:
        """The cluster itself, and its topics when it changed in a way that matters to them."""
        metadata = body["metadata"]
        key = Key("BrokerCluster", metadata["namespace"], metadata["name"])
        self._queue.add(key)
        before, now = self._known.pop(key, None), None if event == DELETED else _what_topics_depend_on(body)
        if before != now:
            for topic in self._claims.topics_of(key.namespace, key.name):
                self._queue.add(Key("Topic", key.namespace, topic))
        if now is not None:
            self._known[key] = now

    def topic(self, event: str | None, body: Mapping[str, Any]) -> None:
        """The topic itself, and those that claim the same name."""
        metadata = body["metadata"]
        rivals = self._claims.forget(body) if event == DELETED else self._claims.see(body)
        for name in dict.fromkeys([metadata["name"], *rivals]):
            self._queue.add(Key("Topic", metadata["namespace"], name))

    def child(self, body: Mapping[str, Any]) -> None:
        """The cluster that an object belongs to."""
        metadata = body["metadata"]
        self._queue.add(Key("BrokerCluster", metadata["namespace"], metadata["labels"][names.CLUSTER_LABEL]))


def register(registry: kopf.OperatorRegistry, triggers: Triggers, claims: TopicClaims) -> None:
    """Tells kopf what to watch: both resources, and the objects that a BrokerCluster has."""

    @kopf.on.event(names.API_VERSION, "brokerclusters", registry=registry)
    async def on_cluster(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's name
        triggers.cluster(type, body)

    @kopf.index(names.API_VERSION, "topics", registry=registry)
    async def index_topics(body: kopf.Body, **_: Any) -> None:
        # An index is filled before any handler runs, so that two claims to one topic are known before either is served.
        claims.see(body)

    @kopf.on.event(names.API_VERSION, "topics", registry=registry)
    async def on_topic(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's name
        triggers.topic(type, body)

    for plural, version in CHILDREN.items():

        @kopf.on.event(version, plural, labels=OURS, registry=registry)
        async def on_child(body: kopf.Body, **_: Any) -> None:
            triggers.child(body)


def _what_topics_depend_on(body: Mapping[str, Any]) -> object:
    """A status is written often; thousands of topics are looked at again only when one of these changes."""
    metadata, conditions = body["metadata"], body.get("status", {}).get("conditions", [])
    return (
        metadata["uid"],
        metadata["generation"],
        "deletionTimestamp" in metadata,
        [one["status"] for one in conditions],
    )
