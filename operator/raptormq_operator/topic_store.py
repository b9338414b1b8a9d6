"""The Topic resources as the watch has shown them last, by cluster, and which of them are to be looked at.

The bodies are kept here, so that a look at a thousand Topics does not begin with a thousand requests to the API server.
A body may be a moment old: what follows from it is written by server-side apply with its uid, and the event that makes
it newer is a reason for the next look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from raptormq_operator.conditions import Reason
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.topic_plan import Claim

ClusterName = tuple[str, str]
"""Namespace and name of a BrokerCluster."""


@dataclass(slots=True)
class _Entry:
    body: Manifest
    cluster: ClusterName
    topic_name: str
    first_version: int
    """resourceVersion under which it was seen first: of two that were made in the same second, the lower was first."""


class _OfCluster:
    __slots__ = ("changed", "entries", "gone", "names")

    def __init__(self) -> None:
        self.entries: dict[str, _Entry] = {}
        self.names: dict[str, set[str]] = {}
        """Topic name -> names of the resources that claim it."""
        self.changed: dict[str, None] = {}
        """Those to be looked at, in the order in which they came."""


class TopicStore:
    """All Topic resources that there are."""

    def __init__(self) -> None:
        self._clusters: dict[ClusterName, _OfCluster] = {}
        self._places: dict[tuple[str, str], ClusterName] = {}

    def see(self, body: Mapping[str, Any]) -> set[ClusterName]:
        """The resource was made or changed; returns the clusters that have Topics to be looked at."""
        metadata, spec = body["metadata"], body["spec"]
        namespace, name = metadata["namespace"], metadata["name"]
        cluster = (namespace, spec["clusterRef"]["name"])
        before = self._entry(namespace, name)
        same = before is not None and before.body["metadata"]["uid"] == metadata["uid"]
        if before is not None and same and version_of(metadata) <= version_of(before.body["metadata"]):
            return set()  # told twice, or a write of our own whose answer was newer
        topic_name = spec.get("name", name)
        first = before.first_version if before is not None and same else version_of(metadata)
        touched = self._take_out(namespace, name)
        kept = {**body, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
        of_cluster = self._clusters.setdefault(cluster, _OfCluster())
        of_cluster.entries[name] = _Entry(kept, cluster, topic_name, first)
        of_cluster.names.setdefault(topic_name, set()).add(name)
        self._places[namespace, name] = cluster
        of_cluster.changed.update(dict.fromkeys([name, *sorted(of_cluster.names[topic_name])]))
        return touched | {cluster}

    def forget(self, namespace: str, name: str) -> set[ClusterName]:
        """The resource is gone; returns the clusters that have Topics to be looked at: others may now hold its name."""
        return self._take_out(namespace, name)

    def written(self, body: Mapping[str, Any]) -> None:
        """The body as the API server has answered a write of ours: no reason for another look."""
        entry = self._entry(body["metadata"]["namespace"], body["metadata"]["name"])
        if entry is None or entry.body["metadata"]["uid"] != body["metadata"]["uid"]:
            return
        if version_of(body["metadata"]) > version_of(entry.body["metadata"]):
            metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
            entry.body = {**body, "metadata": metadata}

    def places(self) -> Collection[tuple[str, str]]:
        """Namespace and name of every resource."""
        return list(self._places)

    def get(self, cluster: ClusterName, name: str) -> Manifest | None:
        """The resource, None when it is gone."""
        of_cluster = self._clusters.get(cluster)
        entry = of_cluster.entries.get(name) if of_cluster else None
        return entry.body if entry else None

    def mark_all(self, cluster: ClusterName) -> bool:
        """All Topics of a cluster are to be looked at; False when it has none."""
        of_cluster = self._clusters.get(cluster)
        if of_cluster is None or not of_cluster.entries:
            return False
        of_cluster.changed.update(dict.fromkeys(of_cluster.entries))
        return True

    def mark(self, cluster: ClusterName, names: Collection[str]) -> None:
        """These are to be looked at."""
        of_cluster = self._clusters.get(cluster)
        if of_cluster is not None:
            of_cluster.changed.update(dict.fromkeys(names))

    def has_changed(self, cluster: ClusterName) -> bool:
        """Whether a Topic of the cluster is to be looked at."""
        of_cluster = self._clusters.get(cluster)
        return of_cluster is not None and bool(of_cluster.changed)

    def take_changed(self, cluster: ClusterName, limit: int) -> list[str]:
        """Names of those to be looked at, at most so many, which are from now on no longer to be. They may be gone."""
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
        """Claims to a topic of all resources that are not being deleted."""
        of_cluster = self._clusters.get(cluster)
        if of_cluster is None:
            return []
        entries = (of_cluster.entries[name] for name in of_cluster.names.get(topic_name, ()))
        return [_claim(entry) for entry in entries if "deletionTimestamp" not in entry.body["metadata"]]

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


def _claim(entry: _Entry) -> Claim:
    metadata = entry.body["metadata"]
    waiting = not any(
        condition["type"] == "Ready" and condition["reason"] != Reason.TOPIC_CONFLICT
        for condition in entry.body.get("status", {}).get("conditions", ())
    )
    return Claim(metadata["creationTimestamp"], waiting, entry.first_version, metadata["uid"], metadata["name"])


def version_of(metadata: Mapping[str, Any]) -> int:
    """resourceVersion as a number, which grows with every change (KEP-5504)."""
    return int(metadata["resourceVersion"])
