"""The manifests of examples/: valid for the schemas, with names that match those of the operator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from raptormq_operator.cluster_status import refusal
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.quantity import quantity
from tests.operator.resources import FILES, SURROUNDINGS, cluster_body, schema

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def example(name: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")) if document]


def faults(value: Any, part: dict[str, Any], path: str = "") -> list[str]:
    """Return the errors for fields that the API server would refuse or ignore: unknown fields, values of an
    enumeration, patterns.
    """
    found = []
    if isinstance(value, dict) and "properties" in part:
        unknown = [name for name in value if name not in part["properties"]]
        found += [f"{path}.{name} is unknown" for name in unknown]
        found += [f"{path}.{name} is missing" for name in part.get("required", ()) if name not in value]
        for name, inner in part["properties"].items():
            found += faults(value[name], inner, f"{path}.{name}") if name in value else []
    if value not in part.get("enum", [value]):
        found.append(f"{path} is {value}")
    if isinstance(value, str) and not re.search(part.get("pattern", ""), value):
        found.append(f"{path} is {value!r}")
    return found


OURS = [
    pytest.param(document, id=f"{path.name} {document['kind']}")
    for path in sorted(EXAMPLES.glob("*.yaml"))
    for document in example(path.name)
    if document["kind"] in FILES
]


@pytest.mark.parametrize("document", OURS)
def test_the_schema_takes_our_resources(document: dict[str, Any]) -> None:
    assert faults(document["spec"], schema(document["kind"])["properties"]["spec"]) == []


def test_the_pod_monitor_finds_the_metrics_of_brokers_and_name_servers() -> None:
    (monitor,) = example("pod-monitor.yaml")
    cluster = Cluster.from_object(cluster_body(), SURROUNDINGS)
    sets = [manifest for manifest in wanted(cluster).objects if manifest["kind"] == "StatefulSet"]
    labels = monitor["spec"]["selector"]["matchLabels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    for each in sets:
        assert labels <= each["spec"]["template"]["metadata"]["labels"].items()
        (container,) = each["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports[endpoint["port"]] == cluster.metrics_port


def cluster_on(documents: list[dict[str, Any]]) -> tuple[Cluster, dict[str, Any]]:
    """Return the cluster of an example, and its StorageClass."""
    (body,) = [document for document in documents if document["kind"] == "BrokerCluster"]
    cluster = Cluster.from_object(cluster_body(body["metadata"]["name"], **body["spec"]), SURROUNDINGS)
    (found,) = [
        document
        for document in documents
        if document["kind"] == "StorageClass" and document["metadata"]["name"] == cluster.storage.storage_class_name
    ]
    return cluster, found


def claims(cluster: Cluster) -> list[dict[str, Any]]:
    sets = [manifest for manifest in wanted(cluster).objects if manifest["kind"] == "StatefulSet"]
    return [claim for manifest in sets for claim in manifest["spec"].get("volumeClaimTemplates", [])]


def test_every_broker_finds_a_local_disk_on_a_node_of_its_own() -> None:
    documents = example("local-disks.yaml")
    cluster, storage_class = cluster_on(documents)
    assert cluster.storage.local
    assert storage_class["provisioner"] == "kubernetes.io/no-provisioner"
    assert storage_class["volumeBindingMode"] == "WaitForFirstConsumer"
    disks = [document["spec"] for document in documents if document["kind"] == "PersistentVolume"]
    for claim, disk in zip(claims(cluster), disks, strict=True):
        assert disk["storageClassName"] == claim["spec"]["storageClassName"]
        assert disk["accessModes"] == claim["spec"]["accessModes"]
        wanted_size, size = claim["spec"]["resources"]["requests"]["storage"], disk["capacity"]["storage"]
        assert (quantity(wanted_size) or 0) <= (quantity(size) or 0)
    (terms,) = zip(*(disk["nodeAffinity"]["required"]["nodeSelectorTerms"] for disk in disks), strict=True)
    nodes = [node for term in terms for node in term["matchExpressions"][0]["values"]]
    assert len(nodes) == len(set(nodes)) == len(disks)


SMALLEST_ESSD_GIB = {"PL0": 40, "PL1": 20, "PL2": 461, "PL3": 1261}


def test_essd_has_a_class_for_each_level_and_the_cluster_a_disk_that_its_level_has() -> None:
    documents = example("essd.yaml")
    classes = [document for document in documents if document["kind"] == "StorageClass"]
    levels = {each["parameters"]["performanceLevel"]: each for each in classes}
    assert len(classes) == len(levels)
    assert levels.keys() == SMALLEST_ESSD_GIB.keys()
    for level, each in levels.items():
        assert each["metadata"]["name"] == f"raptormq-essd-{level.lower()}"
        assert each["parameters"]["type"] == "cloud_essd"
        assert (each["volumeBindingMode"], each["reclaimPolicy"]) == ("WaitForFirstConsumer", "Retain")
    cluster, storage_class = cluster_on(documents)
    assert not cluster.storage.local
    smallest = SMALLEST_ESSD_GIB[storage_class["parameters"]["performanceLevel"]]
    for claim in claims(cluster):
        assert (quantity(claim["spec"]["resources"]["requests"]["storage"]) or 0) >= smallest << 30


def test_the_production_example_loses_no_message_with_a_disk_or_a_node() -> None:
    (document,) = example("cluster-production.yaml")
    cluster = Cluster.from_object(cluster_body(**document["spec"]), SURROUNDINGS)
    assert refusal(cluster) is None
    objects = wanted(cluster).objects
    budgets = [manifest["spec"] for manifest in objects if manifest["kind"] == "PodDisruptionBudget"]
    for group in range(cluster.groups):
        labels = names.broker_labels(cluster.name, group).items()
        members = [
            manifest["spec"]["template"]
            for manifest in objects
            if manifest["kind"] == "StatefulSet" and labels <= manifest["metadata"]["labels"].items()
        ]
        assert len(members) == 3
        for member in members:
            preferred = member["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            term = max(preferred, key=lambda each: each["weight"])["podAffinityTerm"]
            assert term["topologyKey"] == "kubernetes.io/hostname"
            assert labels == term["labelSelector"]["matchLabels"].items()
            (protecting,) = (
                budget
                for budget in budgets
                if budget["selector"]["matchLabels"].items() <= member["metadata"]["labels"].items()
            )
            assert protecting["maxUnavailable"] == 1


def test_the_interleaved_example_has_a_node_for_each_master_and_a_copy_on_another() -> None:
    (document,) = example("cluster-interleaved.yaml")
    cluster = Cluster.from_object(cluster_body(**document["spec"]), SURROUNDINGS)
    assert refusal(cluster) is None
    slots = {member.name: cluster.slot(member) for member in cluster.members}
    masters = [slots[member.name] for member in cluster.members if cluster.is_master(member)]
    assert sorted(slot for slot in masters if slot is not None) == [0, 1, 2]
    for group in range(cluster.groups):
        assert len({slots[member.name] for member in cluster.group(group)}) == cluster.replicas


def test_the_tutorial_uses_the_topic_and_the_pod_of_its_examples() -> None:
    text = (ROOT / "docs" / "tutorials" / "kubernetes.md").read_text(encoding="utf-8")
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL))
    files = re.findall(r"-f (\S+)", commands)
    applied = [body for file in files for body in yaml.safe_load_all((ROOT / file).read_text(encoding="utf-8"))]
    made = {
        kind: {body["metadata"]["name"] for body in applied if body["kind"] == kind}
        for kind in ("BrokerCluster", "Topic")
    }
    assert set(re.findall(r"raptormq (?:produce|consume) ([\w-]+)", commands)) == made["Topic"]
    assert {name.removesuffix("-namesrv-0") for name in re.findall(r"\S+-namesrv-0", commands)} == made["BrokerCluster"]


def test_the_guide_counts_the_definitions_of_the_chart() -> None:
    text = (ROOT / "docs" / "guides" / "operator.md").read_text(encoding="utf-8")
    (count,) = re.findall(r"installs (\w+) CustomResourceDefinitions", text)
    assert count == {2: "two", 3: "three", 4: "four"}[len(list((ROOT / "crds").glob("*.yaml")))]
