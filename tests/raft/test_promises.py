"""A disk that lacks what it has promised is found; one that lacks nothing takes part without a delay."""

from __future__ import annotations

import pytest

from raptormq.raft import (
    ZERO,
    Append,
    AppendResponse,
    DataAppended,
    Hello,
    HelloResponse,
    Member,
    MemberPromise,
    Message,
    Position,
    Promise,
    Raft,
    Role,
    Suffrage,
    VoteRequest,
    VoteResponse,
)
from tests.raft.test_raft import MEMBERS, answer, head, leader, member, pass_time, restarted, work

LOG = Promise(5, 3, 2, Position(100, 2))


@pytest.mark.parametrize(
    ("start", "lost_power", "is_broken"),
    [
        (LOG._replace(boot=9), False, False),
        (LOG._replace(boot=9, end=Position(200, 2)), False, False),
        (LOG._replace(boot=9, end=Position(90, 2)), False, True),
        (LOG._replace(boot=9, end=Position(100, 1)), False, True),
        (LOG._replace(boot=9, last_term=1, end=Position(900, 1)), False, True),  # a tail that nobody has confirmed
        (LOG._replace(boot=9, term=2, end=Position(900, 9)), False, True),
        (LOG._replace(boot=9, term=4, last_term=1, end=ZERO), False, False),  # the next leader may have truncated it
        (LOG._replace(boot=9, end=Position(90, 2)), True, False),
        (LOG._replace(boot=9, term=2), True, True),  # votes are not lost with the power
        (LOG._replace(end=ZERO), False, False),  # the same process, which has promised more since
        (LOG._replace(boot=4, end=Position(900, 2)), False, True),
    ],
)
def test_what_breaks_a_promise(start: Promise, lost_power: bool, is_broken: bool) -> None:
    assert LOG.is_broken_by(start, lost_power=lost_power) is is_broken


def respond(raft: Raft, sender: str, promise: Promise | None = None) -> list[Message]:
    boot = raft._state.boot
    raft.step(HelloResponse(**head(sender), asked_boot=boot, promise=promise or Promise()))  # type: ignore[arg-type]
    return work(raft)


def request() -> VoteRequest:
    return VoteRequest(**head("n1", 2), last_term=1, end=Position(100, 1))  # type: ignore[arg-type]


def heartbeat(sender: str = "n1", promises: tuple[MemberPromise, ...] = ()) -> Append:
    end = Position(100, 1)
    return Append(**head(sender), previous=end, previous_term=1, end=end, promises=promises)  # type: ignore[arg-type]


def told_to(raft: Raft, asker: str, start: Promise, *, lost_power: bool = False, outdated: bool = False) -> Promise:
    """Return what a member that starts is told about its promise."""
    fields = head(asker) | {"boot": start.boot, "to_incarnation": 0, "start": start, "outdated": outdated}
    raft.step(Hello(**fields, lost_power=lost_power, fresh=False, asks=True))  # type: ignore[arg-type]
    (response,) = [sent for sent in work(raft) if isinstance(sent, HelloResponse)]
    assert response.asked_boot == start.boot
    return response.promise


def kinds(sent: list[Message]) -> list[type[Message]]:
    return [type(message) for message in sent]


def test_a_started_member_votes_when_all_voters_have_responded() -> None:
    raft = restarted()
    raft.step(request())
    assert kinds(work(raft)) == [Hello], "it asks the candidate"
    respond(raft, "n1")
    raft.step(request())
    assert work(raft) == []
    respond(raft, "n2")
    raft.step(request())
    (response,) = work(raft)
    assert isinstance(response, VoteResponse)
    assert response.granted


def test_a_started_member_votes_after_an_election_timeout_with_a_majority() -> None:
    raft = restarted()
    pass_time(raft, 0, 3000)
    assert raft.role is Role.FOLLOWER, "alone it does not even campaign"
    respond(raft, "n2")
    raft.tick(3100)
    raft.step(request())
    assert VoteResponse in kinds(work(raft))


def test_a_started_member_follows_a_leader_that_has_responded_at_once() -> None:
    raft = restarted()
    respond(raft, "n2")
    raft.step(heartbeat())
    assert kinds(work(raft)) == [Hello]
    respond(raft, "n1")
    raft.step(heartbeat())
    assert kinds(work(raft)) == [AppendResponse]


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
def test_one_response_is_enough_to_be_outdated(order: tuple[str, str]) -> None:
    """Also if it comes when the member takes part already."""
    raft = restarted()
    for sender in order:
        respond(raft, sender, Promise(1, 1, 1, Position(101, 1)) if sender == "n2" else None)
    assert "an older copy of itself" in raft.status().conflict
    for message in (request(), heartbeat()):
        raft.step(message)
        assert work(raft) == []
    raft.tick(9000)
    assert [message.outdated for message in work(raft) if isinstance(message, Hello)] == [True, True]
    again = restarted(raft._state)
    for sender in order:
        respond(again, sender)
    again.step(request())
    assert "an older copy of itself" in again.status().conflict
    assert not again.status().leader
    assert {Hello} >= set(kinds(work(again)))


def test_a_response_to_a_former_process_is_ignored() -> None:
    raft = restarted()
    promise = Promise(1, 9, 9, Position(900, 9))
    raft.step(HelloResponse(**head(), asked_boot=1, promise=promise))  # type: ignore[arg-type]
    assert raft.status().conflict == ""


def test_a_follower_remembers_what_the_leader_tells() -> None:
    raft = member()
    promise = Promise(7, 1, 1, Position(100, 1))
    told = (MemberPromise("n2", 12, promise), MemberPromise("n2", 99, promise), MemberPromise("n0", 10, promise))
    raft.step(heartbeat(promises=told))
    assert MemberPromise("n2", 12, promise) in raft.promises
    assert {each.incarnation for each in raft.promises} <= {11, 12}, "only of disks of members, and not its own"
    assert told_to(raft, "n2", Promise(8)) == promise
    assert raft.status().conflict == "", "the message may come late, from a former process"
    told_to(raft, "n2", Promise(8), outdated=True)
    assert "the disk of n2 is an older copy of itself" in raft.status().conflict


def test_what_no_leader_has_confirmed_is_no_promise() -> None:
    """The leader of a term truncates it in that term. The next process may begin before anything takes its place."""
    raft = member()
    told_to(raft, "n1", Promise(2, 5, 4, Position(1000, 3)))
    truncated = Promise(3, 5, 3, Position(500, 2))
    assert not told_to(raft, "n1", truncated).is_broken_by(truncated, lost_power=False)


def test_the_promise_to_a_leader_outlives_the_process() -> None:
    raft = member()
    promise = Promise(7, 1, 1, Position(100, 1))
    raft.step(heartbeat(promises=(MemberPromise("n2", 12, promise),)))
    told_to(raft, "n2", Promise(8, 1, 1, Position(200, 1)))
    assert told_to(raft, "n2", Promise(9, 1, 1, Position(90, 1))) == promise._replace(boot=8)


def test_power_that_was_lost_is_not_held_against_the_next_process() -> None:
    raft = member()
    raft.step(heartbeat(promises=(MemberPromise("n2", 12, Promise(7, 1, 1, Position(100, 1))),)))
    told_to(raft, "n2", Promise(8, 1, 1, Position(90, 1)), lost_power=True)
    again = Promise(9, 1, 1, Position(90, 1))
    assert not told_to(raft, "n2", again).is_broken_by(again, lost_power=False)


def test_the_disk_counts_again_when_its_copy_is_taken_out() -> None:
    """Also if the process on the copy had the larger number."""
    raft = leader()
    raft.propose(DataAppended(200))
    answer(raft, work(raft))
    assert raft.committed.offset == 200
    copy = told_to(raft, "n1", Promise(9, 1, 1, Position(100, 1)))
    assert copy.end.offset == 200
    original = Promise(5, raft.term, copy.last_term, copy.end)
    assert not told_to(raft, "n1", original).is_broken_by(original, lost_power=False)
    for message in pass_time(raft, 3000, 400):
        if isinstance(message, Append) and message.to == "n1":
            fields = {**head("n1", raft.term), "boot": 5, "matched": message.end, "received": message.end}
            raft.step(AppendResponse(**fields))  # type: ignore[arg-type]
    assert {each.id: each.matched for each in raft.status().members}["n1"] == copy.end


def test_members_that_were_promoted_since_count() -> None:
    """The log of a member that was away may end before the entry that made another one a voter."""
    joining = MEMBERS.with_member(Member("n2", 12, Suffrage.JOINING))
    raft = restarted(configuration=joining)
    respond(raft, "n2")
    pass_time(raft, 0, 1000)
    raft.step(VoteRequest(**head("n2", 2), last_term=1, end=Position(100, 2)))  # type: ignore[arg-type]
    assert VoteResponse in kinds(work(raft))
