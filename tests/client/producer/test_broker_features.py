"""Features of topics that a client learns from the responses to its batches."""

from __future__ import annotations

from raptormq.client.producer import broker_features
from raptormq.client.producer.broker_features import ASK_AGAIN_S, BatchSupport
from raptormq.protocol.message import MessageQueue


def test_the_answer_to_a_batch_tells_the_kind() -> None:
    kinds = BatchSupport()
    assert (kinds.stores_whole("t"), kinds.accepts_inner_batches("t")) == (None, False)
    kinds.note_answer("t", "a", whole=True)
    kinds.note_answer("u", "a", whole=False)
    assert (kinds.stores_whole("t"), kinds.accepts_inner_batches("t")) == (True, True)
    assert (kinds.stores_whole("u"), kinds.accepts_inner_batches("u")) == (False, False)


def test_a_refusal_is_remembered_while_the_topic_stays_what_it_is() -> None:
    kinds = BatchSupport(lambda: 0.0)
    kinds.note_answer("t", "a", whole=True)
    kinds.note_inner_batch_refused("t", "a")
    assert kinds.stores_whole("t") is None
    kinds.note_answer("t", "a", whole=True)
    assert (kinds.stores_whole("t"), kinds.accepts_inner_batches("t")) == (True, False)
    kinds.note_answer("t", "a", whole=False)
    kinds.note_answer("t", "a", whole=True)
    assert kinds.accepts_inner_batches("t")


def test_a_refusal_is_not_remembered_for_ever() -> None:
    now = 100.0
    kinds = BatchSupport(lambda: now)
    kinds.note_answer("t", "a", whole=True)
    kinds.note_inner_batch_refused("t", "a")
    kinds.note_answer("t", "a", whole=True)
    now += ASK_AGAIN_S - 0.1
    assert not kinds.accepts_inner_batches("t")
    now += 0.1
    assert kinds.accepts_inner_batches("t")


def test_what_was_refused_as_compressed_single_messages_may_be_sent_whole() -> None:
    kinds = BatchSupport()
    kinds.note_answer("t", "a", whole=False)
    kinds.note_compressed_messages_refused("t", "a")
    assert kinds.stores_whole("t") is None
    kinds.note_answer("t", "a", whole=True)
    assert kinds.accepts_inner_batches("t")


def test_late_refusals_do_not_change_what_is_known_by_then() -> None:
    """A converted topic responds to earlier requests according to its new type."""
    kinds = BatchSupport()
    kinds.note_answer("t", "a", whole=True)
    kinds.note_compressed_messages_refused("t", "a")
    assert kinds.accepts_inner_batches("t")
    kinds.note_answer("u", "a", whole=False)
    kinds.note_inner_batch_refused("u", "a")
    assert kinds.stores_whole("u") is False


def test_brokers_that_differ_are_known_one_by_one_and_what_has_no_queue_yet_suits_both() -> None:
    now = 100.0
    kinds = BatchSupport(lambda: now, lambda _topic: ("a", "b"))
    on_a, on_b, on_c = (MessageQueue("t", name, 0) for name in "abc")
    kinds.note_answer("t", "a", whole=True)
    kinds.note_answer("t", "b", whole=False)
    assert [kinds.stores_whole("t", queue) for queue in (on_a, on_b, on_c, None)] == [True, False, None, None]
    assert [kinds.accepts_inner_batches("t", queue) for queue in (on_a, on_b, on_c, None)] == [
        True,
        False,
        False,
        False,
    ]
    kinds.note_inner_batch_refused("t", "a")
    kinds.note_answer("t", "a", whole=True)
    kinds.note_answer("t", "b", whole=False)  # which is independent of what `a` has refused
    assert not kinds.accepts_inner_batches("t", on_a)
    kinds.note_answer("t", "b", whole=True)  # converted
    assert [kinds.accepts_inner_batches("t", queue) for queue in (on_a, on_b, None)] == [False, True, False]
    now += ASK_AGAIN_S
    assert [kinds.accepts_inner_batches("t", queue) for queue in (on_a, on_b, None)] == [True, True, True]


def test_the_first_refusal_of_a_broker_is_enough() -> None:
    kinds = BatchSupport(brokers=lambda _topic: ("a", "b"))
    kinds.note_answer("t", "a", whole=True)
    kinds.note_inner_batch_refused("t", "b")
    assert (kinds.stores_whole("t"), kinds.accepts_inner_batches("t")) == (None, False)
    kinds.note_answer("u", "a", whole=False)
    kinds.note_compressed_messages_refused("u", "b")
    assert kinds.stores_whole("u") is None


def test_a_broker_that_is_gone_has_no_say() -> None:
    there = ["a", "b"]
    kinds = BatchSupport(brokers=lambda _topic: there)
    kinds.note_answer("t", "a", whole=True)
    kinds.note_answer("t", "b", whole=False)
    there.remove("b")
    assert kinds.accepts_inner_batches("t")


def test_what_a_broker_has_refused_that_is_gone_counts_again_when_it_is_back() -> None:
    there = ["a", "b"]
    kinds = BatchSupport(lambda: 0.0, lambda _topic: there)
    for name in there:
        kinds.note_answer("t", name, whole=True)
    kinds.note_inner_batch_refused("t", "b")
    kinds.note_answer("t", "b", whole=True)
    takes = [kinds.accepts_inner_batches("t")]
    there.remove("b")
    takes.append(kinds.accepts_inner_batches("t"))
    there.append("b")
    takes.append(kinds.accepts_inner_batches("t"))
    assert takes == [False, True, False]


def test_one_broker_that_knows_no_batches_keeps_them_from_nobody_else() -> None:
    now = 100.0
    of_topic = {"t": ("a", "b"), "u": ("a",), "new": ()}
    kinds = BatchSupport(lambda: now, of_topic.__getitem__)
    on_a, on_b = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)
    states = [kinds.all_accept_batches]
    kinds.note_batches_refused("a")
    states.append(kinds.all_accept_batches)
    assert [kinds.accepts_batches("t", queue) for queue in (on_a, on_b, None)] == [False, True, True]
    assert [kinds.accepts_batches(topic) for topic in ("u", "new")] == [False, True]
    assert kinds.brokers_without_batches() == {"a"}
    now += broker_features.REFUSAL_ASK_AGAIN_S
    assert kinds.accepts_batches("u")
    assert [*states, kinds.all_accept_batches] == [True, False, True]
