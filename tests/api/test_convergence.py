"""Server-side apply of the manifests of any valid cluster to a real API server: no difference remains."""

from __future__ import annotations

import json
import urllib.error
from itertools import count
from typing import Any
from urllib.parse import urlencode

from hypothesis import HealthCheck, Phase, given, settings

from raptormq_operator.differences import differences
from raptormq_operator.kube.client import path
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model.cluster import Cluster
from tests.api.control_plane import ControlPlane
from tests.operator.api_server import specs
from tests.operator.resources import SURROUNDINGS, resource

_numbers = count()


def apply(plane: ControlPlane, manifest: Manifest) -> Manifest:
    """Apply a manifest like the operator."""
    metadata = manifest["metadata"]
    query = urlencode({"fieldManager": "raptormq-operator", "force": "true"})
    where = f"{path(manifest['kind'], metadata['namespace'], metadata['name'])}?{query}"
    try:
        written: Manifest = plane.request("PATCH", where, manifest, "application/apply-patch+yaml")
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{json.dumps(manifest)}: {error.read().decode()}") from error
    return written


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(spec=specs("BrokerCluster"))
def test_every_object_is_as_it_was_applied(shared_plane: ControlPlane, namespace: str, spec: dict[str, Any]) -> None:
    name = f"c{next(_numbers)}"
    made = {"apiVersion": "raptormq.io/v1alpha1", "kind": "BrokerCluster", "metadata": {"name": name}, "spec": spec}
    body = shared_plane.request("POST", path("BrokerCluster", namespace), made)
    cluster = Cluster.from_object(body, SURROUNDINGS)
    filled_in = resource("BrokerCluster", name, spec)["spec"]
    assert body["spec"] == filled_in, "the defaults are those of tests.operator.resources"
    for manifest in wanted(cluster).objects:
        first = apply(shared_plane, manifest)
        again = apply(shared_plane, manifest)
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        assert differences(again, manifest) == ()


def test_what_others_add_to_a_selector_goes_with_the_next_apply(shared_plane: ControlPlane, namespace: str) -> None:
    body = resource("BrokerCluster", "demo", {})
    body["metadata"]["namespace"] = namespace
    services = [
        manifest
        for manifest in wanted(Cluster.from_object(body, SURROUNDINGS)).objects
        if manifest["kind"] == "Service"
    ]
    for manifest in services:
        where = path("Service", namespace, manifest["metadata"]["name"])
        apply(shared_plane, manifest)
        theirs = {"spec": {"selector": {"theirs": "x"}}, "metadata": {"labels": {"theirs": "x"}}}
        patched = shared_plane.request("PATCH", where, theirs, "application/merge-patch+json")
        assert [each.field for each in differences(patched, manifest)] == ["spec.selector"]
        after = apply(shared_plane, manifest)
        assert differences(after, manifest) == ()
        assert after["metadata"]["labels"]["theirs"] == "x"
