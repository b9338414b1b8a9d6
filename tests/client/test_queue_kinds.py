"""What a client learns of topics from the answers to its batches."""

from __future__ import annotations

from raptormq.client.queue_kinds import ASK_AGAIN_S, QueueKinds


def test_the_answer_to_a_batch_tells_the_kind() -> None:
    kinds = QueueKinds()
    assert (kinds.stores_whole("t"), kinds.takes_wrapped("t")) == (None, False)
    kinds.answered("t", whole=True)
    kinds.answered("u", whole=False)
    assert (kinds.stores_whole("t"), kinds.takes_wrapped("t")) == (True, True)
    assert (kinds.stores_whole("u"), kinds.takes_wrapped("u")) == (False, False)


def test_a_refusal_is_remembered_while_the_topic_stays_what_it_is() -> None:
    kinds = QueueKinds(lambda: 0.0)
    kinds.answered("t", whole=True)
    kinds.refused_wrapped("t")
    assert kinds.stores_whole("t") is None
    kinds.answered("t", whole=True)
    assert (kinds.stores_whole("t"), kinds.takes_wrapped("t")) == (True, False)
    kinds.answered("t", whole=False)
    kinds.answered("t", whole=True)
    assert kinds.takes_wrapped("t")


def test_a_refusal_is_not_remembered_for_ever() -> None:
    now = 100.0
    kinds = QueueKinds(lambda: now)
    kinds.answered("t", whole=True)
    kinds.refused_wrapped("t")
    kinds.answered("t", whole=True)
    now += ASK_AGAIN_S - 0.1
    assert not kinds.takes_wrapped("t")
    now += 0.1
    assert kinds.takes_wrapped("t")


def test_what_was_refused_as_compressed_single_messages_may_be_sent_whole() -> None:
    kinds = QueueKinds()
    kinds.answered("t", whole=False)
    kinds.refused_singly_compressed("t")
    assert kinds.stores_whole("t") is None
    kinds.answered("t", whole=True)
    assert kinds.takes_wrapped("t")


def test_late_refusals_do_not_change_what_is_known_by_then() -> None:
    """A topic that is converted answers what was sent before as what it has become."""
    kinds = QueueKinds()
    kinds.answered("t", whole=True)
    kinds.refused_singly_compressed("t")
    assert kinds.takes_wrapped("t")
    kinds.answered("u", whole=False)
    kinds.refused_wrapped("u")
    assert kinds.stores_whole("u") is False
