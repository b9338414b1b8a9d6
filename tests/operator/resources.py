"""Resources for tests, with the defaults of the definitions in crds/ that the API server would add."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from raptormq_operator.model.cluster import Surroundings

CRDS = Path(__file__).resolve().parents[2] / "crds"
FILES = {"BrokerCluster": "brokerclusters.yaml", "Topic": "topics.yaml", "SparkPipeline": "sparkpipelines.yaml"}
NAMESPACE = "shop"
SURROUNDINGS = Surroundings("raptormq:test", "cluster.local")


@cache
def schema(kind: str) -> dict[str, Any]:
    """Return the structural schema of a kind."""
    definition = yaml.safe_load((CRDS / FILES[kind]).read_text(encoding="utf-8"))
    found: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def with_defaults(value: Any, part: dict[str, Any]) -> Any:
    """Return `value` with the defaults of the schema `part`, added from outer to inner fields, like in the API
    server. A field of the schema that is null is removed before, because none is nullable.
    """
    if isinstance(value, dict):
        for name, inner in part.get("properties", {}).items():
            if name in value and value[name] is None:
                del value[name]
            if name not in value and "default" in inner:
                value[name] = copy.deepcopy(inner["default"])
            if name in value:
                with_defaults(value[name], inner)
    return value


def resource(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a resource as the API server returns it."""
    body = {
        "apiVersion": "raptormq.io/v1alpha1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-of-{name}",
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **metadata,
        },
        "spec": copy.deepcopy(spec),
    }
    with_defaults(body["spec"], schema(kind)["properties"]["spec"])
    return body


def cluster_body(name: str = "demo", /, *, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a BrokerCluster."""
    return resource("BrokerCluster", name, spec, **(metadata or {}))


def topic_body(name: str = "orders", /, *, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a Topic of the cluster `demo`."""
    return resource("Topic", name, {"clusterRef": {"name": "demo"}, **spec}, **(metadata or {}))


def pipeline_body(name: str = "delays", /, *, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a SparkPipeline that reads topic `flights` of the cluster `demo`."""
    given = {
        "clusterRef": {"name": "demo"},
        "topics": ["flights"],
        "image": "raptormq-spark:test",
        "application": {"file": "/opt/examples/delays.py"},
        **spec,
    }
    return resource("SparkPipeline", name, given, **(metadata or {}))
