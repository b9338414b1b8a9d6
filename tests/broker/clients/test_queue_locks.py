"""Queue locks: one owner at a time, for 60 s after its last request by default."""

from __future__ import annotations

from raptormq.broker.clients.queue_locks import QueueLocks
from raptormq.broker.config.config import QUEUE_LOCK_MS
from raptormq.protocol.message import MessageQueue

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


def test_a_locked_queue_is_refused_to_others_and_renewed_by_its_owner() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "one", [Q0, Q1], 0) == [Q0, Q1]
    assert locks.lock("g", "two", [Q0, Q1], 1) == []
    assert locks.lock("g", "one", [Q0], QUEUE_LOCK_MS) == [Q0]
    assert locks.lock("g", "two", [Q0, Q1], QUEUE_LOCK_MS) == []
    assert locks.lock("g", "two", [Q0, Q1], QUEUE_LOCK_MS + 1) == [Q1]


def test_a_lock_lives_as_long_as_it_is_told() -> None:
    locks = QueueLocks(live_ms=1)
    assert locks.lock("g", "one", [Q0], 10) == [Q0]
    assert locks.lock("g", "two", [Q0], 11) == []
    assert locks.lock("g", "two", [Q0], 12) == [Q0]


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
    locks.expire(QUEUE_LOCK_MS)
    assert len(locks) == 1
    locks.expire(QUEUE_LOCK_MS + 1)
    assert len(locks) == 0
    assert locks.lock("g", "two", [Q1], QUEUE_LOCK_MS + 1) == [Q1]


def test_the_lock_of_who_is_gone_is_free() -> None:
    locks = QueueLocks()
    locks.lock("g", "dead", [Q0, Q1], now_ms=0)
    assert locks.lock("g", "alive", [Q0], 1) == []
    assert locks.lock("g", "alive", [Q0], 1, lambda owner: owner == "dead") == [Q0]
    assert locks.lock("g", "dead", [Q0, Q1], 1, lambda owner: owner == "alive") == [Q0, Q1]
