"""What a client learns of topics from the answers to its batches."""

from __future__ import annotations

from raptormq.client.queue_kinds import QueueKinds


def test_the_answer_to_a_batch_tells_the_kind() -> None:
    kinds = QueueKinds()
    assert (kinds.stores_whole("t"), kinds.takes_wrapped("t")) == (None, False)
    kinds.answered("t", whole=True)
    kinds.answered("u", whole=False)
    assert (kinds.stores_whole("t"), kinds.takes_wrapped("t")) == (True, True)
    assert (kinds.stores_whole("u"), kinds.takes_wrapped("u")) == (False, False)


def test_a_refusal_is_remembered_while_the_topic_stays_what_it_is() -> None:
    kinds = QueueKinds()
    kinds.answered("t", whole=True)
    kinds.refused("t")
    assert kinds.stores_whole("t") is None
    kinds.answered("t", whole=True)
    assert (kinds.stores_whole("t"), kinds.takes_wrapped("t")) == (True, False)
    kinds.answered("t", whole=False)
    kinds.answered("t", whole=True)
    assert kinds.takes_wrapped("t")


def test_what_was_refused_as_compressed_single_messages_may_be_sent_whole() -> None:
    kinds = QueueKinds()
    kinds.answered("t", whole=False)
    kinds.refused("t")
    kinds.answered("t", whole=True)
    assert kinds.takes_wrapped("t")
