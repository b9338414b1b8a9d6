"""Access control and TLS of running clusters are changed, and all running servers accept each other at every time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model.cluster import AccessControl, Cluster, Tls
from raptormq_operator.model.peer_security import PeerSecurity
from raptormq_operator.plan import Observed
from raptormq_operator.security_change import decide
from tests.operator.dledger_world import DledgerGroup
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body

ON = {"enabled": True, "authorization": True}
OFF = ON | {"enabled": False}
OTHER_USER = ON | {"operatorSecretName": "other"}


def tls(mode: str, secret: str = "certificate", auth: str = "none") -> dict[str, str]:
    return {"secretName": secret, "mode": mode, "clientAuth": auth}


SPECS = st.fixed_dictionaries(
    {
        "accessControl": st.sampled_from([ON, OFF, OTHER_USER]),
        "tls": st.sampled_from(
            [
                None,
                tls("permissive"),
                tls("enforcing"),
                tls("enforcing", auth="require"),
                tls("permissive", "renewed", "require"),
                tls("enforcing", "renewed", "require"),
            ]
        ),
    }
)


def changing(group: DledgerGroup) -> bool:
    """Return whether the condition is set."""
    return any(condition["type"] == "SecurityChanging" for condition in group.status["conditions"])


def securities(group: DledgerGroup) -> set[PeerSecurity]:
    return {pod.security for pod in group.pods.values()}


async def phases(group: DledgerGroup, **spec: Any) -> list[set[PeerSecurity]]:
    """Change the spec. Return the settings of the running brokers, for each time at which they changed."""
    group.change_spec(**spec)
    seen: list[set[PeerSecurity]] = []
    for _ in range(80):
        await group.turn()
        group.controllers()
        now = securities(group)
        if not seen or seen[-1] != now:
            seen.append(now)
        assert changing(group) or not any(each.in_transition for each in now)
        if group.ready["reason"] == "Ready":
            return seen
    raise AssertionError(group.ready)


KEYS = AccessControl(True, True, "demo-admin", "demo-operator")
OTHER_KEYS = AccessControl(True, True, "demo-admin", "other")
NONE = PeerSecurity()
SIGNED = PeerSecurity(access=KEYS)
BOTH = PeerSecurity(Tls("certificate", "permissive"))
ENFORCED = PeerSecurity(Tls("certificate", "enforcing"))


@pytest.mark.crossing("operator", "dledger", "access-control")
@pytest.mark.crossing("operator", "dledger", "tls")
@pytest.mark.parametrize("start_steps", [0, 1, 3])
@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ({}, {"accessControl": ON}, [NONE, SIGNED.opened, SIGNED]),
        ({"accessControl": ON}, {"accessControl": OFF}, [SIGNED, SIGNED.opened, NONE]),
        (
            {"accessControl": ON},
            {"accessControl": OTHER_USER},
            [
                SIGNED,
                SIGNED.opened,
                PeerSecurity(access=OTHER_KEYS, in_transition=True),
                PeerSecurity(access=OTHER_KEYS),
            ],
        ),
        ({}, {"tls": tls("permissive")}, [NONE, BOTH.opened, BOTH]),
        ({}, {"tls": tls("enforcing")}, [NONE, ENFORCED.opened, ENFORCED]),
        ({"tls": tls("enforcing")}, {"tls": None}, [ENFORCED, ENFORCED.opened, NONE]),
        ({"tls": tls("permissive")}, {"tls": tls("enforcing")}, [BOTH, ENFORCED]),
        ({"tls": tls("enforcing")}, {"tls": tls("permissive")}, [ENFORCED, BOTH]),
    ],
)
async def test_brokers_get_new_settings_in_the_phases_that_their_peers_need(
    before: dict[str, Any], after: dict[str, Any], steps: list[PeerSecurity], start_steps: int
) -> None:
    group = DledgerGroup(**before)
    group.start_steps = start_steps
    await group.until()
    seen = await phases(group, **after)
    assert [each for each in seen if len(each) == 1] == [{step} for step in steps]
    assert all(each == {first, second} for each, first, second in zip(seen[1::2], steps, steps[1:], strict=False))
    assert not changing(group)


@settings(max_examples=12, deadline=None)
@given(before=SPECS, interrupted=SPECS, after=SPECS, turns=st.integers(1, 8), start_steps=st.integers(0, 3))
def test_running_servers_accept_each_other_whatever_is_changed_and_when(
    before: dict[str, Any], interrupted: dict[str, Any], after: dict[str, Any], turns: int, start_steps: int
) -> None:
    asyncio.run(change_twice(before, interrupted, after, turns, start_steps))


async def change_twice(
    before: dict[str, Any], interrupted: dict[str, Any], after: dict[str, Any], turns: int, start_steps: int
) -> None:
    """Change the spec again some steps after the first change, with another process of the operator."""
    group = DledgerGroup(**{name: value for name, value in before.items() if value is not None})
    group.start_steps = start_steps
    await group.until()
    group.change_spec(**interrupted)
    for _ in range(turns):
        await group.turn()
        group.controllers()
    group.renew()
    group.change_spec(**after)
    await group.until()
    (security,) = securities(group)
    assert not security.in_transition
    body = group.kube.objects["BrokerCluster", NAMESPACE, "demo"]
    assert security == PeerSecurity.of_spec(Cluster.from_object(body, SURROUNDINGS))
    assert not changing(group)


async def test_the_change_waits_while_a_member_is_down_and_its_group_needs_the_others() -> None:
    group = DledgerGroup()
    await group.until()
    group.down = {2}
    group.change_spec(accessControl=ON)
    for _ in range(20):
        await group.turn()
        group.controllers()
    assert group.ready["status"] == "False"
    group.down = set()
    await group.until()
    assert securities(group) == {SIGNED}


async def test_brokers_of_an_image_without_the_setting_keep_their_settings() -> None:
    group = DledgerGroup(accessControl=ON)
    await group.until()
    group.admin.complaint = "setting peerSecurityTransition is unknown and is ignored"
    group.change_spec(accessControl=OFF)
    for _ in range(20):
        await group.turn()
        group.controllers()
    assert securities(group) <= {SIGNED, SIGNED.opened}
    assert group.ready["status"] == "False"
    assert "does not know peerSecurityTransition" in group.ready["message"]


def observed(*brokers: tuple[PeerSecurity, bool, bool]) -> tuple[Cluster, Observed]:
    """Return a cluster whose access control is being disabled, and its brokers: the settings of each, whether its pod
    has them, and whether it responds.
    """
    spec: dict[str, Any] = {"replicas": 3, "replication": {"mode": "dledger"}, "accessControl": OFF}
    cluster = Cluster.from_object(cluster_body(**spec), SURROUNDINGS)
    members = cluster.members
    configured = {member.name: security for member, (security, _, _) in zip(members, brokers, strict=True)}
    objects = {}
    for manifest in wanted(cluster, brokers=configured).objects:
        objects[manifest["kind"], manifest["metadata"]["name"]] = manifest
    for member, (_, runs_it, responds) in zip(members, brokers, strict=True):
        workload = objects["StatefulSet", member.name]
        workload["metadata"]["generation"] = 1
        available = int(runs_it and responds)
        workload["status"] = {
            "observedGeneration": 1,
            "replicas": 1,
            "updatedReplicas": int(runs_it),
            "availableReplicas": available,
        }
    answering = frozenset(member.name for member, (_, _, responds) in zip(members, brokers, strict=True) if responds)
    return cluster, Observed(cluster.uid, objects, answering=answering)


def test_a_broker_that_restarts_keeps_its_settings_while_another_is_changed() -> None:
    """Otherwise both are changed back and forth for ever."""
    cluster, seen = observed((SIGNED, True, True), (SIGNED.opened, True, False), (SIGNED.opened, False, True))
    targets = decide(cluster, seen).brokers
    assert [targets[member.name] for member in cluster.members] == [SIGNED, SIGNED.opened, SIGNED.opened]


def test_a_broker_that_restarts_keeps_its_settings_while_the_phase_lasts() -> None:
    cluster, seen = observed((SIGNED, True, True), (SIGNED.opened, True, False), (SIGNED, True, True))
    targets = decide(cluster, seen).brokers
    assert {targets[member.name] for member in cluster.members} == {SIGNED.opened}
