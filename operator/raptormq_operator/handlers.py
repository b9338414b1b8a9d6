"""What follows from an event of the API server: work for a lane, never more.

Events of our own resources come from kopf (`kopf_watch`), those of a cluster's objects from reflectors
(`kube.reflector`); both show everything at the start and every change afterwards, and some of it twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from raptormq_operator.kube.reflector import DELETED
from raptormq_operator.lanes import Key, Lanes
from raptormq_operator.model import names
from raptormq_operator.topic_store import TopicStore, version_of

CHILD_KINDS = ("ConfigMap", "PodDisruptionBudget", "Service", "StatefulSet")
CHILD_SELECTOR = f"{names.MANAGED_BY_LABEL}={names.FIELD_MANAGER},{names.CLUSTER_LABEL}"
"""Our own objects of any cluster."""


class Triggers:
    """Which lanes have work after an event. `body` is the object, `event` what happened to it."""

    def __init__(self, lanes: Lanes, store: TopicStore) -> None:
        self._lanes = lanes
        self._store = store
        self._known: dict[Key, _Seen] = {}

    def own(self, kind: str, event: str | None, body: Mapping[str, Any]) -> None:
        """One of our own resources."""
        if kind == "BrokerCluster":
            self.cluster(event, body)
        else:
            self.topic(event, body)

    def cluster(self, event: str | None, body: Mapping[str, Any]) -> None:
        """The cluster itself, and its Topics when it changed in a way that matters to them."""
        metadata = body["metadata"]
        key = Key("BrokerCluster", metadata["namespace"], metadata["name"])
        before, now = self._known.pop(key, None), None if event == DELETED else _Seen.of(body)
        if now is not None:
            self._known[key] = now
        if before is not None and now is not None and before.uid == now.uid and now.version <= before.version:
            self._known[key] = before  # told twice
            return
        self._lanes.add(key)
        if before is None or now is None or before.matters != now.matters:
            self.topics_of(key.namespace, key.name)

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

    def child(self, _: str, body: Mapping[str, Any]) -> None:
        """The cluster that an object belongs to."""
        metadata = body["metadata"]
        self._lanes.add(Key("BrokerCluster", metadata["namespace"], metadata["labels"][names.CLUSTER_LABEL]))


class _Seen(NamedTuple):
    uid: str
    version: int
    matters: object
    """A status is written often; thousands of topics are looked at again only when one of these changes."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> _Seen:
        metadata, conditions = body["metadata"], body.get("status", {}).get("conditions", [])
        deleting = "deletionTimestamp" in metadata
        matters = (metadata["uid"], metadata["generation"], deleting, [one["status"] for one in conditions])
        return cls(metadata["uid"], version_of(metadata), matters)
