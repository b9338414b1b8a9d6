"""The known Topics, their claims of names, and those to reconcile."""

from __future__ import annotations

from typing import Any

from raptormq_operator.topic_store import TopicStore
from tests.operator.resources import NAMESPACE, topic_body

DEMO = (NAMESPACE, "demo")


def made(name: str, topic: str = "orders", version: str = "1", **metadata: Any) -> dict[str, Any]:
    return topic_body(name, name=topic, metadata={"resourceVersion": version, **metadata})


def holding(body: dict[str, Any], reason: str = "Ready") -> dict[str, Any]:
    return body | {"status": {"conditions": [{"type": "Ready", "reason": reason}]}}


def holder(store: TopicStore) -> str:
    return min(store.claims(DEMO, "orders")).name


FIRST = made("first")
SECOND = made("second", version="2", creationTimestamp="2026-02-01T00:00:00Z")
OTHER = made("other", "other")


def test_rivals_are_looked_at_together() -> None:
    store = TopicStore()
    assert store.see(FIRST) == store.see(OTHER) == {DEMO}
    assert store.take_changed(DEMO, 9) == ["first", "other"]
    assert store.see(SECOND) == {DEMO}
    assert store.take_changed(DEMO, 9) == ["second", "first"]
    assert holder(store) == "first"
    assert store.forget(NAMESPACE, "first") == {DEMO}
    assert store.take_changed(DEMO, 9) == ["first", "second"]
    assert (store.get(DEMO, "first"), holder(store)) == (None, "second")
    assert store.forget(NAMESPACE, "first") == set(), "a repetition is not an error"


def test_who_is_being_deleted_claims_nothing() -> None:
    store = TopicStore()
    store.see(made("first", deletionTimestamp="t"))
    store.see(SECOND)
    assert holder(store) == "second"


def test_of_two_made_in_the_same_second_the_one_that_holds_it_stays() -> None:
    """Their uids do not show which was created first."""
    for uids in (("a", "b"), ("b", "a")):
        store = TopicStore()
        store.see(made("first", version="7", uid=uids[0]))
        store.see(made("second", version="8", uid=uids[1]))
        assert holder(store) == "first"
        store = TopicStore()  # the operator is restarted, and versions have increased
        store.see(holding(made("second", version="20", uid=uids[1]), "TopicConflict"))
        store.see(holding(made("first", version="21", uid=uids[0])))
        assert holder(store) == "first"


def test_a_write_of_our_own_is_no_reason_for_a_look() -> None:
    store = TopicStore()
    store.see(FIRST)
    store.take_changed(DEMO, 9)
    written = holding(made("first", version="5", managedFields=["long"]))
    store.written(written)
    assert store.see(written) == set()
    assert not store.has_changed(DEMO)
    body = store.get(DEMO, "first")
    assert body is not None
    assert "managedFields" not in body["metadata"]
    assert store.see(holding(made("first", version="6"))) == {DEMO}


def test_one_made_again_under_the_same_name_is_another() -> None:
    store = TopicStore()
    store.see(made("first", version="3"))
    store.written(made("first", version="9", uid="another"))
    store.written(made("first", version="2", readQueues="old"))
    body = store.get(DEMO, "first")
    assert body is not None
    assert body["metadata"]["resourceVersion"] == "3"
    store.see(made("first", version="9", uid="another"))
    assert [claim.version for claim in store.claims(DEMO, "orders")] == [9]


def test_all_of_a_cluster_in_groups() -> None:
    store = TopicStore()
    assert not store.mark_all(DEMO)
    for number in range(5):
        store.see(made(f"t{number}", f"t{number}"))
    store.take_changed(DEMO, 9)
    assert store.mark_all(DEMO)
    store.mark(DEMO, ["t0"])
    assert store.take_changed(DEMO, 3) == ["t0", "t1", "t2"]
    assert store.has_changed(DEMO)
    assert store.take_changed(DEMO, 3) == ["t3", "t4"]
    assert sorted(store.places()) == [(NAMESPACE, f"t{number}") for number in range(5)]


def test_nothing_is_left_of_a_cluster_without_topics() -> None:
    store = TopicStore()
    store.see(FIRST)
    store.forget(NAMESPACE, "first")
    assert store.take_changed(DEMO, 9) == ["first"]
    assert (store.take_changed(DEMO, 9), store.claims(DEMO, "orders"), store.has_changed(DEMO)) == ([], [], False)
    store.mark(DEMO, ["first"])
    assert not store.has_changed(DEMO)
