"""Assignment and revocation of queues, depending on the responses of locks and commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import cast

import pytest

from raptormq.client import MessageQueue
from raptormq.client.consumer.handover import Handover, QueueLocks
from raptormq.client.consumer.offset_commits import OffsetCommitter
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.rebalance_calls import RebalanceCalls
from raptormq.client.interceptors import ConsumeChain


class Locks:
    """Replacement for the locks, which grants what the test determines."""

    def __init__(self) -> None:
        self.exclusive = False
        self.granted: set[MessageQueue] = set()
        self.unlocked: list[MessageQueue] = []
        self.silent: set[str] = set()

    async def lock(self, queues: list[MessageQueue]) -> set[MessageQueue]:
        return self.granted & set(queues)

    async def unlock(self, queues: list[MessageQueue], unreached: Collection[str] = ()) -> set[str]:
        asked = [queue for queue in queues if queue.broker_name not in unreached]
        self.unlocked += asked
        return {queue.broker_name for queue in asked} & self.silent


def taking(locks: Locks | None, timeout: float = 1000.0) -> Handover:
    return Handover(
        cast("QueueLocks", locks),
        cast("OffsetCommitter", None),
        timeout,
        RebalanceCalls(None, "g", 1.0, ConsumeChain("g", ())),
    )


SOME = [MessageQueue("t", "broker-0", number) for number in range(3)]


async def test_a_queue_is_taken_as_soon_as_its_member_has_unlocked_it() -> None:
    locks = Locks()
    locks.granted = {SOME[0]}
    handover = taking(locks)
    assert await handover.acquire("t", SOME, {SOME[0]}) == [SOME[0]]
    assert handover.pending_topics == {"t"}
    locks.granted = {SOME[2]}
    assert await handover.acquire("t", SOME[1:], set()) == [SOME[2]]
    assert await handover.acquire("t", [], set()) == []  # another member has the other one again
    assert locks.unlocked == [SOME[1]]
    assert handover.pending_topics == set()


@pytest.mark.parametrize(("moment", "taken"), [(1000.0, []), (0.0, SOME)])
async def test_members_without_locks_get_a_moment(
    monkeypatch: pytest.MonkeyPatch, moment: float, taken: list[MessageQueue]
) -> None:
    monkeypatch.setattr("raptormq.client.consumer.handover._UNLOCKED_WAIT_S", moment)
    locks = Locks()
    locks.granted = set(SOME)
    handover = taking(locks)
    await handover.acquire("t", SOME, set())
    assert await handover.acquire("t", SOME, set()) == taken
    assert await handover.acquire("t", SOME, set(SOME)) == SOME  # their members have left


@pytest.mark.parametrize(("timeout", "taken"), [(1000.0, []), (-1.0, SOME[:1])])
async def test_the_locks_of_the_dead_are_waited_for_where_they_do_not_end_with_them(
    timeout: float, taken: list[MessageQueue]
) -> None:
    handover = taking(Locks(), timeout)
    await handover.acquire("t", SOME, set())
    assert await handover.acquire("t", SOME, {SOME[0]}) == taken


async def test_broadcasting_waits_for_nobody() -> None:
    assert await taking(None).acquire("t", SOME, set(SOME)) == SOME


class Stored:
    """Replacement for the commits."""

    def __init__(self) -> None:
        self.committed: list[MessageQueue] = []
        self.unreached: set[str] = set()

    async def commit(self, readers: list[QueueReader]) -> set[str]:
        self.committed += [reader.queue for reader in readers]
        return self.unreached

    def forget(self, queue: MessageQueue) -> None:
        """Keep nothing that must be forgotten."""


class IdleReader:
    """A reader of an empty queue."""

    is_busy = False

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.is_given = False

    def revoke(self) -> None:
        """Return at once, because no message is in progress."""

    async def wait_for_calls(self, timeout: float, *, until_end: bool) -> None:
        """Return at once, because there are no messages."""
        assert not until_end

    def drop(self) -> None:
        self.is_given = True


@pytest.mark.parametrize("fails", ["commits", "unlocks"])
async def test_a_silent_broker_is_waited_for_once_whatever_the_number_of_its_queues(fails: str) -> None:
    commits, locks = Stored(), Locks()
    if fails == "commits":
        commits.unreached = {"broker-0"}
    else:
        locks.silent = {"broker-0"}
    handover = Handover(
        cast("QueueLocks", locks),
        cast("OffsetCommitter", commits),
        1000.0,
        RebalanceCalls(None, "g", 1.0, ConsumeChain("g", ())),
    )
    readers = [IdleReader(MessageQueue("t", f"broker-{number % 2}", number)) for number in range(1000)]
    handover.revoke(cast("list[QueueReader]", readers))
    await handover.wait()
    assert all(reader.is_given for reader in readers)
    at = Counter(queue.broker_name for queue in commits.committed)
    assert (at["broker-0"], at["broker-1"]) == (50, 500)
    at = Counter(queue.broker_name for queue in locks.unlocked)
    assert (at["broker-0"], at["broker-1"]) == (0 if fails == "commits" else 50, 500)
