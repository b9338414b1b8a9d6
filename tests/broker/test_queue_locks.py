"""Queue locks: one owner at a time, 60 s at most."""

from __future__ import annotations

from raptormq.broker.queue_locks import LOCK_MS, QueueLocks
from raptormq.protocol.message import MessageQueue

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


def test_a_locked_queue_is_refused_to_others_and_renewed_by_its_owner() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "one", [Q0, Q1], 0) == [Q0, Q1]
    assert locks.lock("g", "two", [Q0, Q1], 1) == []
    assert locks.lock("g", "one", [Q0], LOCK_MS - 1) == [Q0]
    assert locks.lock("g", "two", [Q0, Q1], LOCK_MS) == [Q1]


def test_groups_do_not_see_each_other() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "one", [Q0], 0) == [Q0]
    assert locks.lock("h", "two", [Q0], 0) == [Q0]


def test_only_the_owner_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [Q0], 0)
    locks.unlock("g", "two", [Q0])
    assert locks.lock("g", "two", [Q0], 1) == []
    locks.unlock("g", "one", [Q0, Q1])
    assert locks.lock("g", "two", [Q0], 2) == [Q0]


def test_expired_locks_are_forgotten_and_make_room() -> None:
    locks = QueueLocks(max_locks=1)
    assert locks.lock("g", "one", [Q0, Q1], 0) == [Q0]
    locks.expire(LOCK_MS - 1)
    assert len(locks) == 1
    locks.expire(LOCK_MS)
    assert len(locks) == 0
    assert locks.lock("g", "two", [Q1], LOCK_MS) == [Q1]
