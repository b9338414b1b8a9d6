"""Names at their limits on a real API server: the objects of the chart and of the resources."""

from __future__ import annotations

import subprocess
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import yaml

from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.manifests.pipeline import objects
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.model.pipeline import Pipeline
from tests.api.control_plane import ControlPlane, program
from tests.operator.resources import SURROUNDINGS, cluster_body, pipeline_body

CHART = Path(__file__).resolve().parents[2] / "helm" / "raptormq"
PLURALS = {"NetworkPolicy": "networkpolicies"}
CLUSTER_WIDE = frozenset({"ClusterRole", "ClusterRoleBinding"})


def refusals(plane: ControlPlane, namespace: str, manifests: list[dict[str, Any]]) -> list[str]:
    """Return the errors of the API server for objects that are not stored."""
    found = []
    for manifest in manifests:
        version, kind = manifest["apiVersion"], manifest["kind"]
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        within = "" if kind in CLUSTER_WIDE else f"/namespaces/{namespace}"
        manifest["metadata"].pop("ownerReferences", None)
        if not within:
            manifest["metadata"].pop("namespace", None)
        else:
            manifest["metadata"]["namespace"] = namespace
        try:
            plane.request("POST", f"{prefix}{within}/{PLURALS.get(kind, kind.lower() + 's')}?dryRun=All", manifest)
        except urllib.error.HTTPError as error:
            found.append(f"{kind} {manifest['metadata']['name']}: {error.read().decode()}")
    return found


@pytest.mark.parametrize(
    ("release", "options"),
    [
        ("r" * 47, ()),
        ("r" * 53, ()),
        ("raptormq" + "-r" * 22, ()),
        ("1st", ("--set", f"fullnameOverride={'f' * 53}")),
        ("dots.are.here", ("--set", "fullnameOverride=mq")),
    ],
)
def test_api_server_accepts_the_objects_of_a_release(
    shared_plane: ControlPlane, namespace: str, release: str, options: tuple[str, ...]
) -> None:
    enabled = "accessControl.enabled=true,sparkPipelines.enabled=true,networkPolicy.enabled=true,replicas=2"
    command = [program("helm"), "template", release, str(CHART), "--namespace", namespace, "--kube-version=1.34.0"]
    command += ["--set", f"{enabled},networkPolicy.clusterNamespaces={{{namespace}}}", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    manifests = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert {"Deployment", "Service", "NetworkPolicy", "Pod"} <= {each["kind"] for each in manifests}
    assert refusals(shared_plane, namespace, manifests) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"groups": 64},
        {"groups": 64, "replicas": 5, "replication": {"mode": "dledger"}},
    ],
)
def test_api_server_accepts_the_objects_of_a_cluster_with_the_longest_name(
    shared_plane: ControlPlane, namespace: str, spec: dict[str, Any]
) -> None:
    body = cluster_body(**spec)
    body["metadata"] |= {"name": "c" * 40, "namespace": namespace}
    cluster = Cluster.from_object(body, SURROUNDINGS)
    last = [
        each for each in wanted(cluster).objects if each["metadata"]["labels"].get("raptormq.io/group") in ("63", None)
    ]
    assert max(len(each["metadata"]["name"]) for each in last) > 50
    assert refusals(shared_plane, namespace, last) == []


def test_api_server_accepts_the_objects_of_a_pipeline_with_the_longest_name(
    shared_plane: ControlPlane, namespace: str
) -> None:
    body = pipeline_body()
    body["metadata"] |= {"name": "p" * 40, "namespace": namespace}
    assert refusals(shared_plane, namespace, list(objects(Pipeline.from_object(body)))) == []
