"""`manifest_matches`: what the API server adds is no difference, what differs is one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq_operator.manifest_matches import manifest_matches

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(json_values)
def test_a_value_covers_itself(value: Any) -> None:
    assert manifest_matches(value, value)


@given(st.dictionaries(st.text(max_size=3), json_values), st.dictionaries(st.text(min_size=4), json_values))
def test_fields_that_the_server_added_do_not_matter(wanted: dict[str, Any], added: dict[str, Any]) -> None:
    assert manifest_matches({**added, **wanted}, wanted)


@pytest.mark.parametrize(
    ("observed", "wanted"),
    [
        ("1", "1000m"),
        ("1Gi", "1024Mi"),
        (1, "1"),
        ("1500m", "1.5"),
        ({}, {"labels": {}}),
        ([{"name": "injected"}, {"name": "broker", "image": "a"}], [{"name": "broker", "image": "a"}]),
    ],
)
def test_the_server_writes_the_same_in_other_words(observed: Any, wanted: Any) -> None:
    assert manifest_matches(observed, wanted)


@pytest.mark.parametrize(
    ("observed", "wanted"),
    [
        ({"replicas": 1}, {"replicas": 2}),
        ({}, {"replicas": 2}),
        (None, {"replicas": 2}),
        ("1Gi", "1G"),
        (True, 1),
        ("x", "y"),
        (["a", "b"], ["a"]),
        (["b", "a"], ["a", "b"]),
        ([{"name": "other"}], [{"name": "broker"}]),
        ([{"name": "broker", "image": "a"}], [{"name": "broker", "image": "b"}]),
    ],
)
def test_a_difference_is_seen(observed: Any, wanted: Any) -> None:
    assert not manifest_matches(observed, wanted)
