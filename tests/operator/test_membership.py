"""Dledger groups that grow and shrink while they serve."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptormq.protocol.bodies.replication import CAUGHT_UP_MEMBER_BYTES, CopyState, ReplicationState
from raptormq_operator.cluster_probe import ClusterProbe
from raptormq_operator.manifests.config import broker_properties
from raptormq_operator.membership import Action, Decision, Facts, decide, sizes_to_probe
from raptormq_operator.model.cluster import Cluster, GroupSize
from tests.operator.dledger_world import DledgerGroup
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body


def cluster_of(replicas: int) -> Cluster:
    return Cluster.from_object(cluster_body(replicas=replicas, replication={"mode": "dledger"}), SURROUNDINGS)


def decided(
    replicas: int,
    roles: str,
    *,
    brokers: int = 0,
    peers: set[int] | None = None,
    silent: str = "",
    lag: dict[int, int] | None = None,
    knows: int = 5,
    leads: bool = True,
) -> Decision:
    """Return members by `roles`, with a letter for each: Leader, Follower, Observer (learner), Joining, Absent."""
    words = {"L": "leader", "F": "follower", "O": "learner", "J": "joining", "A": "absent"}
    brokers = brokers or len(roles)
    cluster = cluster_of(replicas)
    facts = Facts({0: brokers}, {0: frozenset(peers or {5 if brokers > 3 else 3})})
    lags = lag or {}
    copies = tuple(
        CopyState(f"n{index}", "", words[letter], lags.get(index, 0), 0, str(index) not in silent)
        for index, letter in enumerate(roles)
    )
    states = {}
    everyone = cluster.with_sizes(sizes_to_probe(cluster, facts))
    for member in everyone.members[:brokers]:
        role = words[roles[member.index]] if member.index < len(roles) else "candidate"
        role = role if leads or role != "leader" else "candidate"
        known = copies if role == "leader" else tuple(CopyState(f"n{index}", "", "absent") for index in range(knows))
        states[member.address] = ReplicationState("broker-0", "dledger", member.id, role, 1, "n0", 9, 9, members=known)
    answers = {member.address: None if member.address in states else "nobody" for member in everyone.members}
    return decide(cluster, facts, ClusterProbe({}, answers, replication=states))


def asked(decision: Decision) -> list[tuple[Action, str]]:
    return [(change.action, change.member.id) for change in decision.changes]


def test_a_group_with_the_members_of_the_spec_is_left_alone() -> None:
    for roles in ("LFF", "LFFFF", "FLJ", "JLFFF"):
        assert decided(len(roles), roles) == Decision({0: GroupSize(len(roles), len(roles))})


def test_a_new_group_is_made_whole() -> None:
    cluster = cluster_of(5)
    probe = ClusterProbe({}, {member.address: "nobody" for member in cluster.members})
    assert decide(cluster, Facts(), probe) == Decision({0: GroupSize(5, 5)})
    half = Facts({0: 2}, {0: frozenset({5})})
    assert decide(cluster, half, probe).sizes == {0: GroupSize(5, 5)}, "the operator was stopped between the steps"


def test_brokers_that_are_there_know_the_new_members_before_one_is_made() -> None:
    decision = decided(5, "LFF", knows=3)
    assert (decision.sizes[0], asked(decision)) == (GroupSize(3, 5), [])
    assert "is not known yet to demo-broker-0-0, demo-broker-0-1, demo-broker-0-2" in decision.progress[0]
    settings_of_first = broker_properties(cluster_of(5).with_sizes(decision.sizes), cluster_of(5).members[0])
    assert settings_of_first["dLegerPeers"].count(":10913") == 5


@pytest.mark.parametrize(
    ("roles", "brokers", "options", "size", "change"),
    [
        ("LFFAA", 3, {}, 4, []),
        ("LFFAA", 4, {}, 4, [(Action.ADD, "n3")]),
        ("LFFOA", 4, {"lag": {3: CAUGHT_UP_MEMBER_BYTES + 1}}, 4, []),
        ("LFFOA", 4, {"silent": "3"}, 4, []),
        ("LFFOA", 4, {"lag": {3: CAUGHT_UP_MEMBER_BYTES}}, 4, [(Action.PROMOTE, "n3")]),
        ("LFFOA", 4, {"silent": "2"}, 4, []),
        ("LFFOA", 4, {"lag": {1: CAUGHT_UP_MEMBER_BYTES + 1}}, 4, []),
        ("LFFJA", 4, {}, 4, []),
        ("LFFFA", 4, {}, 5, []),
        ("LFFFA", 5, {"silent": "3"}, 5, [(Action.ADD, "n4")]),
        ("LFFFO", 5, {"silent": "3"}, 5, [(Action.PROMOTE, "n4")]),
        ("LFFFO", 5, {"silent": "3", "lag": {1: CAUGHT_UP_MEMBER_BYTES + 1}}, 5, []),
        ("LFFAF", 5, {}, 5, [(Action.ADD, "n3")]),
    ],
)
def test_members_join_one_after_the_other(
    roles: str, brokers: int, options: dict[str, Any], size: int, change: list[tuple[Action, str]]
) -> None:
    decision = decided(5, roles, brokers=brokers, peers={5}, **options)
    assert (decision.sizes[0], asked(decision)) == (GroupSize(size, 5), change)
    assert decision.progress


@pytest.mark.parametrize(
    ("roles", "brokers", "options", "size", "change"),
    [
        ("LFFFF", 5, {}, 5, [(Action.REMOVE, "n4")]),
        ("LFFFA", 5, {}, 4, [(Action.REMOVE, "n3")]),
        ("LFFFA", 4, {"silent": "1"}, 4, [(Action.REMOVE, "n3")]),
        ("LFFFA", 4, {"silent": "12"}, 4, []),
        ("LFFFF", 5, {"silent": "3"}, 5, [(Action.REMOVE, "n3")]),
        ("LFFAF", 5, {"silent": "23"}, 5, [(Action.REMOVE, "n4")]),
        ("LFFFF", 5, {"silent": "12"}, 5, []),
        ("LFFFF", 5, {"lag": {1: CAUGHT_UP_MEMBER_BYTES + 1, 2: CAUGHT_UP_MEMBER_BYTES + 1}}, 5, []),
        ("FFFFL", 5, {"lag": {0: 8, 1: 5, 2: 6}}, 5, [(Action.TRANSFER, "n1")]),
        ("FFFLF", 5, {"silent": "01", "lag": {2: CAUGHT_UP_MEMBER_BYTES + 1}}, 5, []),
        ("LFFOA", 4, {}, 4, [(Action.REMOVE, "n3")]),
    ],
)
def test_members_leave_one_after_the_other(
    roles: str, brokers: int, options: dict[str, Any], size: int, change: list[tuple[Action, str]]
) -> None:
    decision = decided(3, roles, brokers=brokers, peers={5}, **options)
    assert (decision.sizes[0], asked(decision)) == (GroupSize(size, 5), change)
    assert decision.progress


def test_the_others_forget_members_when_all_have_left() -> None:
    decision = decided(3, "LFFAA", brokers=4, peers={5})
    assert (decision.sizes[0], asked(decision)) == (GroupSize(3, 3), [])
    assert decision.progress == ("broker-0: the others get the list of 3 members",)
    assert decided(3, "LFF", peers={3}).progress == ()


@pytest.mark.parametrize(
    ("replicas", "brokers", "peers", "size"),
    [
        (5, 3, {3}, GroupSize(3, 5)),
        (5, 3, {3, 5}, GroupSize(3, 5)),
        (3, 5, {5}, GroupSize(5, 5)),
        (3, 4, {5}, GroupSize(4, 5)),
        (3, 3, {5}, GroupSize(3, 5)),
    ],
)
def test_nothing_joins_or_leaves_without_a_leader(
    replicas: int, brokers: int, peers: set[int], size: GroupSize
) -> None:
    for options in ({"leads": False}, {"silent": "1234"}):
        decision = decided(replicas, "LFFFF"[:brokers], brokers=brokers, peers=peers, **options)
        assert (decision.sizes[0], decision.changes) == (size, ())
        assert "waits for a leader with a majority" in decision.progress[0]


def test_what_was_decided_stays_while_a_leader_is_elected() -> None:
    assert decided(3, "LFF", peers={3, 5}, leads=False) == Decision({0: GroupSize(3, 3)})
    assert decided(5, "LFFAA", brokers=5, peers={5}, leads=False) == Decision({0: GroupSize(5, 5)})


async def test_a_group_grows_from_three_to_five_while_it_serves() -> None:
    world = DledgerGroup()
    await world.until()
    world.resize(5)
    await world.until("PodsNotReady")
    (condition,) = [each for each in world.status["conditions"] if each["type"] == "MembersChanging"]
    assert condition["message"] == "the members of Dledger groups change to 5 each: broker-0 has 4 brokers"
    assert "demo-broker-0-3 becomes a learner" in world.ready["message"]
    await world.turn()
    roles = {each["name"]: each["role"] for each in world.status["brokers"]}
    await world.until()
    assert world.voters == set(range(5))
    assert [each for each in world.changed if each[0] != "transfer"] == [
        ("addLearner", "n3"),
        ("promote", "n3"),
        ("addLearner", "n4"),
        ("promote", "n4"),
    ]
    assert {pod.peers for pod in world.pods.values()} == {5}
    assert len(world.status["conditions"]) == 1
    assert list(roles.values()).count("candidate") <= 1
    assert ("Normal", "MembersChanged") in world.kube.events()


async def test_a_group_shrinks_from_five_to_three_and_a_leader_that_goes_hands_over() -> None:
    world = DledgerGroup(5)
    await world.until()
    world.lead(4)
    world.controllers()
    world.resize(3)
    await world.until()
    assert world.voters == {0, 1, 2}
    assert world.changed[:3] == [("transfer", "n0"), ("remove", "n4"), ("remove", "n3")]
    assert {index: pod.peers for index, pod in world.pods.items()} == {0: 3, 1: 3, 2: 3}
    assert world.names("StatefulSet") == ["demo-broker-0-0", "demo-broker-0-1", "demo-broker-0-2", "demo-namesrv"]


async def test_the_claims_of_members_that_leave_go_as_the_spec_says() -> None:
    for policy in ("Retain", "Delete"):
        world = DledgerGroup(5, storage={"whenDeleted": policy, "size": "1Gi", "local": False})
        await world.until()
        workload = world.kube.objects["StatefulSet", NAMESPACE, "demo-broker-0-4"]
        assert workload["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == policy


async def test_a_refusal_of_the_leader_is_said_and_asked_again() -> None:
    world = DledgerGroup()
    await world.until()
    world.resize(5)
    await world.until("PodsNotReady")
    world.down = {3}
    world.controllers()
    world.admin.down.discard(world.member(3).address)
    world.learners.clear()
    world._describe()
    world.admin.down.discard(world.member(3).address)
    await world.turn()
    assert "broker-0 cannot addLearner demo-broker-0-3 yet: " in world.ready["message"]
    assert "n3 has not contacted the leader" in world.ready["message"]
    world.down = set()
    await world.until()
    assert len(world.voters) == 5


happenings = st.lists(
    st.sampled_from(["fail", "heal", "elect", "renew", "grow", "shrink", "leaderless", "quiet"]), max_size=30
)


@pytest.mark.timeout(600)
@settings(max_examples=60, deadline=None)
@given(happenings, st.lists(st.integers(0, 4), min_size=30, max_size=30), st.sampled_from([3, 5]))
def test_whatever_happens_the_rules_hold_and_the_spec_is_reached(
    happened: list[str], whom: list[int], last: int
) -> None:
    """`DledgerGroup` checks the rules after each step."""
    asyncio.run(happens(happened, whom, last))


async def happens(happened: list[str], whom: list[int], last: int) -> None:
    world = DledgerGroup()
    await world.until()
    for what, index in zip(happened, whom, strict=False):
        if what == "fail" and not world.down:
            world.down = {index}
        elif what == "heal":
            world.down = set()
        elif what == "elect" and index in world.voters & world.serving():
            world.lead(index)
        elif what == "leaderless":
            world.lead(None)
            world._describe()
            await world.turn()
        elif what == "renew":
            world.renew()
        elif what in ("grow", "shrink"):
            world.resize(5 if what == "grow" else 3)
        world.controllers()
        await world.turn()
    world.down = set()
    world.resize(last)
    await world.until(turns=120)
    for _ in range(3):
        world.controllers()
        await world.turn()
    assert (world.voters, set(world.pods)) == (set(range(last)), set(range(last)))
    assert {pod.peers for pod in world.pods.values()} == {last}
