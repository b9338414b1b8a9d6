"""The status of a member and its group: unknown state counts as a refusal."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from raptormq.broker.replication.catch_up import CatchUp
from raptormq.broker.replication.duplicate_ids import DuplicateIdDetector
from raptormq.broker.replication.status import LagTimes, has_caught_up, may_restart, state_of
from raptormq.errors import BodyError
from raptormq.protocol.bodies.replication import CAUGHT_UP_MEMBER_BYTES, CopyState, ReplicationState, Verdict
from raptormq.raft import Configuration, Member, MemberStatus, Position, ReadState, Role, Status, Suffrage

END = Position(10 * CAUGHT_UP_MEMBER_BYTES, 3)
THREE = Configuration.of(Member(f"n{number}", number + 1, Suffrage.VOTER, "") for number in range(3))


def other(member: str, **changes: Any) -> MemberStatus:
    return MemberStatus(member, int(member[1:]) + 1, "voter", END, True, 5, False)._replace(**changes)


def leader(*others: MemberStatus, **changes: Any) -> Status:
    found = Status(
        id="n0",
        role=Role.LEADER,
        term=4,
        leader="n0",
        incarnation=1,
        group=9,
        committed=END,
        applied=END,
        stored=END,
        end=END,
        configuration=THREE,
        configuration_committed=True,
        recovering=False,
        accepts_data=True,
        members=others or (other("n1"), other("n2")),
        transferring_to="",
        joining_disks=(),
        elections=1,
        conflict="",
    )
    return found._replace(**changes)


def test_member_whose_store_diverged_has_not_caught_up() -> None:
    catch_up = CatchUp(Random(1))
    catch_up.is_done = True
    follower = leader(id="n1", role=Role.FOLLOWER, leader="n0", members=())
    assert has_caught_up(follower, False, catch_up, "").holds
    verdict = has_caught_up(follower._replace(diverged="n0 lacks data"), False, catch_up, "")
    assert verdict == Verdict(False, "the store of member n1 does not fit the group: n0 lacks data")


BEHIND = Position(END.offset - CAUGHT_UP_MEMBER_BYTES - 1, 3)
JOINING = THREE.with_member(Member("n2", 7, Suffrage.JOINING, ""))


@pytest.mark.parametrize(
    ("status", "member", "allowed", "reason"),
    [
        (leader(), "n0", True, "2 voters have caught up, and the group needs 2"),
        (leader(), "n1", True, "2 voters"),
        (leader(other("n1"), other("n2", active=False, silent_ms=1500)), "n1", False, "n2 has not responded for 1500"),
        (leader(other("n1"), other("n2", active=False)), "n2", True, "2 voters"),
        (leader(other("n1"), other("n2", recovering=True)), "n1", False, "n2 is recovering from a power loss"),
        (
            leader(other("n1"), other("n2", matched=BEHIND)),
            "n0",
            False,
            f"n2 is {CAUGHT_UP_MEMBER_BYTES + 1} bytes behind",
        ),
        (leader(other("n1"), other("n2", matched=BEHIND)), "n2", True, "2 voters"),
        (leader(other("n1"), other("n2", suffrage="joining"), configuration=JOINING), "n1", False, "1 voters"),
        (leader(other("n1"), other("n2", suffrage="joining"), configuration=JOINING), "n2", True, "2 voters"),
        (leader(configuration_committed=False), "n1", False, "a membership change is in progress"),
        (leader(transferring_to="n1"), "n2", False, "being transferred to n1"),
        (leader(accepts_data=False), "n1", False, "does not accept messages"),
        (leader(role=Role.FOLLOWER), "n1", False, "does not lead"),
        (None, "n1", False, "does not lead"),
    ],
)
def test_a_restart_leaves_a_majority_that_has_caught_up(
    status: Status | None, member: str, allowed: bool, reason: str
) -> None:
    verdict = may_restart(status, member)
    assert verdict.holds is allowed
    assert reason in verdict.reason


def follower(**changes: Any) -> Status:
    return leader(role=Role.FOLLOWER, leader="n1", members=(), accepts_data=False)._replace(**changes)


def test_a_follower_has_caught_up_once_it_has_what_was_confirmed_when_it_came_back() -> None:
    catch_up = CatchUp(Random(1))
    catch_up.begin()
    assert not has_caught_up(follower(), False, catch_up, "").holds
    catch_up.on_response(ReadState("caught-up:of-another-time", END))
    assert catch_up.barrier is None
    catch_up.on_response(ReadState(catch_up.due_context, END))
    assert not catch_up.due_context, "the leader is not asked again"
    lacking = follower(applied=Position(END.offset - 70, 3))
    catch_up.update(lacking, END.offset)
    assert "lacks 70 bytes" in has_caught_up(lacking, False, catch_up, "").reason
    catch_up.update(follower(), END.offset - 1)
    assert not catch_up.is_done, "the last record is not dispatched yet"
    stranger = follower(incarnation=99)
    catch_up.update(stranger, END.offset)
    assert "has not joined the group yet" in has_caught_up(stranger, False, catch_up, "").reason
    joining = follower(configuration=THREE.with_member(Member("n0", 1, Suffrage.JOINING, "")))
    catch_up.update(joining, END.offset)
    assert "waits to become a voter" in has_caught_up(joining, False, catch_up, "").reason
    catch_up.update(follower(), END.offset)
    assert has_caught_up(follower(), False, catch_up, "").holds
    assert not has_caught_up(follower(leader=""), False, catch_up, "").holds, "there is no leader"
    assert has_caught_up(None, False, catch_up, "it has stopped") == Verdict(False, "it has stopped")
    catch_up.begin()
    assert not has_caught_up(follower(), False, catch_up, "").holds, "another leader, or the same one after a silence"


def test_who_has_won_an_election_and_takes_no_messages_yet_is_not_ready() -> None:
    catch_up = CatchUp(Random(1))
    catch_up.begin()
    assert not has_caught_up(leader(accepts_data=False), False, catch_up, "").holds
    assert has_caught_up(leader(), True, catch_up, "").holds


def test_the_lag_in_time_is_the_age_of_the_oldest_byte_that_is_missing() -> None:
    lags = LagTimes()
    for now, end in ((1_000, 100), (1_010, 150), (1_100, 200), (1_200, 200), (1_300, 300)):
        lags.sample(now, end)
    assert lags.lag_ms(1_500, 300) == 0
    assert lags.lag_ms(1_500, 299) == 200
    assert lags.lag_ms(1_500, 200) == 200
    assert lags.lag_ms(1_500, 100) == 400
    assert lags.lag_ms(1_500, 0) == 500
    lags.clear()
    assert lags.lag_ms(1_500, 0) == 0


def test_the_leader_sees_all_and_a_follower_sees_itself() -> None:
    lags = LagTimes()
    lags.sample(1_000, END.offset)
    status = leader(other("n1"), other("n2", matched=BEHIND, active=False), configuration=JOINING.without("n1"))
    addresses = {"n0": "a:1", "n1": "b:1", "n2": "c:1"}
    state = state_of(status, True, "g", addresses, lags, 1_400)
    assert state.members == (
        CopyState("n0", "a:1", "leader", 0, 0, True),
        CopyState("n1", "b:1", "absent"),
        CopyState("n2", "c:1", "joining", CAUGHT_UP_MEMBER_BYTES + 1, 400, False),
    )
    assert (state.role, state.leader, state.confirmed_offset) == ("leader", "n0", END.offset)
    seen = state_of(follower(), False, "g", addresses, LagTimes(), 1_400)
    assert (seen.role, seen.leader) == ("follower", "n1")
    assert seen.members[1:] == (
        CopyState("n1", "b:1", "leader", None, None, True),
        CopyState("n2", "c:1", "follower", None, None, None),
    )
    assert state_of(follower(leader=""), False, "g", addresses, LagTimes(), 0).role == "candidate"
    assert ReplicationState.from_json(state.to_json()) == state


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"mode":"dledger","role":1}', b'{"mode":"dledger","role":"leader","members":[1]}',
     b'{"mode":"dledger","role":"leader","term":"x"}', b'{"mode":"dledger","role":"leader","members":[{"id":1}]}'],
)  # fmt: skip
def test_another_body_is_no_state(body: bytes) -> None:
    with pytest.raises(BodyError):
        ReplicationState.from_json(body)


def test_a_process_with_the_identity_of_another_one_is_told_of() -> None:
    detector = DuplicateIdDetector(election_ms=100)
    asks = leader(joining_disks=(("n1", 77),))
    assert detector.check(asks, 0) == ""
    silent = leader(other("n1", active=False), other("n2"), joining_disks=(("n1", 77),))
    assert detector.check(silent, 400) == "", "this disk replaces the old one"
    assert detector.check(asks, 500) == ""
    assert "another process (disk 4d) uses the id of member n1" in detector.check(asks, 1_000)
    assert detector.check(leader(), 1_100) == ""
