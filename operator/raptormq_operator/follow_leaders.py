"""Updates the Services of leaders. The operator asks each leader whether it still leads. If it does not, the operator
asks all members of its group.

A reconciliation of the whole cluster takes as long as its slowest server, and a change of the leader often coincides
with an unresponsive server. The leaders therefore have a separate lane, with one short request per second and group.
The plan of the cluster (`reconcile_cluster`) creates and repairs the Services, with the leaders found here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.replication import ReplicationState
from raptormq_operator.admin import ClusterAdmin
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.manifests.metadata import Manifest, sealed
from raptormq_operator.manifests.services import leader_service, led_to
from raptormq_operator.metrics import STEPS
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Member
from raptormq_operator.parts import ReconcilerParts

LOOK_S = 1.0
"""Interval in seconds of requests to a leader."""
SEEK_S = 0.3
"""Interval in seconds of requests to a group that has no leader, or whose Service could not be updated."""
SEEK_LOOKS = 100
"""Number of consecutive checks in vain after which `LOOK_S` applies instead of `SEEK_S`."""
ASK_S = 0.7
"""Timeout of one request in seconds."""
QUESTIONS_PER_S = 200
"""Maximum number of groups to which requests are sent per second. With more groups, the interval is longer."""

log = get_logger(__name__)


@dataclass(slots=True)
class _Followed:
    """State of the Services of one cluster."""

    uid: str
    members: dict[int, int] = field(default_factory=dict)
    """Index of the member that the Service selects, by group."""
    looks_in_vain: int = 0
    """Number of consecutive checks that found no leader or could not update a Service."""


class LeaderFollower:
    """Checks the leaders of one cluster and updates their Services, once per call."""

    def __init__(self, parts: ReconcilerParts, look_at_cluster: Callable[[str, str], None]) -> None:
        """`look_at_cluster` is called with the namespace and name of a cluster whose leader has changed."""
        self._api = parts.api
        self._admin = parts.admin
        self._events = parts.events
        self._keys = parts.keys
        self._leaders = parts.leaders
        self._look_at_cluster = look_at_cluster
        self._followed: dict[tuple[str, str], _Followed] = {}

    async def __call__(self, namespace: str, name: str) -> float | None:
        """Check the leaders and update outdated Services. Return the seconds until the next check; None if the cluster
        is no longer watched.
        """
        cluster = self._leaders.watched(namespace, name)
        if cluster is None:
            self._followed.pop((namespace, name), None)
            return None
        followed = self._followed.get((namespace, name))
        if followed is None or followed.uid != cluster.uid:
            followed = self._followed[namespace, name] = _Followed(cluster.uid)
        admin = self._admin.speaking(cluster.tls, await self._keys.current(cluster))
        groups = range(cluster.groups)
        led = await asyncio.gather(*(self._seek(admin, cluster, group) for group in groups))
        moved = await asyncio.gather(*(self._follow(cluster, group, followed) for group in groups))
        well = all(led) and all(moved)
        followed.looks_in_vain = 0 if well else followed.looks_in_vain + 1
        soon = SEEK_S if 0 < followed.looks_in_vain <= SEEK_LOOKS else LOOK_S
        return max(soon, self._leaders.group_count / QUESTIONS_PER_S)

    async def _seek(self, admin: ClusterAdmin, cluster: Cluster, group: int) -> bool:
        """Ask the members of a group which of them leads. Return whether a leader was found."""
        members = cluster.group(group)
        known = self._leaders.of(cluster).get(group)
        if known is not None and known < len(members):
            leader = members[known]
            state = await _ask(admin, leader)
            if state is not None and self._leaders.heard(cluster, leader, state):
                return True
            members = tuple(member for member in members if member is not leader)
        return await self._first(admin, cluster, members)

    async def _first(self, admin: ClusterAdmin, cluster: Cluster, members: Sequence[Member]) -> bool:
        """Ask the members concurrently until one reports that it leads; return whether one did. Unresponsive members
        cause no delay.
        """
        asked = {asyncio.ensure_future(_ask(admin, member)): member for member in members}
        left = set(asked)
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    state = each.result()
                    if state is not None and self._leaders.heard(cluster, asked[each], state):
                        return True
        finally:
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return False

    async def _follow(self, cluster: Cluster, group: int, followed: _Followed) -> bool:
        """Point the Service of a group to its leader. Return whether it points to the leader."""
        index = self._leaders.of(cluster).get(group)
        if index is None or followed.members.get(group) == index:
            return True
        try:
            service = await self._api.get("Service", cluster.namespace, names.leader_service(cluster.name, group))
            if service is None or not _owned(service, cluster):
                return True  # the plan of the cluster creates it, or reports the reason
            if led_to(service) != index:
                await self._move(cluster, group, index)
        except KubeError as error:
            log.warning(
                "the Service of the leader of %s/%s could not be updated: %s", cluster.namespace, cluster.name, error
            )
            return False
        followed.members[group] = index
        return True

    async def _move(self, cluster: Cluster, group: int, index: int) -> None:
        await self._api.apply(sealed(leader_service(cluster, group, index)))
        STEPS.labels("moved", "Service").inc()
        member = cluster.group(group)[index]
        service = names.leader_service(cluster.name, group)
        await self._events.normal(_about(cluster), "LeaderFollowed", f"Service {service} leads to {member.name}")
        self._look_at_cluster(cluster.namespace, cluster.name)


async def _ask(admin: ClusterAdmin, member: Member) -> ReplicationState | None:
    try:
        async with asyncio.timeout(ASK_S):
            return await admin.replication(member.address)
    except (RaptorMQError, TimeoutError):
        return None


def _owned(service: Manifest, cluster: Cluster) -> bool:
    return any(owner.get("uid") == cluster.uid for owner in service["metadata"].get("ownerReferences", []))


def _about(cluster: Cluster) -> dict[str, Any]:
    metadata = {"name": cluster.name, "namespace": cluster.namespace, "uid": cluster.uid}
    return {"kind": "BrokerCluster", "metadata": metadata}
