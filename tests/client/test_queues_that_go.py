"""Which queues a member takes, and how it lets others go, for what claims and commits answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import cast

import pytest

from raptormq.client import MessageQueue
from raptormq.client.consumer.handover import HandOver, QueueClaims
from raptormq.client.consumer.offset_commits import Commits
from raptormq.client.consumer.queue_reader import QueueReader


class Claims:
    """Stands where claims are: grants what it is told to."""

    def __init__(self) -> None:
        self.granted: set[MessageQueue] = set()
        self.released: list[MessageQueue] = []
        self.silent: set[str] = set()

    async def claim(self, queues: list[MessageQueue]) -> set[MessageQueue]:
        return self.granted & set(queues)

    async def release(self, queues: list[MessageQueue], unreached: Collection[str] = ()) -> set[str]:
        asked = [queue for queue in queues if queue.broker_name not in unreached]
        self.released += asked
        return {queue.broker_name for queue in asked} & self.silent


def taking(claims: Claims | None, timeout: float = 1000.0) -> HandOver:
    return HandOver(cast("QueueClaims", claims), cast("Commits", None), timeout)


SOME = [MessageQueue("t", "broker-0", number) for number in range(3)]


async def test_a_queue_is_taken_as_soon_as_its_member_has_given_its_claim_back() -> None:
    claims = Claims()
    claims.granted = {SOME[0]}
    hand_over = taking(claims)
    assert await hand_over.takable("t", SOME, {SOME[0]}) == [SOME[0]]
    assert hand_over.awaited_topics == {"t"}
    claims.granted = {SOME[2]}
    assert await hand_over.takable("t", SOME[1:], set()) == [SOME[2]]
    assert await hand_over.takable("t", [], set()) == []  # the other one went to somebody else again
    assert claims.released == [SOME[1]]
    assert hand_over.awaited_topics == set()


@pytest.mark.parametrize(("moment", "taken"), [(1000.0, []), (0.0, SOME)])
async def test_members_without_claims_get_a_moment(
    monkeypatch: pytest.MonkeyPatch, moment: float, taken: list[MessageQueue]
) -> None:
    monkeypatch.setattr("raptormq.client.consumer.handover._MOMENT_S", moment)
    claims = Claims()
    claims.granted = set(SOME)
    hand_over = taking(claims)
    await hand_over.takable("t", SOME, set())
    assert await hand_over.takable("t", SOME, set()) == taken
    assert await hand_over.takable("t", SOME, set(SOME)) == SOME  # their members are gone


@pytest.mark.parametrize(("timeout", "taken"), [(1000.0, []), (-1.0, SOME[:1])])
async def test_the_claims_of_the_dead_are_waited_for_where_they_do_not_end_with_them(
    timeout: float, taken: list[MessageQueue]
) -> None:
    hand_over = taking(Claims(), timeout)
    await hand_over.takable("t", SOME, set())
    assert await hand_over.takable("t", SOME, {SOME[0]}) == taken


async def test_broadcasting_waits_for_nobody() -> None:
    assert await taking(None).takable("t", SOME, set(SOME)) == SOME


class Stored:
    """Stands where commits are."""

    def __init__(self) -> None:
        self.committed: list[MessageQueue] = []
        self.unreached: set[str] = set()

    async def commit(self, readers: list[QueueReader]) -> set[str]:
        self.committed += [reader.queue for reader in readers]
        return self.unreached

    def forget(self, queue: MessageQueue) -> None:
        """Nothing is kept."""


class IdleReader:
    """Reads a queue in which nothing is."""

    is_busy = False

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.is_given = False

    def leave(self) -> None:
        """Nothing is under way."""

    async def quiet(self, timeout: float) -> None:
        """Nobody has messages."""

    def let_go(self) -> None:
        self.is_given = True


@pytest.mark.parametrize("fails", ["commits", "releases"])
async def test_a_silent_broker_is_waited_for_once_whatever_the_number_of_its_queues(fails: str) -> None:
    commits, claims = Stored(), Claims()
    if fails == "commits":
        commits.unreached = {"broker-0"}
    else:
        claims.silent = {"broker-0"}
    hand_over = HandOver(cast("QueueClaims", claims), cast("Commits", commits), 1000.0)
    readers = [IdleReader(MessageQueue("t", f"broker-{number % 2}", number)) for number in range(1000)]
    hand_over.give(cast("list[QueueReader]", readers))
    await hand_over.given()
    assert all(reader.is_given for reader in readers)
    at = Counter(queue.broker_name for queue in commits.committed)
    assert (at["broker-0"], at["broker-1"]) == (50, 500)
    at = Counter(queue.broker_name for queue in claims.released)
    assert (at["broker-0"], at["broker-1"]) == (0 if fails == "commits" else 50, 500)
