"""Brokers that do not support a request get no such request for some time."""

from __future__ import annotations

from raptormq.client.producer.broker_features import REFUSAL_ASK_AGAIN_S, Refusals


def test_a_broker_that_refused_is_asked_again_after_a_while() -> None:
    now = 100.0
    refusals = Refusals(lambda: now)
    assert (refusals.names(), "a" in refusals) == (frozenset(), False)
    refusals.note("a")
    now += 1.0
    refusals.note("b")
    now += REFUSAL_ASK_AGAIN_S - 1.1
    assert refusals.names() == {"a", "b"}
    now += 0.1
    assert ("a" in refusals, "b" in refusals) == (False, True)
    assert refusals.names() == {"b"}
