"""The acknowledgements of slaves for which a SYNC_MASTER waits."""

from __future__ import annotations

from raptormq.broker.ha import SlaveAcknowledgements
from raptormq.errors import SlaveNotAvailable, StorageError

Answers = list[StorageError | None]


def waiting(acknowledgements: SlaveAcknowledgements, end: int) -> Answers:
    answers: Answers = []
    acknowledgements.on_copied(end, answers.append)
    return answers


def test_as_many_slaves_as_are_needed_must_have_it() -> None:
    acknowledgements = SlaveAcknowledgements(2, 1_000, lambda: 100)
    acknowledgements.reported("a", 0)
    (refused,) = waiting(acknowledgements, 100)
    assert isinstance(refused, SlaveNotAvailable)
    acknowledgements.reported("b", 0)
    answers = waiting(acknowledgements, 100)
    acknowledgements.reported("a", 100)
    assert answers == []
    acknowledgements.reported("b", 99)
    assert (answers, acknowledgements.copied_offset) == ([], 99)
    acknowledgements.reported("b", 100)
    assert answers == [None]
    assert waiting(acknowledgements, 100) == [None]


def test_a_slave_that_is_far_behind_does_not_count() -> None:
    end = 1_000
    acknowledgements = SlaveAcknowledgements(1, 1_000, lambda: end)
    acknowledgements.reported("a", 0)
    (refused,) = waiting(acknowledgements, end)
    assert isinstance(refused, SlaveNotAvailable)
    acknowledgements.reported("a", 1)
    assert waiting(acknowledgements, end) == []


def test_who_waits_is_told_when_the_last_slave_goes() -> None:
    acknowledgements = SlaveAcknowledgements(1, 1_000, lambda: 100)
    acknowledgements.reported("a", 0)
    acknowledgements.reported("b", 0)
    answers = waiting(acknowledgements, 100)
    acknowledgements.gone("a")
    assert answers == []
    acknowledgements.gone("b")
    (refused,) = answers
    assert isinstance(refused, SlaveNotAvailable)


def test_what_was_copied_stays_copied() -> None:
    acknowledgements = SlaveAcknowledgements(1, 1_000, lambda: 100)
    acknowledgements.reported("a", 100)
    acknowledgements.gone("a")
    assert waiting(acknowledgements, 100) == [None]
