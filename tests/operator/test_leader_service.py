"""The Service of a group's leader: what it selects, and how it follows the leader."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from raptormq.protocol.bodies.replication import ReplicationState
from raptormq_operator.follow_leaders import ASK_S, LOOK_S, SEEK_LOOKS, SEEK_S
from raptormq_operator.kube.errors import Invalid, KubeError
from raptormq_operator.leaders import REMEMBERED_S, Leaders
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.manifests.config import broker_properties
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.manifests.services import led_to
from raptormq_operator.model.cluster import Cluster, Member
from raptormq_operator.plan import Apply, Observed, key_of, plan
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body
from tests.operator.test_reconcile_cluster import Operator

SPEC: dict[str, Any] = {"replicas": 3, "replication": {"mode": "dledger"}}
CLUSTER = Cluster.from_object(cluster_body(**SPEC), SURROUNDINGS)
FIRST, SECOND, THIRD = CLUSTER.members
NAME = "demo-broker-0-leader"
ADDRESS = f"{NAME}.{CLUSTER.zone}:10911"


def service(leaders: dict[int, int]) -> Manifest:
    (found,) = [each for each in wanted(CLUSTER, leaders=leaders).objects if each["metadata"]["name"] == NAME]
    return found


def state(member: Member, term: int, role: str = "leader") -> ReplicationState:
    return ReplicationState("broker-0", "dledger", member.id, role, term, member.id, 10, 10)


def test_it_selects_the_pod_of_the_leader_and_leads_to_the_port_of_its_own() -> None:
    found = service({0: 2})
    (workload,) = [each for each in wanted(CLUSTER).objects if key_of(each) == ("StatefulSet", THIRD.name)]
    template = workload["spec"]["template"]
    assert found["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert "clusterIP" not in found["spec"], "the address is stable"
    (port,) = found["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (10911, "leader")
    ports = {each["name"]: each["containerPort"] for each in template["spec"]["containers"][0]["ports"]}
    settings = broker_properties(CLUSTER, THIRD)
    assert (settings["dLegerLeaderAddress"], settings["dLegerLeaderPort"]) == (ADDRESS, str(ports["leader"]))
    assert found["metadata"]["ownerReferences"][0]["uid"] == CLUSTER.uid


def test_without_a_leader_it_selects_nobody() -> None:
    labels = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in wanted(CLUSTER).objects
        if each["kind"] == "StatefulSet"
    ]
    assert not any(service({})["spec"]["selector"].items() <= each.items() for each in labels)
    assert led_to(service({})) is None
    assert led_to(service({0: 1})) == 1


def test_brokers_without_copies_have_none() -> None:
    alone = Cluster.from_object(cluster_body(), SURROUNDINGS)
    assert not [each for each in wanted(alone).objects if each["metadata"]["name"].endswith("-leader")]
    assert not [key for key in broker_properties(alone, alone.members[0]) if key.startswith("dLeger")]


@pytest.mark.parametrize("leaders", [{}, {0: 1}])
def test_the_plan_moves_it_and_nothing_else(leaders: dict[int, int]) -> None:
    objects = {key_of(each): each for each in wanted(CLUSTER, leaders=leaders).objects}
    for each in objects.values():
        each["metadata"]["generation"] = 1
    steps = plan(Observed(CLUSTER.uid, objects), wanted(CLUSTER, leaders={0: 2})).steps
    assert [(type(step), key_of(step.manifest)) for step in steps if isinstance(step, Apply)] == [
        (Apply, ("Service", NAME))
    ]
    foreign = objects | {("Service", NAME): service(leaders) | {"metadata": {"name": NAME}}}
    found = plan(Observed(CLUSTER.uid, foreign), wanted(CLUSTER, leaders={0: 2}))
    assert (found.steps, found.conflicts) == ((), (f"Service {NAME}",))


def test_of_two_leaders_the_one_with_the_higher_term_leads_also_when_it_is_silent_for_a_while() -> None:
    now = 0.0
    leaders = Leaders(lambda: now)
    leaders.watch(CLUSTER)
    assert not leaders.heard(CLUSTER, FIRST, state(FIRST, 9, "follower"))
    assert leaders.of(CLUSTER) == {}
    assert leaders.heard(CLUSTER, SECOND, state(SECOND, 3))
    assert leaders.heard(CLUSTER, THIRD, state(THIRD, 4))
    assert not leaders.heard(CLUSTER, SECOND, state(SECOND, 3))
    assert leaders.of(CLUSTER) == {0: 2}
    now = REMEMBERED_S
    assert leaders.heard(CLUSTER, SECOND, state(SECOND, 1)), "a recreated group"
    assert leaders.of(CLUSTER) == {0: 1}
    leaders.watch(replace(CLUSTER, uid="another"))
    assert leaders.of(CLUSTER) == {}


async def pointed(operator: Operator) -> int | None:
    return led_to(operator.kube.objects["Service", NAMESPACE, NAME])


async def test_it_follows_the_leader_at_the_next_look() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    assert await pointed(operator) == 0
    reads = operator.kube.reads
    assert await operator.follow_leaders(NAMESPACE, "demo") == LOOK_S
    assert await operator.follow_leaders(NAMESPACE, "demo") == LOOK_S
    assert operator.kube.reads == reads + 1, "the API server gets one request"
    operator.admin.asked.clear()
    await operator.follow_leaders(NAMESPACE, "demo")
    assert operator.admin.asked == [FIRST.address], "no other member gets a request while it leads"
    operator.admin.lead(CLUSTER, None)
    assert await operator.follow_leaders(NAMESPACE, "demo") == SEEK_S
    assert await pointed(operator) == 0, "it does not change before there is a leader"
    operator.admin.lead(CLUSTER, THIRD)
    writes = len(operator.kube.writes)
    assert await operator.follow_leaders(NAMESPACE, "demo") == LOOK_S
    assert await pointed(operator) == 2
    assert ("Normal", "LeaderFollowed") in operator.kube.events()
    assert len(operator.kube.writes) == writes + 2, "the Service and an event"
    await operator.turn()
    assert operator.ready["status"] == "True"
    assert await pointed(operator) == 2


async def test_a_group_without_a_leader_is_asked_less_often_after_a_while() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    operator.admin.lead(CLUSTER, None)
    pauses = [await operator.follow_leaders(NAMESPACE, "demo") for _ in range(SEEK_LOOKS + 1)]
    assert pauses == [SEEK_S] * SEEK_LOOKS + [LOOK_S]


async def test_members_that_do_not_answer_do_not_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    answers, limited = operator.admin.replication, asyncio.Event()

    async def replication(broker: str, *, restarting: str | None = None) -> ReplicationState:
        if broker == THIRD.address:
            return await answers(broker, restarting=restarting)
        limited.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    monkeypatch.setattr(operator.admin, "replication", replication)
    operator.admin.lead(CLUSTER, THIRD)
    async with asyncio.timeout(ASK_S * 5):
        await operator.follow_leaders(NAMESPACE, "demo")
    assert limited.is_set()
    assert await pointed(operator) == 2


async def test_what_others_do_to_it_is_mended() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    place = ("Service", NAMESPACE, NAME)
    del operator.kube.objects[place]
    operator.admin.lead(CLUSTER, SECOND)
    await operator.follow_leaders(NAMESPACE, "demo")
    assert place not in operator.kube.objects, "the plan creates it"
    await operator.turn()
    assert await pointed(operator) == 1
    stale = operator.kube.objects[place]
    stale["spec"]["selector"] |= {"raptormq.io/member": "2"}
    operator.kube.put(stale)
    await operator.turn()
    assert await pointed(operator) == 1


async def test_a_restarted_operator_leaves_it_where_it_is_until_a_leader_is_heard() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    operator.admin.lead(CLUSTER, THIRD)
    await operator.follow_leaders(NAMESPACE, "demo")
    operator.leaders.forget(NAMESPACE, "demo")
    operator.admin.lead(CLUSTER, None)
    await operator.turn()
    assert await pointed(operator) == 2
    operator.admin.lead(CLUSTER, SECOND)
    await operator.turn()
    assert await pointed(operator) == 1


@pytest.mark.parametrize("error", [Invalid(403, "services are forbidden"), KubeError(0, "no answer")])
async def test_a_move_that_fails_is_told_and_tried_again(error: KubeError, caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    operator.admin.lead(CLUSTER, SECOND)
    operator.kube.refuse["Service"] = error
    assert await operator.follow_leaders(NAMESPACE, "demo") == SEEK_S
    assert str(error) in caplog.text
    if isinstance(error, Invalid):
        await operator.turn()
        assert (operator.ready["reason"], operator.ready["message"]) == ("ApplyRefused", str(error))
    operator.kube.refuse.clear()
    assert await operator.follow_leaders(NAMESPACE, "demo") == LOOK_S
    assert await pointed(operator) == 1


async def test_a_cluster_that_is_gone_or_has_no_copies_is_not_asked() -> None:
    operator = Operator()
    await operator.until_ready()
    assert await operator.follow_leaders(NAMESPACE, "demo") is None
    replicated = Operator(**SPEC)
    await replicated.until_ready()
    del replicated.kube.objects["BrokerCluster", NAMESPACE, "demo"]
    await replicated.turn()
    assert await replicated.follow_leaders(NAMESPACE, "demo") is None


async def test_many_groups_are_asked_less_often() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    for number in range(1000):
        operator.leaders.watch(replace(CLUSTER, name=f"other-{number}"))
    assert await operator.follow_leaders(NAMESPACE, "demo") == pytest.approx(1001 / 200)


async def test_a_leader_that_its_service_does_not_reach_is_in_the_message() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    for server, listing in operator.admin.listings.items():
        operator.admin.listings[server] = dict(listing) | {("demo", "broker-0", 0): FIRST.address}
    await operator.pulse()
    assert operator.ready["status"] == "True"
    assert operator.ready["message"].endswith("clients find the leader of broker-0 by their route, not by its Service")
    operator.admin.lead(CLUSTER, FIRST)
    await operator.pulse()
    assert operator.ready["message"].endswith("demo-broker-0-0 leads broker-0")
