"""`differences`: additions and normalized forms of the API server are ignored, real differences are named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptormq_operator.differences import Difference, differences
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model.cluster import Cluster
from tests.operator.api_server import as_stored, specs
from tests.operator.resources import SURROUNDINGS, cluster_body

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(specs("BrokerCluster"), st.randoms(use_true_random=False))
def test_no_spec_that_the_definition_takes_leaves_a_difference(spec: dict[str, Any], random: Any) -> None:
    cluster = Cluster.from_object(cluster_body(**spec), SURROUNDINGS)
    left = [each for manifest in wanted(cluster).objects for each in differences(as_stored(manifest, random), manifest)]
    assert left == []


@given(json_values)
def test_a_value_does_not_differ_from_itself(value: Any) -> None:
    assert differences(value, value) == ()


@given(st.dictionaries(st.text(max_size=3), json_values), st.dictionaries(st.text(min_size=4), json_values))
def test_fields_that_the_server_added_do_not_matter(wanted: dict[str, Any], added: dict[str, Any]) -> None:
    assert differences({**added, **wanted}, wanted) == ()


def amounts(value: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": value}}}


def containers(*items: dict[str, Any]) -> dict[str, Any]:
    return {"containers": list(items)}


@pytest.mark.parametrize(
    ("observed", "wanted"),
    [
        (amounts("1"), amounts("1000m")),
        (amounts("1Gi"), amounts("1024Mi")),
        (amounts("1"), amounts(1)),
        (amounts("1500m"), amounts("1.5")),
        (amounts("1431619973939200u"), amounts("1.3333Gi")),
        (amounts("969305906228469707047m"), amounts("860.916588Pi")),
        ({}, {"labels": {}}),
        ({}, {"affinity": None}),
        ({"tolerations": [{"operator": "Exists"}]}, {"tolerations": [{"key": "", "operator": "Exists", "value": ""}]}),
        (containers({"name": "injected"}, {"name": "broker", "image": "a"}), containers({"name": "broker"})),
        ({"ownerReferences": [{"uid": "theirs"}, {"uid": "ours"}]}, {"ownerReferences": [{"uid": "ours"}]}),
        ({"matchLabels": {"a": "b", "c": "d"}}, {"matchLabels": {"a": "b"}}),
    ],
)
def test_the_server_writes_the_same_in_other_words(observed: Any, wanted: Any) -> None:
    assert differences(observed, wanted) == ()


@pytest.mark.parametrize(
    ("observed", "wanted", "field"),
    [
        ({"replicas": 1}, {"replicas": 2}, "replicas"),
        ({}, {"replicas": 2}, "replicas"),
        ({}, {"enabled": False}, "enabled"),
        (None, {"replicas": 2}, ""),
        (amounts("1Gi"), amounts("1G"), "resources.requests.cpu"),
        ({"data": {"a": "1000m"}}, {"data": {"a": "1"}}, "data.a"),
        (True, 1, ""),
        (["a", "b"], ["a"], ""),
        (["b"], ["a"], "[0]"),
        (containers({"name": "other"}), containers({"name": "broker"}), "containers[name=broker]"),
        (
            containers({"name": "broker", "image": "a"}),
            containers({"name": "broker", "image": "b"}),
            "containers[name=broker].image",
        ),
        ({"spec": {"selector": {"a": "b", "c": "d"}}}, {"spec": {"selector": {"a": "b"}}}, "spec.selector"),
        (
            {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c"}]}},
            {"selector": {"matchLabels": {"a": "b"}}},
            "selector",
        ),
        (
            {"selector": {"matchLabels": {"a": "b", "c": "d"}}},
            {"selector": {"matchLabels": {"a": "b"}}},
            "selector",
        ),
        ({"nodeSelector": {"a": "b", "c": "d"}}, {"nodeSelector": {"a": "b"}}, "nodeSelector"),
        ({"tolerations": [{"key": "a"}, {"key": "b"}]}, {"tolerations": [{"key": "a"}]}, "tolerations"),
    ],
)
def test_a_difference_is_named(observed: Any, wanted: Any, field: str) -> None:
    (found,) = differences(observed, wanted)
    assert found.field == field


def test_a_difference_in_words() -> None:
    assert str(Difference("spec.replicas", "1", "2")) == "spec.replicas is 1, wanted 2"
    assert str(Difference("spec.replicas", "", "2")) == "spec.replicas is not set, wanted 2"
    assert len(str(Difference("data.a", "x" * 500, "y" * 500))) < 300
