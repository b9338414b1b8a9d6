"""Spreads the leaders of Dledger groups over nodes. Pure functions.

The members of a group run on different nodes, but elections do not consider where the leaders of other groups run.
After the creation of a cluster, and after a rolling update, one node often has all leaders and serves all clients.
The pods stay where they are, since local volumes cannot move. At its creation a pod prefers nodes without a member of
another group that has the same index (`manifests.broker`), so that each node has members that can lead.

Leadership is transferred from one leader at a time, from a node with more leaders to a node with at least two fewer, so
that each transfer makes the spread more even and the transfers end. The new leader must have the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raptormq_operator.cluster_probe import VOTERS, ClusterProbe
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.membership import has_the_log
from raptormq_operator.model.cluster import SPREAD, Cluster, Member

WAIT_S = 60.0
"""Minimum interval in seconds between two transfers of a cluster, and before the first one. A transfer interrupts sends
to the group for a moment."""


@dataclass(frozen=True, slots=True)
class LeaderMove:
    """A transfer of leadership to another node."""

    leader: Member
    successor: Member
    node: str
    """Node of the successor."""


def wanted(cluster: Cluster) -> bool:
    """Return whether the leaders of a cluster are to be spread."""
    return cluster.is_dledger and cluster.groups > 1 and cluster.replication.leader_placement == SPREAD


def nodes_of(cluster: Cluster, pods: Iterable[Manifest]) -> dict[str, str]:
    """Return the node of each member whose pod runs, by the member's name."""
    nodes = {
        pod["metadata"]["name"]: pod.get("spec", {}).get("nodeName", "")
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }
    found = {member.name: nodes.get(f"{member.name}-0", "") for member in cluster.members}
    return {name: node for name, node in found.items() if node}


def next_move(cluster: Cluster, probe: ClusterProbe, nodes: Mapping[str, str]) -> LeaderMove | None:
    """Return the transfer that makes the spread more even; None if there is none, or if a group has no leader."""
    leaders = [probe.leader(cluster, group) for group in range(cluster.groups)]
    led = [leader for leader in leaders if leader is not None and leader.name in nodes]
    if len(led) < cluster.groups:
        return None
    counts = Counter(nodes[leader.name] for leader in led)
    moves = [
        (counts[nodes[leader.name]] - counts[nodes[member.name]], -leader.group, -member.index, member, leader)
        for leader in led
        for member in _successors(cluster, probe, leader)
        if member.name in nodes
    ]
    gain, _, _, successor, leader = max(moves, key=lambda move: move[:3], default=(0, 0, 0, led[0], led[0]))
    return LeaderMove(leader, successor, nodes[successor.name]) if gain >= 2 else None


def _successors(cluster: Cluster, probe: ClusterProbe, leader: Member) -> list[Member]:
    """Return the members of a group that may lead it, according to its leader."""
    state = probe.replication[leader.address]
    sound = {copy.id for copy in state.members if copy.role in VOTERS and copy.id != leader.id and has_the_log(copy)}
    return [member for member in cluster.group(leader.group) if member.id in sound]
