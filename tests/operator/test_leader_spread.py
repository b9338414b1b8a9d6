"""Leaders of Dledger groups are spread over nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from raptormq.errors import ServerError
from raptormq.protocol.bodies.replication import CopyState, ReplicationState
from raptormq_operator import leader_spread
from raptormq_operator.cluster_probe import ClusterProbe
from raptormq_operator.kube.errors import Invalid
from raptormq_operator.leader_spread import WAIT_S
from raptormq_operator.model import names
from tests.operator.fake_admin import FakeAdmin
from tests.operator.resources import NAMESPACE
from tests.operator.test_reconcile_cluster import Operator

NODES = ("a", "b", "c")


class Groups(FakeAdmin):
    """Dledger groups, each with a leader that hands over to the requested member."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders: dict[str, int] = {}
        self.lags: dict[str, int | None] = {}
        """Lag of a member, by its address."""
        self.refuses = False

    def settle(self, operator: Operator) -> None:
        """Report the leaders to clients and to the operator."""
        ids = {}
        for member in operator.cluster.members:
            index = self.leaders.setdefault(member.broker_name, 0)
            leads = member.index == index
            copies = tuple(
                CopyState(
                    each.id,
                    each.host,
                    "leader" if each.index == index else "follower",
                    self.lags.get(each.address, 0),
                    0,
                    answering=True,
                )
                for each in operator.cluster.group(member.group)
            )
            self.replicas[member.address] = ReplicationState(
                member.broker_name,
                "dledger",
                member.id,
                "leader" if leads else "follower",
                3,
                f"n{index}",
                10,
                10,
                members=copies if leads else (),
            )
            ids["demo", member.broker_name, 0 if leads else member.index + 1] = member.address
        self.listings = dict.fromkeys(operator.cluster.name_server_addresses, ids)

    async def transfer_leadership(self, broker: str, to: str | None = None) -> None:
        if self.refuses:
            raise ServerError(604, "not now", broker)
        await super().transfer_leadership(broker, to)
        assert to is not None
        self.leaders[self.replicas[broker].group] = int(to[1:])


def cluster_of(groups: int = 3, **replication: Any) -> tuple[Operator, Groups]:
    """Return a cluster whose members with the same index share a node."""
    operator = Operator(groups=groups, replicas=3, replication={"mode": "dledger"} | replication)
    admin = Groups()
    admin.topics = {member.address: {} for member in operator.cluster.members}
    operator.parts = replace(operator.parts, admin=admin)
    operator.admin = admin
    operator.reconcile = type(operator.reconcile)(
        operator.parts, operator._look_at_topics, clock=lambda: operator.time, vary=lambda: 0.5
    )
    admin.settle(operator)
    for member in operator.cluster.members:
        metadata = {
            "name": f"{member.name}-0",
            "namespace": NAMESPACE,
            "labels": names.broker_labels("demo", member.group, member.index),
        }
        operator.kube.put({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": NODES[member.index]}})
    return operator, admin


async def ready(operator: Operator) -> None:
    for _ in range(5):
        operator.kube.settle()
        await operator.turn()
    assert operator.ready["status"] == "True", operator.ready


async def pass_time(operator: Operator, admin: Groups, seconds: float) -> None:
    """Let the reconciler run when it asks for it."""
    end = operator.time + seconds
    while operator.time < end:
        wait = await operator.pulse(4.0)
        assert wait is not None
        admin.settle(operator)


@pytest.mark.parametrize("groups", [2, 3, 6])
async def test_leaders_of_one_node_are_spread_one_group_a_minute(groups: int) -> None:
    operator, admin = cluster_of(groups)
    await ready(operator)
    moves = groups - -(-groups // 3)
    begun = operator.time
    times = []
    while operator.time < begun + 10 * WAIT_S:
        before = len(admin.transferred)
        await pass_time(operator, admin, 4.0)
        times += [operator.time] * (len(admin.transferred) - before)
    assert len(times) == moves, "it ends when the leaders are spread"
    pauses = [later - earlier for earlier, later in zip([begun, *times], times, strict=False)]
    assert all(WAIT_S <= pause < WAIT_S + 8 for pause in pauses), pauses
    counts = Counter(admin.leaders.values())
    assert max(counts.values()) - min(counts[index] for index in range(min(groups, 3))) <= 1
    assert ("Normal", "LeaderTransferred") in operator.kube.events()


async def test_leaders_are_brought_back_after_a_failure() -> None:
    operator, admin = cluster_of()
    await ready(operator)
    await pass_time(operator, admin, 4 * WAIT_S)
    assert sorted(admin.leaders.values()) == [0, 1, 2]
    admin.leaders = dict.fromkeys(admin.leaders, 2)
    admin.settle(operator)
    await pass_time(operator, admin, 4 * WAIT_S)
    assert sorted(admin.leaders.values()) == [0, 1, 2]


async def test_leaders_stay_with_the_placement_keep() -> None:
    operator, admin = cluster_of(leaderPlacement="Keep")
    await ready(operator)
    await pass_time(operator, admin, 4 * WAIT_S)
    assert admin.transferred == []


async def test_member_without_the_log_does_not_become_the_leader() -> None:
    operator, admin = cluster_of()
    for member in operator.cluster.members:
        admin.lags[member.address] = {1: 1 << 30, 2: None}.get(member.index, 0)
    admin.settle(operator)
    await ready(operator)
    await pass_time(operator, admin, 4 * WAIT_S)
    assert admin.transferred == []


async def test_refused_transfer_is_requested_again_a_minute_later() -> None:
    operator, admin = cluster_of(2)
    await ready(operator)
    admin.refuses = True
    await pass_time(operator, admin, WAIT_S + 8)
    assert operator.ready["status"] == "True"
    admin.refuses = False
    await pass_time(operator, admin, WAIT_S + 8)
    assert sorted(admin.leaders.values()) == [0, 1]


async def test_operator_that_may_not_list_pods_transfers_nothing() -> None:
    operator, admin = cluster_of()
    await ready(operator)
    operator.kube.refuse_lists["Pod"] = Invalid(403, "forbidden")
    await pass_time(operator, admin, 3 * WAIT_S)
    assert admin.transferred == []
    assert operator.ready["status"] == "True"


def test_leaders_of_a_cluster_with_a_group_without_a_leader_stay() -> None:
    operator, admin = cluster_of()
    states = dict(admin.replicas)
    well = ClusterProbe({}, {}, replication=states)
    nodes = {member.name: NODES[member.index] for member in operator.cluster.members}
    assert leader_spread.next_move(operator.cluster, well, nodes) is not None
    first = operator.cluster.members[0].address
    without = {address: state for address, state in states.items() if address != first}
    assert leader_spread.next_move(operator.cluster, ClusterProbe({}, {}, replication=without), nodes) is None


def test_pods_without_a_node_and_ending_pods_have_no_node() -> None:
    operator, _ = cluster_of(2)
    members = operator.cluster.members
    pods: list[dict[str, Any]] = [
        {"metadata": {"name": f"{members[0].name}-0"}, "spec": {"nodeName": "a"}},
        {"metadata": {"name": f"{members[1].name}-0"}, "spec": {}},
        {"metadata": {"name": f"{members[2].name}-0", "deletionTimestamp": "t"}, "spec": {"nodeName": "c"}},
    ]
    assert leader_spread.nodes_of(operator.cluster, pods) == {members[0].name: "a"}
