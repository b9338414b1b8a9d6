"""Who claims which topic."""

from __future__ import annotations

from raptormq_operator.topic_claims import TopicClaims
from tests.operator.resources import NAMESPACE, topic_body

FIRST = topic_body("first", name="orders")
SECOND = topic_body("second", name="orders", metadata={"creationTimestamp": "2026-02-01T00:00:00Z"})
OTHER = topic_body("other")


def test_rivals_are_named_on_both_sides() -> None:
    claims = TopicClaims()
    assert claims.see(FIRST) == ()
    assert claims.see(OTHER) == ()
    assert claims.see(SECOND) == ("first",)
    assert claims.see(FIRST) == ("second",)
    held = claims.to(NAMESPACE, "demo", "orders")
    assert min(held).name == "first"
    assert sorted(claims.topics_of(NAMESPACE, "demo")) == ["first", "other", "second"]
    assert list(claims.topics_of("elsewhere", "demo")) == []


def test_who_goes_makes_room() -> None:
    claims = TopicClaims()
    claims.see(FIRST)
    claims.see(SECOND)
    assert claims.forget(FIRST) == ("second",)
    assert [claim.name for claim in claims.to(NAMESPACE, "demo", "orders")] == ["second"]
    going = {**SECOND, "metadata": {**SECOND["metadata"], "deletionTimestamp": "t"}}
    assert claims.see(going) == ()
    assert claims.to(NAMESPACE, "demo", "orders") == ()
    assert claims.forget(SECOND) == (), "twice is no error"
