"""The manifests of examples/: what the schemas take, and names that fit what the operator makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model.cluster import Cluster
from tests.operator.resources import FILES, SURROUNDINGS, cluster_body, schema

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")) if document]


def faults(value: Any, part: dict[str, Any], path: str = "") -> list[str]:
    """What the API server would refuse or drop in silence: unknown fields, values of an enumeration, patterns."""
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


def test_the_pod_monitor_finds_the_metrics_of_brokers() -> None:
    (monitor,) = example("pod-monitor.yaml")
    cluster = Cluster.from_object(cluster_body(), SURROUNDINGS)
    sets = [manifest for manifest in wanted(cluster).objects if manifest["kind"] == "StatefulSet"]
    labels = monitor["spec"]["selector"]["matchLabels"].items()
    (found,) = [each for each in sets if labels <= each["spec"]["template"]["metadata"]["labels"].items()]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports[endpoint["port"]] == cluster.metrics_port
