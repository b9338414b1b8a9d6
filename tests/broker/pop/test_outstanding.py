"""Outstanding checkpoints: acknowledged, due, kept after a failure, and the processed part of the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raptormq.broker.pop.outstanding import Outstanding
from raptormq.errors import BodyError
from raptormq.protocol.bodies.pop import Ack, CheckPoint


def checkpoint(start: int, pop_time: int = 1_000, count: int = 2) -> CheckPoint:
    return CheckPoint("t", "g", 0, start, pop_time, 500, tuple(range(start, start + count)), "broker-a")


def test_what_is_acknowledged_is_not_due() -> None:
    table = Outstanding(100)
    table.add(checkpoint(0), (3, 10))
    table.add(checkpoint(2), (3, 11))
    assert table.acknowledge(checkpoint(0).key, [0, 1])
    assert table.acknowledge(checkpoint(2).key, [2])
    assert not table.acknowledge(checkpoint(2).key, [2])
    assert not table.acknowledge(checkpoint(9).key, [9])
    assert table.due(1_499, 10) == []
    assert table.due(1_500, 10) == [(checkpoint(2), [3])]
    table.remove(checkpoint(2))
    assert len(table) == 0


def test_it_is_full_until_something_is_acknowledged() -> None:
    table = Outstanding(2)
    for start in (0, 2, 4):  # the third like after a crash
        assert table.is_full == (start == 4)
        table.add(checkpoint(start), (0, start))
    assert len(table) == 3
    table.acknowledge(checkpoint(0).key, [0, 1])
    assert table.is_full
    table.acknowledge(checkpoint(2).key, [3, 2, 9])
    assert not table.is_full


def test_a_checkpoint_that_could_not_be_revived_is_due_again() -> None:
    table = Outstanding(100)
    table.add(checkpoint(0), (0, 0))
    assert table.due(2_000, 10) == [(checkpoint(0), [0, 1])]
    assert table.due(2_000, 10) == []
    table.reschedule(checkpoint(0), 3_000)
    assert table.due(2_999, 10) == []
    assert table.due(3_000, 10) == [(checkpoint(0), [0, 1])]


def test_what_comes_back_is_not_waited_for_unless_it_has_to_come_again() -> None:
    table = Outstanding(100)
    table.add(checkpoint(0), (1, 0))
    table.mark_reviving(checkpoint(0))
    table.mark_reviving(checkpoint(2))
    assert not table.is_pending(checkpoint(0).key, [0])
    assert not table.acknowledge(checkpoint(0).key, [0, 1])
    table.reschedule(checkpoint(0), 3_000)
    assert table.acknowledge(checkpoint(0).key, [1])
    assert table.due(3_000, 1) == [(checkpoint(0), [0])]


def test_the_oldest_place_is_the_first_that_is_still_needed() -> None:
    table = Outstanding(100)
    for start in range(0, 6, 2):
        table.add(checkpoint(start), (1, start))
    assert table.oldest_needed(0) is None
    table.remove(checkpoint(2))
    assert table.oldest_needed(1) == 0
    table.remove(checkpoint(0))
    assert table.oldest_needed(1) == 4


def test_a_place_is_needed_from_when_it_is_written_to_when_it_is_given_up_or_done() -> None:
    table = Outstanding(100)
    for place in range(4):
        table.hold((1, place))
    table.add(checkpoint(2), (1, 2))  # before earlier ones
    assert table.oldest_needed(1) == 0
    table.add(checkpoint(0), (1, 0))
    table.release((1, 1))
    table.remove(checkpoint(0))
    assert table.oldest_needed(1) == 2
    table.remove(checkpoint(2))
    assert table.oldest_needed(1) == 3
    table.release((1, 3))
    assert table.oldest_needed(1) is None


@pytest.mark.parametrize("other", [checkpoint(0), checkpoint(2, count=0)])
def test_a_place_whose_checkpoint_is_known_or_empty_is_not_needed(other: CheckPoint) -> None:
    table = Outstanding(100)
    for _ in range(2):  # a failed start begins again
        table.add(checkpoint(0), (1, 0))
    for each in (other, other):
        table.hold((1, 1))
        table.add(each, (1, 1))
    assert table.oldest_needed(1) == 0
    table.remove(checkpoint(0))
    assert (len(table), table.oldest_needed(1)) == (0, None)


def test_a_bounded_number_is_due_at_a_time() -> None:
    table = Outstanding(100)
    for start in range(0, 6, 2):
        table.add(checkpoint(start, pop_time=100 - start), (0, start))
    assert [each.start_offset for each, _ in table.due(10_000, 2)] == [4, 2]
    assert [each.start_offset for each, _ in table.due(10_000, 2)] == [0]


def test_a_message_is_pending_until_its_acknowledgement_is_confirmed() -> None:
    table = Outstanding(100)
    table.add(checkpoint(0), (1, 0))
    key = checkpoint(0).key
    table.begin_acknowledgement(key, [0], 70)
    table.begin_acknowledgement(key, [1], 50)
    assert table.is_pending(key, [0])
    assert table.is_being_acknowledged(key, [0])
    assert table.unconfirmed_end(checkpoint(0)) == 70
    table.lose_acknowledgement(key, [1])
    assert not table.is_being_acknowledged(key, [1])
    assert table.acknowledge(key, [0])
    assert table.unconfirmed_end(checkpoint(0)) is None
    assert table.pending_offsets(checkpoint(0)) == (1, [1])


def test_nothing_of_a_deleted_topic_is_left() -> None:
    table = Outstanding(3)
    of_u = replace(checkpoint(0), topic="u")
    for place, each in enumerate((checkpoint(0), of_u, checkpoint(2))):
        table.add(each, (1, place))
    table.forget_topic("t")
    table.forget_topic("not popped")
    assert (len(table), table.oldest_needed(1)) == (1, 1)
    assert not table.is_pending(checkpoint(0).key, [0])
    assert table.due(1_500, 10) == [(of_u, [0, 1])]


def test_old_entries_do_not_pile_up() -> None:
    table = Outstanding(100)
    for number in range(3_000):
        table.add(checkpoint(number, pop_time=10_000_000, count=1), (0, number))
        table.acknowledge(checkpoint(number, pop_time=10_000_000, count=1).key, [number])
    table.due(0, 1)
    assert len(table._by_time) == 0


def test_bodies_as_the_reference_writes_them() -> None:
    assert CheckPoint.from_json(checkpoint(5).to_json()) == checkpoint(5)
    taken = b'{"bm":2,"bn":"b","c":"g","d":[0,3,4],"it":9,"n":3,"pt":7,"q":1,"ro":0,"so":100,"t":"t"}'
    assert CheckPoint.from_json(taken).offsets == (100, 104)
    old = b'{"bm":0,"c":"g","it":9,"n":2,"pt":7,"q":1,"so":100,"t":"t"}'
    assert CheckPoint.from_json(old).offsets == (100, 101)
    for ack in (Ack("t", "g", 0, 5, 7, (5,), "b"), Ack("t", "g", 0, 5, 7, (5, 6), "b")):
        assert Ack.from_json(ack.to_json()) == ack
    assert [Ack("t", "g", 0, 5, 7, offsets).tag for offsets in ((5,), (5, 6))] == ["ack", "bAck"]


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"so":"x","t":"t","c":"g","q":0,"pt":1,"it":1,"n":1}'])
def test_damaged_bodies(data: bytes) -> None:
    for kind in (CheckPoint, Ack):
        with pytest.raises(BodyError):
            kind.from_json(data)
