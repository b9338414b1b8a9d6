"""Cache of Topic resources by cluster, with the set of Topics to reconcile.

The cache saves one request per Topic and reconciliation. A cached resource may be slightly out of date. That is
harmless: updates are server-side applies with the uid as precondition, and the next event triggers another
reconciliation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from raptormq_operator.conditions import Reason
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.topic_plan import Claim

ClusterName = tuple[str, str]
"""Namespace and name of a BrokerCluster."""


@dataclass(slots=True)
class _Entry:
    """One resource: its JSON text, which takes a tenth of the memory of parsed objects, and frequently used fields."""

    text: bytes
    uid: str
    version: int
    created: str
    deleting: bool
    waiting: bool
    """True unless the status shows that the resource owns its topic."""
    topic_name: str
    first_version: int
    """resourceVersion at which the resource was first observed. Orders resources created in the same second."""

    @classmethod
    def of(cls, body: Mapping[str, Any], first_version: int) -> _Entry:
        metadata = body["metadata"]
        kept = {key: value for key, value in metadata.items() if key != "managedFields"}
        conditions = body.get("status", {}).get("conditions", ())
        holds = any(one["type"] == "Ready" and one["reason"] != Reason.TOPIC_CONFLICT for one in conditions)
        return cls(
            text=orjson.dumps({**body, "metadata": kept}),
            uid=metadata["uid"],
            version=version_of(metadata),
            created=metadata["creationTimestamp"],
            deleting="deletionTimestamp" in metadata,
            waiting=not holds,
            topic_name=body["spec"].get("name", metadata["name"]),
            first_version=first_version,
        )


class _OfCluster:
    __slots__ = ("changed", "entries", "gone", "names")

    def __init__(self) -> None:
        self.entries: dict[str, _Entry] = {}
        self.names: dict[str, set[str]] = {}
        """Topic name -> names of the resources that claim it."""
        self.changed: dict[str, None] = {}
        """Names of the Topics to reconcile, in order of arrival."""


class TopicStore:
    """Cache of all Topic resources."""

    def __init__(self) -> None:
        self._clusters: dict[ClusterName, _OfCluster] = {}
        self._places: dict[tuple[str, str], ClusterName] = {}

    def see(self, body: Mapping[str, Any]) -> set[ClusterName]:
        """Store a created or updated resource. Return the clusters with Topics to reconcile."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        cluster = (namespace, body["spec"]["clusterRef"]["name"])
        before, version = self._entry(namespace, name), version_of(metadata)
        same = before is not None and before.uid == metadata["uid"]
        if before is not None and same and version <= before.version:
            return set()  # duplicate event, or older than the response to our own write
        entry = _Entry.of(body, before.first_version if before is not None and same else version)
        touched = self._take_out(namespace, name)
        of_cluster = self._clusters.setdefault(cluster, _OfCluster())
        of_cluster.entries[name] = entry
        of_cluster.names.setdefault(entry.topic_name, set()).add(name)
        self._places[namespace, name] = cluster
        of_cluster.changed.update(dict.fromkeys([name, *sorted(of_cluster.names[entry.topic_name])]))
        return touched | {cluster}

    def forget(self, namespace: str, name: str) -> set[ClusterName]:
        """Remove a deleted resource. Return the clusters with Topics to reconcile; another Topic may now own its
        name."""
        return self._take_out(namespace, name)

    def written(self, body: Mapping[str, Any]) -> None:
        """Store the API server's response to our own write, without marking the Topic for reconciliation."""
        metadata = body["metadata"]
        entry = self._entry(metadata["namespace"], metadata["name"])
        if entry is not None and entry.uid == metadata["uid"] and version_of(metadata) > entry.version:
            cluster = self._places[metadata["namespace"], metadata["name"]]
            self._clusters[cluster].entries[metadata["name"]] = _Entry.of(body, entry.first_version)

    def places(self) -> Collection[tuple[str, str]]:
        """Return namespace and name of every resource."""
        return list(self._places)

    def get(self, cluster: ClusterName, name: str) -> Manifest | None:
        """Return the resource; None if it was deleted."""
        of_cluster = self._clusters.get(cluster)
        entry = of_cluster.entries.get(name) if of_cluster else None
        if entry is None:
            return None
        body: Manifest = orjson.loads(entry.text)
        return body

    def mark_all(self, cluster: ClusterName) -> bool:
        """Mark all Topics of a cluster for reconciliation. Return False if it has none."""
        of_cluster = self._clusters.get(cluster)
        if of_cluster is None or not of_cluster.entries:
            return False
        of_cluster.changed.update(dict.fromkeys(of_cluster.entries))
        return True

    def mark(self, cluster: ClusterName, names: Collection[str]) -> None:
        """Mark these Topics for reconciliation."""
        of_cluster = self._clusters.get(cluster)
        if of_cluster is not None:
            of_cluster.changed.update(dict.fromkeys(names))

    def has_changed(self, cluster: ClusterName) -> bool:
        """Return whether a Topic of the cluster is marked for reconciliation."""
        of_cluster = self._clusters.get(cluster)
        return of_cluster is not None and bool(of_cluster.changed)

    def take_changed(self, cluster: ClusterName, limit: int) -> list[str]:
        """Remove and return up to `limit` names of marked Topics. A Topic may have been deleted since it was marked."""
        of_cluster = self._clusters.get(cluster)
        if of_cluster is None:
            return []
        taken = list(of_cluster.changed)[:limit]
        for name in taken:
            del of_cluster.changed[name]
        if not of_cluster.entries and not of_cluster.changed:
            del self._clusters[cluster]
        return taken

    def claims(self, cluster: ClusterName, topic_name: str) -> list[Claim]:
        """Return the claims to a topic name of all resources that are not being deleted."""
        of_cluster = self._clusters.get(cluster)
        if of_cluster is None:
            return []
        entries = ((name, of_cluster.entries[name]) for name in of_cluster.names.get(topic_name, ()))
        return [
            Claim(entry.created, entry.waiting, entry.first_version, entry.uid, name)
            for name, entry in entries
            if not entry.deleting
        ]

    def _entry(self, namespace: str, name: str) -> _Entry | None:
        cluster = self._places.get((namespace, name))
        return None if cluster is None else self._clusters[cluster].entries.get(name)

    def _take_out(self, namespace: str, name: str) -> set[ClusterName]:
        cluster = self._places.pop((namespace, name), None)
        if cluster is None:
            return set()
        of_cluster = self._clusters[cluster]
        entry = of_cluster.entries.pop(name)
        rivals = of_cluster.names[entry.topic_name]
        rivals.discard(name)
        of_cluster.changed.update(dict.fromkeys([name, *sorted(rivals)]))
        if not rivals:
            del of_cluster.names[entry.topic_name]
        return {cluster}


def version_of(metadata: Mapping[str, Any]) -> int:
    """Return the resourceVersion as an integer. It increases with every change (KEP-5504)."""
    return int(metadata["resourceVersion"])
