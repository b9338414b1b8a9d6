"""Placement of the brokers of the interleaved layout by a scheduler that applies only the rules in their pods."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from tests.operator.resources import SURROUNDINGS, cluster_body

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LAYOUT = {"mode": "masterSlave", "layout": "Interleaved"}


def cluster_of(groups: int, replicas: int, **spec: Any) -> Cluster:
    wants: dict[str, Any] = {"groups": groups, "replicas": replicas, "replication": LAYOUT} | spec
    return Cluster.from_object(cluster_body(**wants), SURROUNDINGS)


def pods_of(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]
        for each in wanted(cluster).objects
        if each["kind"] == "StatefulSet" and "-broker-" in each["metadata"]["name"]
    }


def matches(term: dict[str, Any], labels: dict[str, str]) -> bool:
    selector = term["labelSelector"]
    (expression,) = selector["matchExpressions"]
    is_in = labels.get(expression["key"]) in expression["values"]
    return selector["matchLabels"].items() <= labels.items() and is_in is (expression["operator"] == "In")


def nodes_for(pod: dict[str, Any], placed: dict[str, int], pods: dict[str, dict[str, Any]], nodes: int) -> list[int]:
    """Return the nodes that the required rules of a pod permit, like the scheduler."""
    affinity = pod["spec"]["affinity"]
    ((near,), (far,)) = (affinity[kind][REQUIRED] for kind in ("podAffinity", "podAntiAffinity"))
    by_node = {
        node: [pods[name]["metadata"]["labels"] for name, at in placed.items() if at == node] for node in range(nodes)
    }
    left = [node for node, there in by_node.items() if not any(matches(far, labels) for labels in there)]
    if any(matches(near, labels) for there in by_node.values() for labels in there):
        return [node for node in left if any(matches(near, labels) for labels in by_node[node])]
    assert matches(near, pod["metadata"]["labels"]), "the first one may be placed on a node without one of its kind"
    return left


@given(st.data())
def test_every_order_and_choice_of_a_scheduler_gives_the_layout(data: st.DataObject) -> None:
    groups = data.draw(st.integers(2, 5))
    replicas = data.draw(st.integers(2, min(groups, 3)))
    nodes = data.draw(st.integers(groups, groups + 2))
    cluster = cluster_of(groups, replicas)
    pods = pods_of(cluster)
    placed: dict[str, int] = {}
    for name in data.draw(st.permutations(sorted(pods))):
        placed[name] = data.draw(st.sampled_from(nodes_for(pods[name], placed, pods, nodes)))
    for node in set(placed.values()):
        here = [member for member in cluster.members if placed[member.name] == node]
        assert sum(member.index == 0 for member in here) == 1, "each node has one master"
        assert len({member.group for member in here}) == len(here) == replicas, "no node has two members of a group"
    taken_away = data.draw(st.sampled_from(sorted(pods)))
    before = placed.pop(taken_away)
    assert nodes_for(pods[taken_away], placed, pods, nodes) == [before], "it returns to its node"


def test_three_groups_have_the_published_layout_and_no_other_rule_contradicts_it() -> None:
    cluster = cluster_of(3, 2, storage={"local": True, "size": "1Gi", "whenDeleted": "Retain"})
    slots: dict[str, list[str]] = {}
    for name, pod in pods_of(cluster).items():
        slots.setdefault(pod["metadata"]["labels"][names.SLOT_LABEL], []).append(name)
        assert "topologySpreadConstraints" not in pod["spec"]
    assert slots == {
        "0": ["demo-broker-0-0", "demo-broker-2-1"],
        "1": ["demo-broker-0-1", "demo-broker-1-0"],
        "2": ["demo-broker-1-1", "demo-broker-2-0"],
    }


def test_the_affinity_of_the_user_stays() -> None:
    own = {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}, "nodeAffinity": {"x": 1}}
    pod = pods_of(cluster_of(2, 2, scheduling={"affinity": own}))["demo-broker-0-0"]
    affinity = pod["spec"]["affinity"]
    assert affinity["nodeAffinity"] == {"x": 1}
    assert affinity["podAffinity"][REQUIRED][0] == {"topologyKey": "zone"}
    assert len(affinity["podAffinity"][REQUIRED]) == 2
