"""Messages that no correct member sends: they are refused, and neither stop a member nor change committed records."""

from __future__ import annotations

import random
from typing import Any

import pytest

from raptormq.raft import (
    Append,
    AppendResponse,
    Configuration,
    Entry,
    EpochLog,
    Install,
    Member,
    Message,
    Position,
    ReadIndexRequest,
    ReadIndexResponse,
    Role,
    Suffrage,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from raptormq.raft.raft import MAX_TERM_STEP
from tests.raft.test_raft import head, leader, member, pass_time, work

NUMBERS = (0, 1, 2, 3, 50, 99, 100, 101, 150, 200, 1_000, 1 << 31, 1 << 62)
HISTORIES = 1_500


def position(rng: random.Random) -> Position:
    return Position(rng.choice(NUMBERS), rng.choice((0, 1, 2, 3, 4, 1 << 40)))


def entries(rng: random.Random, count: int) -> tuple[Entry, ...]:
    found = []
    for _ in range(count):
        ids = rng.sample(["n0", "n1", "n2", "n9"], rng.randrange(4))
        members = Configuration.of(Member(each, rng.choice((10, 11, 99)), rng.choice(list(Suffrage))) for each in ids)
        found.append(Entry(rng.choice((1, 2, 3)), rng.choice((0, 50, 100, 150)), rng.choice((None, members))))
    return tuple(found)


def false_message(rng: random.Random, term: int) -> Message:
    fields: dict[str, Any] = head(rng.choice(("n1", "n2")), rng.choice((term, term, term + 1, *NUMBERS)))

    def some() -> Position:
        return position(rng)

    def yes() -> bool:
        return rng.random() < 0.5

    start, end = sorted((some(), some()))
    start, count = Position(min(start.offset, 200), start.entries), rng.randrange(3)
    end = Position(min(max(end.offset, start.offset), 300), start.entries + count)
    number = rng.choice(NUMBERS)
    kinds: tuple[tuple[type[Message], dict[str, Any]], ...] = (
        (VoteRequest, {"last_term": number, "end": end, "pre": yes(), "transfer": yes()}),
        (VoteResponse, {"asked_term": number, "granted": yes(), "pre": yes(), "recovering": yes()}),
        (Append, {
            "previous": start, "previous_term": rng.choice((0, 1, term)), "end": end, "entries": entries(rng, count),
            "commit": some(), "sent": some(), "round": number, "data": bytes(max(0, end.offset - start.offset)),
        }),
        (AppendResponse, {
            "matched": some(), "received": some(), "rejected": yes(), "previous": some(), "hint_term": number,
            "hint": some(), "lost": yes(), "round": number, "recovering": yes(),
        }),
        (Install, {"start": Position(end.offset, count), "entries": entries(rng, count), "round": number}),
        (TimeoutNow, {}),
        (ReadIndexRequest, {"context": "c"}),
        (ReadIndexResponse, {"context": rng.choice(("c", "raft:recover:1")), "position": some()}),
    )  # fmt: skip
    kind, own = rng.choice(kinds)
    return kind(**fields, **own)


def test_no_message_stops_a_member_or_truncates_what_is_committed() -> None:
    rng = random.Random(7)
    accepted = 0
    for number in range(HISTORIES):
        raft = rng.choice((leader, member))()
        for step in range(1, 6):
            message, committed = false_message(rng, raft.term), raft.committed
            if message.fault():
                continue
            accepted += 1
            raft.step(message)
            work(raft)
            if rng.random() < 0.3:
                pass_time(raft, 3_000 * step, 200)
            status = raft.status()
            assert status.end >= committed, f"history {number}: {message}"
            EpochLog(0, status.end.offset, raft.entries)  # a start could load it
    assert accepted > HISTORIES


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(**head(term=3), last_term=4, end=Position(100, 1)),  # type: ignore[arg-type]
        Append(**head(), previous=Position(100, 1), previous_term=1, end=Position(100, 2)),  # type: ignore[arg-type]
        Append(**head(), previous=Position(100, 1), previous_term=1, end=Position(99, 1)),  # type: ignore[arg-type]
        Append(
            **head(term=2), previous=Position(100, 1), previous_term=1, end=Position(100, 2),  # type: ignore[arg-type]
            entries=(Entry(2, 50),),
        ),
        Append(
            **head(term=2), previous=Position(100, 1), previous_term=1, end=Position(100, 2),  # type: ignore[arg-type]
            entries=(Entry(3, 100),),
        ),
        Install(**head(term=2), start=Position(100, 2), entries=(Entry(1, 0),)),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_message_that_contradicts_itself_has_a_fault(message: Message) -> None:
    assert message.fault()


def test_a_false_term_does_not_use_up_the_terms() -> None:
    raft = member()
    false = TimeoutNow(**head(term=2 + MAX_TERM_STEP))  # type: ignore[arg-type]
    raft.step(false)
    assert raft.term == 1
    assert "n1 names the term 4294967298, and the group is in 1" in raft.status().conflict


def test_a_leader_refuses_another_leader_of_its_term() -> None:
    raft = leader()
    end = Position(100, 1)
    raft.step(Append(**head(term=raft.term), previous=end, previous_term=1, end=end))  # type: ignore[arg-type]
    assert raft.role is Role.LEADER
    assert "n1 says that it leads term" in raft.status().conflict


def test_a_leader_confirms_nothing_that_it_does_not_have() -> None:
    raft = leader()
    committed, far = raft.committed, Position(1 << 40, 2)
    for sender in ("n1", "n2"):
        raft.step(AppendResponse(**head(sender, raft.term), matched=far, received=far))  # type: ignore[arg-type]
    assert work(raft) == []
    assert raft.committed == committed
    assert "says that it has the log up to" in raft.status().conflict
