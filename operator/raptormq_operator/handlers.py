"""Event handlers, which enqueue work for the lanes.

Events of BrokerCluster and Topic come from kopf (`kopf_watch`), events of SparkPipelines and of child objects from
reflectors (`kube.reflector`). Both deliver every existing object at the start and every later change, some more than
once.
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
"""Label selector for the child objects of all clusters."""
PIPELINE_PODS = names.PIPELINE_LABEL
"""Label selector for the drivers and executors of all pipelines."""


class Triggers:
    """Maps events to lanes. `body` is the object, `event` the type of the event."""

    def __init__(self, lanes: Lanes, store: TopicStore) -> None:
        self._lanes = lanes
        self._store = store
        self._known: dict[Key, _Seen] = {}
        self._pipelines: dict[Key, object] = {}

    def own(self, kind: str, event: str | None, body: Mapping[str, Any]) -> None:
        """Handle an event of a BrokerCluster or Topic."""
        if kind == "BrokerCluster":
            self.cluster(event, body)
        else:
            self.topic(event, body)

    def cluster(self, event: str | None, body: Mapping[str, Any]) -> None:
        """Enqueue the cluster, and its Topics when a field changed that affects them."""
        metadata = body["metadata"]
        key = Key("BrokerCluster", metadata["namespace"], metadata["name"])
        before, now = self._known.pop(key, None), None if event == DELETED else _Seen.of(body)
        if now is not None:
            self._known[key] = now
        if before is not None and now is not None and before.uid == now.uid and now.version <= before.version:
            self._known[key] = before  # duplicate event
            return
        self._lanes.add(key)
        if before is None or now is None or before.matters != now.matters:
            self.topics_of(key.namespace, key.name)

    def topics_of(self, namespace: str, name: str) -> None:
        """Enqueue all Topics of a cluster."""
        if self._store.mark_all((namespace, name)):
            self._lanes.add(Key("Topics", namespace, name))

    def topic(self, event: str | None, body: Mapping[str, Any]) -> None:
        """Enqueue the Topic and all Topics that claim the same topic name."""
        metadata = body["metadata"]
        if event == DELETED:
            clusters = self._store.forget(metadata["namespace"], metadata["name"])
        else:
            clusters = self._store.see(body)
        for namespace, name in clusters:
            self._lanes.add(Key("Topics", namespace, name))

    def child(self, _: str, body: Mapping[str, Any]) -> None:
        """Enqueue the cluster that owns a child object."""
        metadata = body["metadata"]
        self._lanes.add(Key("BrokerCluster", metadata["namespace"], metadata["labels"][names.CLUSTER_LABEL]))

    def pipeline(self, event: str, body: Mapping[str, Any]) -> None:
        """Enqueue a SparkPipeline, unless only its status changed, which the operator itself writes."""
        metadata = body["metadata"]
        key = Key("SparkPipeline", metadata["namespace"], metadata["name"])
        if event == DELETED:
            self._pipelines.pop(key, None)
        else:
            matters = (metadata["uid"], metadata["generation"], "deletionTimestamp" in metadata)
            if self._pipelines.get(key) == matters:
                return
            self._pipelines[key] = matters
        self._lanes.add(key)

    def pipeline_pod(self, _: str, body: Mapping[str, Any]) -> None:
        """Enqueue the SparkPipeline to which a driver or an executor belongs."""
        metadata = body["metadata"]
        self._lanes.add(Key("SparkPipeline", metadata["namespace"], metadata["labels"][names.PIPELINE_LABEL]))


class _Seen(NamedTuple):
    uid: str
    version: int
    matters: object
    """Fields that affect Topics. Frequent status updates do not change them, so they cause no work for the Topics."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> _Seen:
        metadata, conditions = body["metadata"], body.get("status", {}).get("conditions", [])
        deleting = "deletionTimestamp" in metadata
        matters = (metadata["uid"], metadata["generation"], deleting, [one["status"] for one in conditions])
        return cls(metadata["uid"], version_of(metadata), matters)
