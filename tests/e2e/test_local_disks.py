"""The local disks of the end-to-end run: valid manifests, and detection of brokers that move or lose data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e import local_disks
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model.cluster import Cluster
from tests.operator.resources import SURROUNDINGS, cluster_body

NODES = ["control-plane", "worker"]


def test_each_node_has_the_disk_of_one_broker() -> None:
    objects = local_disks.manifests(NODES)
    assert len({(each["kind"], each["metadata"]["name"]) for each in objects}) == len(objects)
    disks = [each["spec"] for each in objects if each["kind"] == "PersistentVolume"]
    (storage_class,) = [each["metadata"]["name"] for each in objects if each["kind"] == "StorageClass"]
    (body,) = [each for each in objects if each["kind"] == "BrokerCluster"]
    cluster = Cluster.from_object(cluster_body(body["metadata"]["name"], **body["spec"]), SURROUNDINGS)
    sets = [each["spec"] for each in wanted(cluster).objects if each["kind"] == "StatefulSet"]
    claims = [claim["spec"] for spec in sets for claim in spec.get("volumeClaimTemplates", [])]
    assert len(claims) == len(disks) == len(NODES)
    for claim, disk, node in zip(claims, disks, NODES, strict=True):
        assert (claim["storageClassName"], disk["storageClassName"]) == (storage_class, storage_class)
        assert disk["local"]["path"] == local_disks.PATH
        assert claim["resources"]["requests"]["storage"] == disk["capacity"]["storage"]
        (term,) = disk["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == [node]


class FakeKubernetes(Kubernetes):
    """A cluster in the expected state, except for what a test changes."""

    def __init__(self) -> None:
        self.disks = [f"raptormq-{node}" for node in NODES]
        self.moves = False
        self.messages = [local_disks.MESSAGES]
        """Message counts, one for each request. The last one is for all further requests."""
        self.round = 0
        self.commands: list[str] = []

    def nodes(self) -> list[str]:
        return NODES

    def on_node(self, node: str, *command: str) -> str:
        self.commands.append(f"{node}: {' '.join(command)}")
        return ""

    def wait_ready(self, *resources: str, namespace: str, timeout: float) -> None:
        del resources, namespace, timeout

    def wait_until(self, what: str, condition: Any, timeout: float) -> None:
        del timeout
        if not condition():
            raise Failed(what)

    def get(self, *arguments: str) -> dict[str, Any]:
        deleted = any(command.startswith("delete topic/") for command in self.commands)
        if arguments[0] == "pvc":
            return {"items": [] if deleted else [{"spec": {"volumeName": disk}} for disk in self.disks]}
        nodes = NODES[::-1] if self.moves and self.round else NODES
        return {
            "items": [
                {
                    "metadata": {"name": f"local-broker-{number}-0-0", "uid": f"{number} {self.round}"},
                    "spec": {"nodeName": node},
                }
                for number, node in enumerate(nodes)
            ]
        }

    def kubectl(self, *arguments: str, manifest: str | None = None, timeout: float = 60) -> str:
        del manifest, timeout
        self.commands.append(" ".join(arguments))
        self.round += arguments[:2] == ("delete", "pod")
        if "describe" not in arguments:
            return ""
        return json.dumps({"messages": self.messages.pop(0) if len(self.messages) > 1 else self.messages[0]})


def test_a_sound_cluster_passes_and_nothing_is_left() -> None:
    kubernetes = FakeKubernetes()
    local_disks.serve(kubernetes)
    assert kubernetes.commands[:2] == [f"{node}: mkdir -p {local_disks.PATH}" for node in NODES]
    assert "delete topic/kept brokercluster/local -n flights --timeout=60s" in kubernetes.commands
    assert kubernetes.commands[-1] == "delete pv raptormq-control-plane raptormq-worker --timeout=60s"


def test_claims_on_other_volumes_fail() -> None:
    kubernetes = FakeKubernetes()
    kubernetes.disks[0] = "pvc-of-another-class"
    with pytest.raises(Failed, match="bound to"):
        local_disks.serve(kubernetes)


def test_brokers_that_move_fail() -> None:
    kubernetes = FakeKubernetes()
    kubernetes.moves = True
    with pytest.raises(Failed, match="brokers have moved"):
        local_disks.serve(kubernetes)


@pytest.mark.parametrize("repeated", [0, 7])
def test_messages_that_are_gone_fail(repeated: int) -> None:
    stored = local_disks.MESSAGES + repeated
    kubernetes = FakeKubernetes()
    kubernetes.messages = [stored, stored - 1]
    with pytest.raises(Failed, match=f"all {stored} messages are there again"):
        local_disks.serve(kubernetes)


def test_messages_that_were_never_stored_fail() -> None:
    kubernetes = FakeKubernetes()
    kubernetes.messages = [local_disks.MESSAGES - 1]
    with pytest.raises(Failed, match="999 messages are stored, expected at least 1000"):
        local_disks.serve(kubernetes)


def test_sends_that_were_repeated_are_kept() -> None:
    kubernetes = FakeKubernetes()
    kubernetes.messages = [local_disks.MESSAGES + 7]
    local_disks.serve(kubernetes)
