"""Members of different groups that have the same index prefer different nodes, without moving pods that exist."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from tests.operator.resources import SURROUNDINGS, cluster_body
from tests.operator.test_reconcile_cluster import Operator

MODES = ("dledger", "masterSlave")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def spec(mode: str, **more: Any) -> dict[str, Any]:
    return {"groups": 3, "replicas": 3, "replication": {"mode": mode}, **more}


def brokers(cluster: Cluster, **options: Any) -> dict[str, Manifest]:
    """Return the StatefulSets of brokers by name."""
    return {unit.objects[-1]["metadata"]["name"]: unit.objects[-1] for unit in wanted(cluster, **options).brokers}


def slots(workloads: dict[str, Manifest]) -> list[str | None]:
    return [each["spec"]["template"]["metadata"]["labels"].get(names.SLOT_LABEL) for each in workloads.values()]


def terms(workload: Manifest) -> list[tuple[int, dict[str, Any]]]:
    """Return weight and label selector of the preferences."""
    anti = workload["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    return [(each["weight"], each["podAffinityTerm"]["labelSelector"]) for each in anti[PREFERRED]]


def without_slots(workload: Manifest) -> None:
    """Make of a StatefulSet one that an earlier operator created."""
    template = workload["spec"]["template"]
    template["metadata"]["labels"].pop(names.SLOT_LABEL)
    del template["spec"]["affinity"]["podAntiAffinity"][PREFERRED][1:]


@pytest.mark.parametrize("mode", MODES)
def test_members_of_other_groups_are_rotated_over_slots(mode: str) -> None:
    cluster = Cluster.from_object(cluster_body(**spec(mode)), SURROUNDINGS)
    found = brokers(cluster)
    assert slots(found) == ["0", "1", "2", "1", "2", "0", "2", "0", "1"]
    (group, of_group), (index, same_index), (slot, others) = terms(found["demo-broker-1-2"])
    assert group > index > slot, "the loss of a node must not take two members of a group"
    assert of_group["matchLabels"] == names.broker_labels("demo", 1)
    assert same_index["matchLabels"] == names.broker_labels("demo") | {names.MEMBER_LABEL: "2"}
    assert others["matchExpressions"] == [
        {"key": names.SLOT_LABEL, "operator": "Exists"},
        {"key": names.SLOT_LABEL, "operator": "NotIn", "values": ["0"]},
    ]


def test_slots_are_not_part_of_what_cannot_be_changed() -> None:
    cluster = Cluster.from_object(cluster_body(**spec("dledger")), SURROUNDINGS)
    for workload in brokers(cluster).values():
        assert names.SLOT_LABEL not in workload["spec"]["selector"]["matchLabels"]


def test_brokers_without_replicas_have_no_slot() -> None:
    cluster = Cluster.from_object(cluster_body(groups=3), SURROUNDINGS)
    assert slots(brokers(cluster)) == [None, None, None]


@pytest.mark.parametrize("mode", MODES)
def test_stateful_set_of_an_earlier_operator_is_wanted_as_it_is(mode: str) -> None:
    cluster = Cluster.from_object(cluster_body(**spec(mode)), SURROUNDINGS)
    existing = brokers(cluster)
    del existing["demo-broker-2-1"]
    for workload in existing.values():
        without_slots(workload)
    found = brokers(cluster, workloads=existing)
    assert [name for name, slot in zip(found, slots(found), strict=True) if slot] == ["demo-broker-2-1"]
    for name, workload in existing.items():
        assert found[name]["spec"] == workload["spec"]


async def test_new_operator_restarts_no_pod_of_a_cluster_of_an_earlier_one() -> None:
    operator = Operator(**spec("dledger", groups=1))
    with patch("raptormq_operator.manifests.broker.slots", _no_slots):
        await operator.until_ready()
    operator.kube.writes.clear()
    await operator.turn()
    assert operator.ready["status"] == "True"
    assert [write for write in operator.kube.writes if write[0] == "apply"] == []


def _no_slots(cluster: Cluster, _: object) -> dict[str, int | None]:
    """Return the slots that an earlier operator gave."""
    return dict.fromkeys(member.name for member in cluster.members)


def test_existing_members_keep_their_slots_while_a_group_grows() -> None:
    three = Cluster.from_object(cluster_body(**spec("dledger")), SURROUNDINGS)
    existing = brokers(three)
    five = Cluster.from_object(cluster_body(**spec("dledger", replicas=5)), SURROUNDINGS)
    found = brokers(five, workloads=existing)
    assert {name: slot for name, slot in zip(found, slots(found), strict=True) if name in existing} == dict(
        zip(existing, slots(existing), strict=True)
    )
    assert len(found) == 15
