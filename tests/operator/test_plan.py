"""`plan` as a whole: from any state, its steps lead safely to the wanted state, without changing foreign objects."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptormq_operator.differences import Difference, differences
from raptormq_operator.manifests.cluster_objects import Wanted, wanted
from raptormq_operator.manifests.metadata import Manifest, digest
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.plan import (
    Apply,
    Delete,
    Evict,
    Held,
    Key,
    Observed,
    Plan,
    Step,
    Transfer,
    in_words,
    key_of,
    plan,
)
from tests.operator.resources import SURROUNDINGS, cluster_body

MAX_ROUNDS = 60
NAME_SERVERS = "demo-namesrv"

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
    """The objects of a namespace, with a StatefulSet controller, and brokers that register when their pod and the name
    servers run. While the name servers are replaced, no broker is listed and none is ready, but all serve. The pod of a
    broker stays until it is evicted.
    """

    def __init__(self) -> None:
        self.objects: dict[Key, Manifest] = {}
        self.running: set[str] = set()
        self.revisions: dict[str, str] = {}
        """Templates of the running pods."""
        self.foreign: dict[Key, Manifest] = {}

    def occupy(self, key: Key) -> None:
        """Create a foreign object of this kind and name."""
        kind, name = key
        self.foreign[key] = self.objects[key] = {"kind": kind, "metadata": {"name": name, "uid": "foreign"}}

    def look(self, cluster: Cluster) -> Observed:
        brokers = frozenset(name for name in self.running if name != NAME_SERVERS)
        listed = brokers if NAME_SERVERS in self.running else frozenset()
        return Observed(cluster.uid, dict(self.objects), listed, brokers)

    def take(self, step: Step) -> None:
        if isinstance(step, Evict):
            self.go(step.stateful_set)
            return
        if isinstance(step, Delete):
            assert self.objects.pop((step.kind, step.name))["metadata"]["uid"] == step.uid
            if step.kind == "StatefulSet":
                self.running.discard(step.name)
            return
        assert isinstance(step, Apply)
        key = key_of(step.manifest)
        before = self.objects.get(key)
        after = copy.deepcopy(step.manifest)
        after["metadata"] |= {"uid": f"uid-{key}", "generation": before["metadata"]["generation"] + 1 if before else 1}
        after["status"] = copy.deepcopy(before["status"]) if before else {}
        self.objects[key] = after
        if key == ("StatefulSet", NAME_SERVERS):
            self.running.discard(NAME_SERVERS)
            for name in self.running:
                self.objects[("StatefulSet", name)]["status"]["availableReplicas"] = 0

    def go(self, name: str) -> None:
        """End the pod of a broker."""
        self.running.discard(name)
        self.objects[("StatefulSet", name)]["status"] |= dict.fromkeys(("replicas", "availableReplicas"), 0)

    def settle(self, name: str) -> None:
        """Run the controller and the pods of one StatefulSet."""
        workload = self.objects[("StatefulSet", name)]
        replicas = workload["spec"]["replicas"]
        revision = digest(workload["spec"]["template"])
        stays = name != NAME_SERVERS and name in self.running
        self.revisions[name] = self.revisions[name] if stays else revision
        workload["status"] = {
            "observedGeneration": workload["metadata"]["generation"],
            "updateRevision": revision,
            **dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), replicas),
            "updatedReplicas": replicas if self.revisions[name] == revision else 0,
        }
        self.running.add(name)
        if name == NAME_SERVERS:
            for each in self.running - {name}:
                self.settle(each)

    def unsettled(self) -> list[str]:
        return sorted(
            name
            for (kind, name) in self.objects
            if kind == "StatefulSet" and (kind, name) not in self.foreign
            if name not in self.running or not self.is_seen(kind, name)
        )

    def is_seen(self, kind: str, name: str) -> bool:
        """Return whether the controller has observed the last change."""
        workload = self.objects[(kind, name)]
        return bool(workload["status"].get("observedGeneration") == workload["metadata"]["generation"])


def reach(world: World, cluster: Cluster, faults: Sequence[int] = ()) -> Plan:
    """Plan and execute steps in rounds until the plan is empty.

    Each fault affects one round: the operator crashes after this number of steps, and only one pod starts.
    """
    objects, spoiled = wanted(cluster), list(faults)
    for _ in range(MAX_ROUNDS):
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
    pytest.fail(f"not complete after {MAX_ROUNDS} rounds, {len(now.steps)} steps left, waiting for {now.waiting}")


def check_safety(observed: Observed, objects: Wanted, now: Plan, world: World) -> None:
    touched = {_touched_by(step) for step in now.steps}
    assert touched.isdisjoint(world.foreign)
    brokers = {key_of(unit.objects[-1]) for unit in objects.brokers}
    serving = {key for key in brokers if key in observed.objects and key[1] in world.running}
    disturbed = {("StatefulSet", step.stateful_set) for step in now.steps if isinstance(step, Evict)} & serving
    assert len(disturbed) <= 1
    if disturbed:
        assert serving == brokers, "a serving broker was disturbed while another one was down"
        assert NAME_SERVERS in world.running, "a serving broker was disturbed while the name servers were down"
        assert ("StatefulSet", NAME_SERVERS) not in touched


def _touched_by(step: Step) -> Key:
    if isinstance(step, Apply):
        return key_of(step.manifest)
    return (step.kind, step.name) if isinstance(step, Delete) else ("StatefulSet", step.stateful_set)


@settings(max_examples=60, deadline=None)
@given(specs, fault_lists)
def test_it_converges_from_nothing_whatever_step_is_the_last_before_a_crash(
    spec: dict[str, Any], faults: list[int]
) -> None:
    world, cluster = World(), cluster_of(spec)
    assert reach(world, cluster, faults).done
    assert set(world.objects) == {key_of(manifest) for manifest in wanted(cluster).objects}


@settings(max_examples=60, deadline=None)
@given(specs, specs, fault_lists)
def test_it_converges_from_any_cluster_to_any_other(
    old: dict[str, Any], new: dict[str, Any], faults: list[int]
) -> None:
    world = World()
    reach(world, cluster_of(old))
    assert reach(world, cluster_of(new), faults).done
    objects = wanted(cluster_of(new)).objects
    assert not any(differences(world.objects[key_of(manifest)], manifest) for manifest in objects)
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
    for _ in range(20):
        steps = plan(world.look(cluster), wanted(cluster)).steps
        for step in steps:
            world.take(step)
        order += [step.manifest["metadata"]["name"] for step in steps if isinstance(step, Apply)]
        order += [f"evict {step.stateful_set}" for step in steps if isinstance(step, Evict)]
        for name in world.unsettled():
            world.settle(name)
    brokers = ["demo-broker-0-0", "demo-broker-1-0"]
    assert order == ["demo-namesrv", *(word for name in brokers for word in (name, f"evict {name}"))]


def written(world: World, cluster: Cluster) -> str:
    """A change is written, and the pod of the first broker waits for its eviction."""
    (step,) = plan(world.look(cluster), wanted(cluster)).steps
    assert isinstance(step, Apply)
    world.take(step)
    name: str = step.manifest["metadata"]["name"]
    world.settle(name)
    return name


def evicted_in(now: Plan) -> list[str]:
    return [step.stateful_set for step in now.steps if isinstance(step, Evict)]


def test_a_broker_is_not_evicted_for_its_change_while_another_one_is_away() -> None:
    world, _ = running(groups=3)
    cluster = cluster_of({"groups": 3, "scheduling": {"nodeSelector": {"disk": "ssd"}}})
    first = written(world, cluster)
    other = "demo-broker-2-0"
    world.go(other)
    now = plan(world.look(cluster), wanted(cluster))
    assert evicted_in(now) == []
    assert changed_in(now) == [other], "it is down, and the change may repair it"
    world.settle(other)
    world.take(now.steps[0])
    world.settle(other)
    assert evicted_in(plan(world.look(cluster), wanted(cluster))) == [first]


def test_a_broker_that_would_lose_its_claim_is_not_evicted_and_holds_up_nobody() -> None:
    world, _ = running(groups=2)
    cluster = cluster_of({"groups": 2, "scheduling": {"nodeSelector": {"disk": "ssd"}}})
    first = written(world, cluster)
    now = plan(replace(world.look(cluster), losing_claims=frozenset({first})), wanted(cluster))
    assert evicted_in(now) == []
    assert changed_in(now) == ["demo-broker-1-0"]
    assert now.held == (
        Held(
            first,
            "eviction of the pod from before the change",
            "its volume claim is being deleted, which completes when its pod ends",
        ),
    )
    world.go(first)  # only its controller can change this
    assert evicted_in(plan(replace(world.look(cluster), losing_claims=frozenset({first})), wanted(cluster))) == []


def test_whose_turn_has_begun_goes_on_before_the_next_one_is_changed() -> None:
    world, cluster = running(groups=3)
    workload = world.objects[("StatefulSet", "demo-broker-2-0")]
    workload["status"] |= {"updatedReplicas": 0, "updateRevision": "another"}
    other = cluster_of({"groups": 3, "scheduling": {"nodeSelector": {"disk": "ssd"}}})
    assert changed_in(plan(world.look(other), wanted(other))) == ["demo-broker-2-0"]
    now = plan(world.look(cluster), wanted(cluster))
    assert now.steps == (Evict("demo-broker-2-0", "another", workload["spec"]["selector"]["matchLabels"]),)


def changed_in(now: Plan) -> list[str]:
    return [
        name
        for kind, name in (key_of(step.manifest) for step in now.steps if isinstance(step, Apply))
        if kind == "StatefulSet"
    ]


@pytest.mark.parametrize("ready", [True, False])
def test_brokers_that_answer_are_changed_one_at_a_time_though_no_name_server_lists_them(ready: bool) -> None:
    world, _ = running(groups=3)
    cluster = cluster_of({"groups": 3, "flush": "SYNC"})
    names = sorted(world.running - {NAME_SERVERS})
    for name in names:
        world.objects[("StatefulSet", name)]["status"]["availableReplicas"] = int(ready)
    unlisted = Observed(cluster.uid, world.objects, answering=frozenset(names))
    assert changed_in(plan(unlisted, wanted(cluster))) == names[:1]


def test_nobody_is_changed_while_the_name_servers_are_not_there() -> None:
    world, _ = running(groups=3)
    cluster = cluster_of({"groups": 3, "flush": "SYNC"})
    brokers = frozenset(world.running - {NAME_SERVERS})
    world.objects[("StatefulSet", NAME_SERVERS)]["status"]["availableReplicas"] = 0
    assert changed_in(plan(Observed(cluster.uid, world.objects, answering=brokers), wanted(cluster))) == []


def test_brokers_that_answer_wait_while_one_is_made_anew() -> None:
    world, _ = running(groups=3)
    cluster = cluster_of({"groups": 3, "flush": "SYNC"})
    brokers = frozenset(world.running - {NAME_SERVERS})
    world.objects[("StatefulSet", "demo-broker-0-0")]["metadata"]["generation"] += (
        1  # no controller has observed it yet
    )
    assert changed_in(plan(Observed(cluster.uid, world.objects, answering=brokers), wanted(cluster))) == []


@pytest.mark.parametrize("kind", ["ConfigMap", "StatefulSet"])
def test_what_is_missing_of_a_broker_waits_for_nobody(kind: str) -> None:
    world, cluster = running(groups=2)
    lacks = (kind, "demo-broker-0-0")
    del world.objects[lacks]  # its pod continues as an orphan
    world.objects[("StatefulSet", NAME_SERVERS)]["status"]["availableReplicas"] = 0
    world.objects[("StatefulSet", "demo-broker-1-0")]["status"]["availableReplicas"] = 0
    other = cluster_of({"groups": 2, "image": "raptormq:2"})
    for wanted_now in (cluster, other):
        made = [step for step in plan(world.look(wanted_now), wanted(wanted_now)).steps if isinstance(step, Apply)]
        assert [key_of(step.manifest) for step in made if not step.exists] == [lacks]


def test_all_brokers_that_are_away_are_changed_at_once() -> None:
    world, _ = running(groups=3)
    cluster = cluster_of({"groups": 3, "flush": "SYNC"})
    names = sorted(world.running - {NAME_SERVERS})
    for name in names[:2]:
        world.objects[("StatefulSet", name)]["status"]["availableReplicas"] = 0
    only_one = frozenset(names[2:])
    assert changed_in(plan(Observed(cluster.uid, world.objects, only_one, only_one), wanted(cluster))) == names[:2]


def test_a_broker_waits_for_its_turn_while_another_one_is_not_listed() -> None:
    world, _ = running(groups=2)
    cluster = cluster_of({"groups": 2, "flush": "SYNC"})
    brokers = frozenset(world.running - {NAME_SERVERS})
    observed = Observed(cluster.uid, world.objects, frozenset({"demo-broker-0-0"}), brokers)
    now = plan(observed, wanted(cluster))
    changed = [step.manifest["metadata"]["name"] for step in now.steps if isinstance(step, Apply)]
    assert changed == ["demo-broker-1-0", "demo-broker-1-0"], "ConfigMap and StatefulSet of the one that is not listed"
    assert now.waiting == (), "its pod is running"


def test_scaling_the_name_servers_restarts_no_broker() -> None:
    world, _ = running(groups=2)
    cluster = cluster_of({"groups": 2, "nameServers": {"replicas": 3}})
    steps = plan(world.look(cluster), wanted(cluster)).steps
    assert [step.manifest["metadata"]["name"] for step in steps if isinstance(step, Apply)] == ["demo-namesrv"]


def test_who_waits_for_what_while_a_broker_cannot_come_back() -> None:
    world, _ = running(groups=3)
    cluster = cluster_of({"groups": 3, "image": "raptormq:next"})
    names = sorted(world.running - {NAME_SERVERS})
    steps = plan(world.look(cluster), wanted(cluster)).steps
    for step in steps:
        world.take(step)
    assert plan(world.look(cluster), wanted(cluster)).held == tuple(
        Held(name, "image raptormq:next", "demo-namesrv is not available") for name in names
    )
    world.settle(NAME_SERVERS)
    now = plan(world.look(cluster), wanted(cluster))
    assert [held.why for held in now.held] == [f"{names[0]} is changed first"] * 2
    for step in now.steps:
        world.take(step)
    world.settle(names[0])
    assert evicted_in(plan(world.look(cluster), wanted(cluster))) == names[:1]
    world.go(names[0])
    now = plan(world.look(cluster), wanted(cluster))
    assert now.steps == ()
    assert now.held == tuple(Held(name, "image raptormq:next", f"{names[0]} does not serve") for name in names[1:])
    assert now.updated == frozenset(), "the first one has no pod yet"
    assert reach(world, cluster).updated == frozenset(names)


def test_a_broker_whose_change_is_written_waits_for_its_eviction() -> None:
    world, _ = running(groups=2)
    cluster = cluster_of({"groups": 2, "scheduling": {"nodeSelector": {"disk": "ssd"}}})
    first = written(world, cluster)
    world.objects[("StatefulSet", NAME_SERVERS)]["status"]["availableReplicas"] = 0
    now = plan(world.look(cluster), wanted(cluster))
    assert (now.steps, now.held[0].broker, now.updated) == ((), first, frozenset())
    assert now.held[0].change == "eviction of the pod from before the change"


def test_name_servers_that_are_ready_serve_though_they_are_not_available_yet() -> None:
    """`minReadySeconds` applies to rolling updates."""
    world, cluster = running(groups=2)
    world.objects[("StatefulSet", NAME_SERVERS)]["status"]["availableReplicas"] = 0
    assert plan(world.look(cluster), wanted(cluster)).done
    changed = cluster_of({"groups": 2, "flush": "SYNC"})
    now = plan(world.look(changed), wanted(changed))
    assert changed_in(now) == []
    assert {held.why for held in now.held} == {"demo-namesrv is not available"}


def test_the_next_broker_is_changed_when_clients_know_the_address_of_the_one_before() -> None:
    """`minReadySeconds` applies again: a JVM uses the old address for some time."""
    world, _ = running(groups=2)
    cluster = cluster_of({"groups": 2, "scheduling": {"nodeSelector": {"disk": "ssd"}}})
    first, second = written(world, cluster), "demo-broker-1-0"
    world.go(first)
    world.settle(first)
    status = world.objects[("StatefulSet", first)]["status"]
    status["availableReplicas"] = 0
    now = plan(world.look(cluster), wanted(cluster))
    assert (now.steps, now.waiting) == ((), ())
    assert [(held.broker, held.why) for held in now.held] == [(second, f"{first} is not available to all clients")]
    status["availableReplicas"] = 1
    assert changed_in(plan(world.look(cluster), wanted(cluster))) == [second]


def test_brokers_of_a_new_cluster_are_not_made_anew_in_a_row() -> None:
    world, _ = running(groups=2)
    cluster = cluster_of({"groups": 2, "scheduling": {"nodeSelector": {"disk": "ssd"}}})
    first, second = "demo-broker-0-0", "demo-broker-1-0"
    for name in (first, second):
        world.objects[("StatefulSet", name)]["status"]["availableReplicas"] = 0
    assert changed_in(plan(world.look(cluster), wanted(cluster))) == []
    world.objects[("StatefulSet", second)]["status"]["availableReplicas"] = 1
    assert changed_in(plan(world.look(cluster), wanted(cluster))) == [first]


def test_a_difference_that_an_apply_does_not_change_holds_up_nobody() -> None:
    world, _ = running(groups=2)
    cluster = cluster_of({"groups": 2})
    key = ("Service", "demo-broker-0")
    world.objects[key]["spec"]["selector"]["theirs"] = "x"
    now = plan(world.look(cluster), wanted(cluster))
    (step,) = now.steps
    assert isinstance(step, Apply)
    assert [difference.field for difference in step.differences] == ["spec.selector"]
    seen = world.look(cluster)
    assert plan(
        Observed(cluster.uid, seen.objects, seen.registered, seen.answering, {key: step.differences}), wanted(cluster)
    ).done
    contested = Observed(cluster.uid, seen.objects, seen.registered, seen.answering, {}, {key: step.differences})
    now = plan(contested, wanted(cluster))
    assert (now.steps, len(now.staying)) == ((), 1)
    assert now.staying[0].startswith("Service demo-broker-0: spec.selector is ")


def test_changes_in_words() -> None:
    broker = "spec.template.spec.containers[name=broker]"
    fields = [
        "data.broker.conf",
        "metadata.annotations.raptormq.io/manifest-hash",
        f"{broker}.image",
        f"{broker}.resources.limits.memory",
        "spec.template.spec.tolerations",
    ]
    found = [Difference(field, '"a"', '"b"') for field in fields]
    assert in_words(found) == "configuration, image b, resources.limits.memory, tolerations"
    assert in_words(found[1:2]) == "fields that are no longer wanted"
    many = [Difference(f"spec.f{number}", "1", "2") for number in range(7)]
    assert in_words(many) == "f0, f1, f2, f3, f4, 2 more fields"


# --- Dledger groups ---

QUORUM = 2


class Groups(World):
    """Brokers of Dledger groups of three. A group has a leader while a quorum of its members runs."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders: dict[str, str] = {}
        self.unreplicated: set[str] = set()
        """Brokers whose pod was created before they became members."""

    def members(self, group: str) -> set[str]:
        """Return the names of the running members of a group."""
        return {name for name in self.running if name.rpartition("-")[0] == group and name not in self.unreplicated}

    def look(self, cluster: Cluster) -> Observed:
        restartable = set(self.unreplicated)
        for group in {member.name.rpartition("-")[0] for member in cluster.members}:
            serving = self.members(group)
            if len(serving) < QUORUM:
                self.leaders.pop(group, None)
            elif self.leaders.get(group) not in serving:
                self.leaders[group] = max(serving)
            restartable |= {name for name in serving if len(serving - {name}) >= QUORUM}
            for name in serving if group not in self.leaders else ():
                self.objects[("StatefulSet", name)]["status"] |= {"availableReplicas": 0, "readyReplicas": 0}
        return replace(
            super().look(cluster), restartable=frozenset(restartable), leaders=frozenset(self.leaders.values())
        )

    def take(self, step: Step) -> None:
        if isinstance(step, Transfer):
            group = step.stateful_set.rpartition("-")[0]
            self.leaders[group] = min(self.members(group) - {step.stateful_set})
        else:
            super().take(step)

    def go(self, name: str) -> None:
        self.unreplicated.discard(name)
        super().go(name)


def check_quorum(observed: Observed, now: Plan, world: Groups) -> None:
    """Check that at most one serving member of the cluster is disturbed, never a leader, and that its group keeps a
    quorum.
    """
    evicted = [name for name in evicted_in(now) if name in world.running]
    assert len(evicted) <= 1
    for name in evicted:
        assert name not in observed.leaders
        assert name in world.unreplicated or len(world.members(name.rpartition("-")[0]) - {name}) >= QUORUM


def reach_with_copies(world: Groups, cluster: Cluster, faults: Sequence[int] = ()) -> list[Step]:
    """`reach` for Dledger groups. Return all executed steps."""
    objects, spoiled, taken = wanted(cluster), list(faults), []
    for _ in range(2 * MAX_ROUNDS):
        observed = world.look(cluster)
        now = plan(observed, objects)
        check_quorum(observed, now, world)
        fault = spoiled.pop() if spoiled else None
        for step in now.steps[:fault]:
            world.take(step)
            taken.append(step)
        waiting = world.unsettled()
        for name in waiting if fault is None else waiting[fault % (len(waiting) or 1) :][:1]:
            world.settle(name)
        world.look(cluster)
        for group, leader in world.leaders.items():
            for name in world.members(group) if leader else ():
                world.settle(name)
        if fault is None and not now.steps and not waiting and now.done:
            return taken
    pytest.fail(f"not complete, {len(now.steps)} steps left, waiting for {now.waiting}, held {now.held}")


REPLICATED = {"groups": 2, "replicas": 3, "replication": {"mode": "dledger"}}


def test_followers_are_changed_first_and_the_leader_after_it_has_handed_over() -> None:
    world = Groups()
    reach_with_copies(world, cluster_of(REPLICATED))
    leaders = dict(world.leaders)
    taken = reach_with_copies(world, cluster_of(REPLICATED | {"flush": "SYNC"}))
    order = [step.stateful_set for step in taken if isinstance(step, Evict)]
    assert sorted(order) == [f"demo-broker-{group}-{index}" for group in range(2) for index in range(3)]
    for group, leader in leaders.items():
        assert [name for name in order if name.startswith(group)][-1] == leader
        assert Transfer(leader) in taken


@settings(max_examples=40, deadline=None)
@given(fault_lists, st.sampled_from(["ASYNC", "SYNC"]), st.sampled_from([{}, {"fileReservedTime": "48"}]))
def test_groups_keep_a_quorum_whatever_step_is_the_last_before_a_crash(
    faults: list[int], flush: str, config: dict[str, str]
) -> None:
    world = Groups()
    reach_with_copies(world, cluster_of(REPLICATED))
    cluster = cluster_of(REPLICATED | {"flush": flush, "config": config, "image": "raptormq:next"})
    reach_with_copies(world, cluster, faults)
    assert not any(differences(world.objects[key_of(manifest)], manifest) for manifest in wanted(cluster).objects)


def test_a_member_without_which_its_group_has_no_quorum_waits_and_says_why() -> None:
    world = Groups()
    reach_with_copies(world, cluster_of(REPLICATED))
    world.go("demo-broker-0-0")
    cluster = cluster_of(REPLICATED | {"flush": "SYNC"})
    now = plan(world.look(cluster), wanted(cluster))
    assert changed_in(now) == ["demo-broker-0-0", "demo-broker-1-0"], "the first is down, and the change may repair it"
    held = {each.broker: each.why for each in now.held}
    assert held["demo-broker-0-1"] == "demo-broker-0-0, demo-broker-1-0 is changed first"
    world.take(now.steps[0])


def test_a_broker_without_copies_becomes_the_first_member_while_the_others_wait_for_it() -> None:
    world = Groups()
    reach(world, cluster_of({"groups": 1}))
    world.unreplicated = {"demo-broker-0-0"}
    taken = reach_with_copies(world, cluster_of(REPLICATED | {"groups": 1}))
    assert [step.stateful_set for step in taken if isinstance(step, Evict)] == ["demo-broker-0-0"]
    assert world.members("demo-broker-0") == {f"demo-broker-0-{index}" for index in range(3)}


def test_a_member_waits_until_all_clients_know_the_address_of_the_one_before() -> None:
    world = Groups()
    reach_with_copies(world, cluster_of(REPLICATED))
    cluster = cluster_of(REPLICATED | {"flush": "SYNC"})
    first = plan(world.look(cluster), wanted(cluster))
    (changed,) = changed_in(first)
    for step in first.steps:
        world.take(step)
    world.go(changed)
    world.settle(changed)
    world.objects[("StatefulSet", changed)]["status"]["availableReplicas"] = 0
    now = plan(world.look(cluster), wanted(cluster))
    assert (changed_in(now), evicted_in(now)) == ([], [])
    assert {each.why for each in now.held} == {f"{changed} is not available to all clients"}
    world.settle(changed)
    assert changed_in(plan(world.look(cluster), wanted(cluster))) != []
