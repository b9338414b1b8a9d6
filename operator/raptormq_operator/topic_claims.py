"""Which Topic resources claim which topic, kept from what kopf watches, since asking each time would list them all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from raptormq_operator.topic_plan import Claim

Name = tuple[str, str, str]
"""Namespace, cluster, topic name."""


class TopicClaims:
    """Claims of all Topic resources that are not being deleted."""

    def __init__(self) -> None:
        self._claims: defaultdict[Name, dict[str, Claim]] = defaultdict(dict)

    def see(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Takes notice of a resource; returns the names of those that claim the same topic."""
        name, claim = _claim(body)
        if "deletionTimestamp" in body["metadata"]:
            return self.forget(body)
        self._claims[name][claim.uid] = claim
        return tuple(other.name for other in self._claims[name].values() if other.uid != claim.uid)

    def forget(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """A resource is gone; returns the names of those that claim the same topic and may now hold it."""
        name, claim = _claim(body)
        held = self._claims[name]
        held.pop(claim.uid, None)
        if not held:
            del self._claims[name]
        return tuple(other.name for other in held.values())

    def to(self, namespace: str, cluster: str, topic_name: str) -> tuple[Claim, ...]:
        """All claims to a topic."""
        return tuple(self._claims.get((namespace, cluster, topic_name), {}).values())

    def topics_of(self, namespace: str, cluster: str) -> Iterable[str]:
        """Names of the Topic resources of a cluster."""
        return [
            claim.name
            for (where, of_cluster, _), claims in self._claims.items()
            if (where, of_cluster) == (namespace, cluster)
            for claim in claims.values()
        ]


def _claim(body: Mapping[str, Any]) -> tuple[Name, Claim]:
    metadata, spec = body["metadata"], body["spec"]
    topic_name = spec.get("name", metadata["name"])
    name = (metadata["namespace"], spec["clusterRef"]["name"], topic_name)
    return name, Claim(metadata["creationTimestamp"], metadata["uid"], metadata["name"])
