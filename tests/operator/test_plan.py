"""`plan` as a whole: whatever there is, its steps lead to what is wanted, safely, and past every foreign object."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptormq_operator.covers import covers
from raptormq_operator.manifests.cluster_objects import Wanted, wanted
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.plan import Apply, Delete, Key, Observed, Plan, key_of, plan
from tests.operator.resources import SURROUNDINGS, cluster_body

ROUNDS_MAX = 60

specs = st.fixed_dictionaries(
    {
        "groups": st.integers(1, 3),
        "nameServers": st.fixed_dictionaries({"replicas": st.integers(1, 3)}),
        "flush": st.sampled_from(["ASYNC", "SYNC"]),
        "image": st.sampled_from(["raptormq:1", "raptormq:2"]),
        "config": st.dictionaries(st.sampled_from(["fileReservedTime", "maxMessageSize"]), st.just("48")),
        "scheduling": st.sampled_from([{}, {"nodeSelector": {"disk": "ssd"}}]),
    }
)

fault_lists = st.lists(st.integers(0, 12), max_size=8)


def cluster_of(spec: dict[str, Any]) -> Cluster:
    return Cluster.from_object(cluster_body(**spec), SURROUNDINGS)


class World:
    """The objects of a namespace, with a StatefulSet controller and brokers that register when their pod runs."""

    def __init__(self) -> None:
        self.objects: dict[Key, Manifest] = {}
        self.registered: set[str] = set()
        self.foreign: dict[Key, Manifest] = {}

    def occupy(self, key: Key) -> None:
        """Someone else has an object of that kind and name."""
        kind, name = key
        self.foreign[key] = self.objects[key] = {"kind": kind, "metadata": {"name": name, "uid": "foreign"}}

    def look(self, cluster: Cluster) -> Observed:
        return Observed(cluster.uid, dict(self.objects), frozenset(self.registered))

    def take(self, step: Apply | Delete) -> None:
        if isinstance(step, Delete):
            assert self.objects.pop((step.kind, step.name))["metadata"]["uid"] == step.uid
            return
        key = key_of(step.manifest)
        before = self.objects.get(key)
        after = copy.deepcopy(step.manifest)
        after["metadata"] |= {"uid": f"uid-{key}", "generation": before["metadata"]["generation"] + 1 if before else 1}
        after["status"] = copy.deepcopy(before["status"]) if before else {}
        self.objects[key] = after
        if key[0] == "StatefulSet":
            self.registered.discard(key[1])

    def settle(self, name: str) -> None:
        """The controller and the pods of one StatefulSet do their work."""
        workload = self.objects[("StatefulSet", name)]
        replicas = workload["spec"]["replicas"]
        workload["status"] = {
            "observedGeneration": workload["metadata"]["generation"],
            **dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), replicas),
        }
        self.registered.add(name)

    def unsettled(self) -> list[str]:
        return sorted(
            name
            for (kind, name), workload in self.objects.items()
            if kind == "StatefulSet" and (kind, name) not in self.foreign and name not in self.registered
        )


def reach(world: World, cluster: Cluster, faults: Sequence[int] = ()) -> Plan:
    """Plans and takes the steps, round by round, until nothing is left.

    Each fault spoils one round: so many steps are taken before the operator crashes, and only one pod comes up.
    """
    objects, spoiled = wanted(cluster), list(faults)
    for _ in range(ROUNDS_MAX):
        observed = world.look(cluster)
        now = plan(observed, objects)
        check_safety(observed, objects, now, world)
        fault = spoiled.pop() if spoiled else None
        for step in now.steps[:fault]:
            world.take(step)
        waiting = world.unsettled()
        for name in waiting if fault is None else waiting[fault % (len(waiting) or 1) :][:1]:
            world.settle(name)
        if fault is None and not now.steps and not waiting:
            return now
    pytest.fail(f"not there after {ROUNDS_MAX} rounds, {len(now.steps)} steps left, waiting for {now.waiting}")


def check_safety(observed: Observed, objects: Wanted, now: Plan, world: World) -> None:
    touched = {key_of(step.manifest) if isinstance(step, Apply) else (step.kind, step.name) for step in now.steps}
    assert touched.isdisjoint(world.foreign)
    brokers = {key_of(unit.objects[-1]) for unit in objects.brokers}
    available = {key for key in brokers if key in observed.objects and key[1] in observed.registered}
    disturbed = touched & available
    assert len(disturbed) <= 1
    if disturbed:
        assert available == brokers, "a serving broker was disturbed while another one was away"
        assert ("StatefulSet", objects.name_servers.objects[-1]["metadata"]["name"]) not in touched


@settings(max_examples=60, deadline=None)
@given(specs, fault_lists)
def test_it_converges_from_nothing_whatever_step_is_the_last_before_a_crash(
    spec: dict[str, Any], faults: list[int]
) -> None:
    world, cluster = World(), cluster_of(spec)
    assert reach(world, cluster, faults) == Plan((), (), ())
    assert set(world.objects) == {key_of(manifest) for manifest in wanted(cluster).objects}


@settings(max_examples=60, deadline=None)
@given(specs, specs, fault_lists)
def test_it_converges_from_any_cluster_to_any_other(
    old: dict[str, Any], new: dict[str, Any], faults: list[int]
) -> None:
    world = World()
    reach(world, cluster_of(old))
    assert reach(world, cluster_of(new), faults) == Plan((), (), ())
    objects = wanted(cluster_of(new)).objects
    assert all(covers(world.objects[key_of(manifest)], manifest) for manifest in objects)
    assert set(world.objects) == {key_of(manifest) for manifest in objects}


@settings(max_examples=40, deadline=None)
@given(specs, st.data())
def test_it_never_touches_a_foreign_object_and_does_all_the_rest(spec: dict[str, Any], data: st.DataObject) -> None:
    world, cluster = World(), cluster_of(spec)
    keys = [key_of(manifest) for manifest in wanted(cluster).objects]
    for key in data.draw(st.sets(st.sampled_from(keys), min_size=1, max_size=3)):
        world.occupy(key)
    taken = copy.deepcopy(world.foreign)
    end = reach(world, cluster, data.draw(fault_lists))
    assert {tuple(conflict.split(" ")) for conflict in end.conflicts} == set(taken)
    assert {key: world.objects[key] for key in taken} == taken


@settings(max_examples=40, deadline=None)
@given(specs, specs)
def test_steps_that_were_taken_are_not_planned_again(old: dict[str, Any], new: dict[str, Any]) -> None:
    world = World()
    reach(world, cluster_of(old))
    first = plan(world.look(cluster_of(new)), wanted(cluster_of(new)))
    for step in first.steps:
        world.take(step)
    again = plan(world.look(cluster_of(new)), wanted(cluster_of(new)))
    assert [step for step in again.steps if step in first.steps] == []


def running(**spec: Any) -> tuple[World, Cluster]:
    world, cluster = World(), cluster_of(spec)
    reach(world, cluster)
    return world, cluster


def test_a_changed_image_rolls_the_name_servers_then_one_broker_at_a_time() -> None:
    world, _ = running(groups=2)
    cluster = cluster_of({"groups": 2, "image": "raptormq:next"})
    order: list[str] = []
    for _ in range(10):
        steps = plan(world.look(cluster), wanted(cluster)).steps
        for step in steps:
            world.take(step)
        order += [step.manifest["metadata"]["name"] for step in steps if isinstance(step, Apply)]
        for name in world.unsettled():
            world.settle(name)
    assert order == ["demo-namesrv", "demo-broker-0-0", "demo-broker-1-0"]


def test_a_broker_waits_for_its_turn_while_another_one_is_not_listed() -> None:
    world, _ = running(groups=2)
    world.registered.discard("demo-broker-1-0")
    cluster = cluster_of({"groups": 2, "flush": "SYNC"})
    now = plan(world.look(cluster), wanted(cluster))
    changed = [step.manifest["metadata"]["name"] for step in now.steps if isinstance(step, Apply)]
    assert changed == ["demo-broker-1-0", "demo-broker-1-0"], "ConfigMap and StatefulSet of the one that is away"
    assert now.waiting == (), "its pod runs"


def test_scaling_the_name_servers_restarts_no_broker() -> None:
    world, _ = running(groups=2)
    cluster = cluster_of({"groups": 2, "nameServers": {"replicas": 3}})
    steps = plan(world.look(cluster), wanted(cluster)).steps
    assert [step.manifest["metadata"]["name"] for step in steps if isinstance(step, Apply)] == ["demo-namesrv"]
