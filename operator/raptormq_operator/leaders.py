"""The leaders of Dledger groups, for their Services. Pure; the clock is passed in.

Two members may report at the same time that they lead, if one has not yet detected that it was replaced. The member
with the higher term is the leader. A term is kept for `REMEMBERED_S` after the last report of its leader, so that
clients are not directed to a replaced leader if only this member responds. It is not kept longer, because a group that
has lost all its disks starts again with the first term.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from raptormq.protocol.bodies.replication import ReplicationState
from raptormq_operator.cluster_probe import LEADER
from raptormq_operator.model.cluster import DLEDGER, Cluster, Member

REMEMBERED_S = 30.0

Place = tuple[str, str]
"""Namespace and name of a BrokerCluster."""


@dataclass(frozen=True, slots=True)
class _Claim:
    term: int
    index: int
    heard_at: float


class Leaders:
    """The last known leader of each group of the watched clusters."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: dict[Place, Cluster] = {}
        self._claims: dict[Place, dict[int, _Claim]] = {}

    @property
    def group_count(self) -> int:
        """Number of groups of all watched clusters."""
        return sum(cluster.groups for cluster in self._watched.values())

    def watch(self, cluster: Cluster) -> None:
        """Watch a cluster, or its changed spec. The state of a deleted cluster with the same name is dropped."""
        place = cluster.namespace, cluster.name
        before = self._watched.get(place)
        if before is not None and before.uid != cluster.uid:
            self._claims.pop(place, None)
        self._watched[place] = cluster

    def watched(self, namespace: str, name: str) -> Cluster | None:
        """Return the cluster if it is watched."""
        return self._watched.get((namespace, name))

    def forget(self, namespace: str, name: str) -> None:
        """Stop watching a cluster."""
        self._watched.pop((namespace, name), None)
        self._claims.pop((namespace, name), None)

    def heard(self, cluster: Cluster, member: Member, state: ReplicationState) -> bool:
        """Record the report of a member about itself. Return whether it leads its group."""
        if state.mode != DLEDGER or state.role != LEADER:
            return False
        claims = self._claims.setdefault((cluster.namespace, cluster.name), {})
        known, now = claims.get(member.group), self._clock()
        if known is not None and state.term < known.term and now - known.heard_at < REMEMBERED_S:
            return False
        claims[member.group] = _Claim(state.term, member.index, now)
        return True

    def of(self, cluster: Cluster) -> dict[int, int]:
        """Return the index of the last known leader by group; groups without a known leader are absent."""
        claims = self._claims.get((cluster.namespace, cluster.name), {})
        return {
            group: claim.index
            for group, claim in claims.items()
            if group < cluster.groups and claim.index < len(cluster.group(group))
        }
