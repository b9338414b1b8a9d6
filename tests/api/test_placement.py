"""Where the scheduler of Kubernetes places the members of groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model.cluster import Cluster, Member
from tests.api.control_plane import ControlPlane
from tests.api.operator_process import until
from tests.operator.resources import SURROUNDINGS, cluster_body

NODES = ("first", "second", "third")
CANARY = "canary"


def pods_of(cluster: Cluster) -> dict[Member, Manifest]:
    """Return the pods that the controller of StatefulSets would create, without volumes."""
    found = {}
    for member, unit in zip(cluster.members, wanted(cluster).brokers, strict=True):
        template = unit.objects[-1]["spec"]["template"]
        containers = [{**each, "volumeMounts": []} for each in template["spec"]["containers"]]
        spec = {**template["spec"], "containers": containers, "volumes": []}
        metadata = {**template["metadata"], "name": member.name}
        found[member] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return found


@pytest.fixture(scope="module")
def scheduling_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with a scheduler and three nodes."""
    with ControlPlane(tmp_path_factory.mktemp("scheduling")) as plane:
        plane.schedule_on(*NODES)
        yield plane


def nodes_of(plane: ControlPlane, place: str) -> dict[str, str]:
    """Return the node of each pod that has one."""
    items: list[dict[str, Any]] = plane.request("GET", place)["items"]
    return {item["metadata"]["name"]: item["spec"]["nodeName"] for item in items if "nodeName" in item["spec"]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mode", "local"), [("dledger", True), ("masterSlave", False)])
async def test_each_node_has_a_member_of_each_group_and_of_each_index(
    scheduling_plane: ControlPlane, mode: str, *, local: bool
) -> None:
    storage = {"local": local, "size": "1Gi"}
    body = cluster_body(groups=3, replicas=3, replication={"mode": mode}, storage=storage)
    pods = pods_of(Cluster.from_object(body, SURROUNDINGS))
    namespace = mode.lower()
    scheduling_plane.namespace(namespace)
    place = f"/api/v1/namespaces/{namespace}/pods"
    canary = {"metadata": {"name": CANARY}, "spec": {"containers": [{"name": CANARY, "image": CANARY}]}}
    scheduling_plane.request("POST", place, canary)
    await until("the scheduler works", lambda: CANARY in nodes_of(scheduling_plane, place))
    scheduling_plane.request("DELETE", f"{place}/{CANARY}?gracePeriodSeconds=0")
    for pod in pods.values():
        scheduling_plane.request("POST", place, pod)
    await until("all pods have a node", lambda: len(nodes_of(scheduling_plane, place).keys() - {CANARY}) == len(pods))
    found = nodes_of(scheduling_plane, place)
    for number in range(3):
        assert {found[member.name] for member in pods if member.group == number} == set(NODES)
        assert {found[member.name] for member in pods if member.index == number} == set(NODES)
