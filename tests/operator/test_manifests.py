"""The objects of a cluster as files for review.

`python -m tests.operator.test_manifests` writes the files again. Review the difference before a commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from raptormq.broker.config.config import BrokerConfig
from raptormq.config_file import parse_properties
from raptormq.errors import ConfigError
from raptormq_operator.manifests import name_server
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.manifests.config import BROKER_FILE, broker_config, registration_seconds
from raptormq_operator.manifests.metadata import digest, sealed
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from tests.operator.resources import SURROUNDINGS, cluster_body

GOLDEN = Path(__file__).with_name("golden")
SPECS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "dledger": {"replicas": 3, "replication": {"mode": "dledger"}},
    "everything": {
        "image": "registry.example/raptormq:1.2.3",
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "pull"}],
        "groups": 2,
        "flush": "SYNC",
        "nameServers": {
            "replicas": 3,
            "config": {"orderMessageEnable": "true"},
            "scheduling": {"priorityClassName": "high"},
        },
        "storage": {"size": "100Gi", "storageClassName": "essd", "local": True, "whenDeleted": "Delete"},
        "config": {"autoCreateTopicEnable": "true", "fileReservedTime": "48"},
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "4Gi"}},
        "scheduling": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "brokers", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
        },
        "tls": {"secretName": "certificate", "mode": "enforcing", "clientAuth": "require"},
        "accessControl": {"adminSecretName": "boss"},
        "metrics": {"enabled": False, "port": 9100},
        "podTemplate": {"labels": {"team": "shop"}, "annotations": {"note": "x"}, "terminationGracePeriodSeconds": 30},
    },
}


def cluster_of(name: str) -> Cluster:
    return Cluster.from_object(cluster_body(**SPECS[name]), SURROUNDINGS)


def rendered(name: str) -> str:
    return yaml.safe_dump_all(wanted(cluster_of(name)).objects, sort_keys=True, default_flow_style=False)


@pytest.mark.parametrize("name", SPECS)
def test_objects_are_those_of_the_file(name: str) -> None:
    assert rendered(name) == (GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SPECS)
def test_every_object_is_owned_found_and_named_once(name: str) -> None:
    cluster = cluster_of(name)
    objects = wanted(cluster).objects
    assert len({(manifest["kind"], manifest["metadata"]["name"]) for manifest in objects}) == len(objects)
    for manifest in objects:
        metadata = manifest["metadata"]
        assert names.managed_labels(cluster.name).items() <= metadata["labels"].items()
        assert [owner["uid"] for owner in metadata["ownerReferences"]] == [cluster.uid]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"groups": 3}, {"demo-broker": {"groups": 3}}),
        (
            {"groups": 2, "replicas": 3, "replication": {"mode": "dledger"}},
            {"demo-broker-0": {"group": 0}, "demo-broker-1": {"group": 1}},
        ),
    ],
)
def test_one_broker_may_be_evicted_of_all_single_copies_or_of_each_replicated_group(
    spec: dict[str, Any], expected: dict[str, dict[str, int]]
) -> None:
    objects = wanted(Cluster.from_object(cluster_body(**spec), SURROUNDINGS)).objects
    budgets = {m["metadata"]["name"]: m["spec"] for m in objects if m["kind"] == "PodDisruptionBudget"}
    del budgets["demo-namesrv"]
    assert budgets.keys() == expected.keys()
    for name, whose in expected.items():
        assert budgets[name]["selector"]["matchLabels"] == names.broker_labels("demo", whose.get("group"))
        assert budgets[name]["maxUnavailable"] == 1


@pytest.mark.parametrize("name", SPECS)
def test_pods_fit_the_restricted_standard(name: str) -> None:
    sets = [manifest for manifest in wanted(cluster_of(name)).objects if manifest["kind"] == "StatefulSet"]
    for spec in (manifest["spec"]["template"]["spec"] for manifest in sets):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


def test_a_user_cannot_replace_what_the_operator_sets() -> None:
    body = cluster_body(podTemplate={"labels": {names.MANAGED_BY_LABEL: "me", "team": "shop"}})
    for manifest in wanted(Cluster.from_object(body, SURROUNDINGS)).objects:
        if manifest["kind"] == "StatefulSet":
            labels = manifest["spec"]["template"]["metadata"]["labels"]
            assert (labels[names.MANAGED_BY_LABEL], labels["team"]) == (names.FIELD_MANAGER, "shop")


def test_a_broker_advertises_a_name_that_outlives_its_pod() -> None:
    cluster = cluster_of("defaults")
    (member,) = cluster.members
    properties = broker_config(cluster, member)["data"][BROKER_FILE].splitlines()
    assert "brokerIP1=demo-broker-0-0-0.demo-broker-0.shop.svc.cluster.local" in properties
    assert "namesrvAddr=demo-namesrv.shop.svc.cluster.local:9876" in properties


@pytest.mark.parametrize("value", ["48\\", "48\u2028brokerIP1=10.0.0.1", "C:\\temp"])
def test_a_value_of_the_configuration_stays_in_its_line(value: str) -> None:
    cluster = Cluster.from_object(cluster_body(config={"brokerAnything": value}), SURROUNDINGS)
    properties = parse_properties(broker_config(cluster, cluster.members[0])["data"][BROKER_FILE])
    assert properties["brokerAnything"] == value
    assert properties["brokerIP1"] == "demo-broker-0-0-0.demo-broker-0.shop.svc.cluster.local"


@pytest.mark.parametrize(
    ("period", "seconds"), [(None, 15), ("10000", 15), (" 30000 ", 35), ("59001", 65), ("1", 15), ("10 s", 15)]
)
def test_a_name_server_is_available_once_every_broker_had_time_to_register(period: str | None, seconds: int) -> None:
    config = {} if period is None else {"registerNameServerPeriod": period}
    cluster = Cluster.from_object(cluster_body(config=config), SURROUNDINGS)
    assert name_server.stateful_set(cluster, authenticate=False)["spec"]["minReadySeconds"] == seconds


@pytest.mark.parametrize("period", ["9999", "10000", "60000", "60001"])
def test_the_operator_takes_the_periods_that_a_broker_takes(period: str) -> None:
    cluster = Cluster.from_object(cluster_body(config={"registerNameServerPeriod": period}), SURROUNDINGS)
    try:
        taken_ms = BrokerConfig.from_pairs({"registerNameServerPeriod": period}).identity.register_period_ms
    except ConfigError:
        taken_ms = 10_000  # and the broker does not start
    assert registration_seconds(cluster) * 1000 == taken_ms


@pytest.mark.parametrize(
    ("resources", "config", "kept_mib"),
    [
        ({}, {}, 256),
        ({"limits": {"memory": "4Gi"}}, {}, 1024),
        ({"limits": {"memory": "4095Mi"}}, {}, 1023),
        ({"limits": {"memory": "16Gi"}}, {}, 1024),
        ({"limits": {"memory": "128Mi"}}, {}, 96),
        ({"limits": {"memory": 2147483648}}, {}, 512),
        ({"limits": {"memory": 0}}, {}, 1024),
        ({"requests": {"memory": "256Mi"}}, {}, 1024),
        ({"limits": {"memory": "1Gi"}}, {"logBytesKeptInPageCache": "300M"}, 300),
    ],
)
def test_a_broker_keeps_a_quarter_of_its_memory_as_page_cache(
    resources: dict[str, Any], config: dict[str, str], kept_mib: int
) -> None:
    cluster = Cluster.from_object(
        cluster_body(config=config, **({"resources": resources} if resources else {})), SURROUNDINGS
    )
    properties = parse_properties(broker_config(cluster, cluster.members[0])["data"][BROKER_FILE])
    assert BrokerConfig.from_pairs(properties).storage.kept_page_bytes == kept_mib << 20


def test_the_seal_changes_with_the_content_only() -> None:
    manifest = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    reordered = {"data": {"x": "1"}, "metadata": {"name": "a"}, "kind": "ConfigMap"}
    assert sealed(manifest) == sealed(reordered)
    assert digest(manifest) != digest({**manifest, "data": {"x": "2"}})


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for golden_name in SPECS:
        (GOLDEN / f"{golden_name}.yaml").write_text(rendered(golden_name), encoding="utf-8")
