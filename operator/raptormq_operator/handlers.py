"""What kopf watches and what follows from it: work for a lane, never more.

Only `on.event` is used. It sees every object at the start and every change afterwards, without annotations or
finalizers of kopf's own on anything, so nothing of ours ever hangs because the operator is gone. Children are found
by our labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from raptormq_operator.lanes import Key, Lanes
from raptormq_operator.model import names
from raptormq_operator.topic_store import TopicStore

CHILDREN = {"configmaps": "v1", "poddisruptionbudgets": "policy/v1", "services": "v1", "statefulsets": "apps/v1"}
OURS: dict[str, Any] = {
    names.MANAGED_BY_LABEL: names.FIELD_MANAGER,
    names.CLUSTER_LABEL: kopf.PRESENT,
}
DELETED = "DELETED"


class Triggers:
    """Which lanes have work after an event. `body` is the object, `event` what happened to it."""

    def __init__(self, lanes: Lanes, store: TopicStore) -> None:
        self._lanes = lanes
        self._store = store
        self._known: dict[Key, object] = {}

    def cluster(self, event: str | None, body: Mapping[str, Any]) -> None:
        """The cluster itself, and its Topics when it changed in a way that matters to them."""
        metadata = body["metadata"]
        key = Key("BrokerCluster", metadata["namespace"], metadata["name"])
        self._lanes.add(key)
        before, now = self._known.pop(key, None), None if event == DELETED else _what_topics_depend_on(body)
        if before != now:
            self.topics_of(key.namespace, key.name)
        if now is not None:
            self._known[key] = now

    def topics_of(self, namespace: str, name: str) -> None:
        """All Topics of a cluster."""
        if self._store.mark_all((namespace, name)):
            self._lanes.add(Key("Topics", namespace, name))

    def topic(self, event: str | None, body: Mapping[str, Any]) -> None:
        """The Topic itself, and those that claim the same name."""
        metadata = body["metadata"]
        if event == DELETED:
            clusters = self._store.forget(metadata["namespace"], metadata["name"])
        else:
            clusters = self._store.see(body)
        for namespace, name in clusters:
            self._lanes.add(Key("Topics", namespace, name))

    def child(self, body: Mapping[str, Any]) -> None:
        """The cluster that an object belongs to."""
        metadata = body["metadata"]
        self._lanes.add(Key("BrokerCluster", metadata["namespace"], metadata["labels"][names.CLUSTER_LABEL]))


def register(registry: kopf.OperatorRegistry, triggers: Triggers) -> None:
    """Tells kopf what to watch: both resources, and the objects that a BrokerCluster has."""

    @kopf.on.event(names.API_VERSION, "brokerclusters", registry=registry)
    async def on_cluster(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's name
        triggers.cluster(type, body)

    @kopf.on.event(names.API_VERSION, "topics", registry=registry)
    async def on_topic(event: kopf.RawEvent, **_: Any) -> None:
        triggers.topic(event["type"], event["object"])

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
