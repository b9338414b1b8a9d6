"""What a member says while it waits: for whom, since when, and what ends it."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from raptormq.broker.replication.waiting import Waiting, cause_of_wait, shortage_of
from raptormq.raft import Begin, Contact, LostRange, Member, Position, Role, Status, Suffrage
from tests.broker.replication.test_status import THREE, leader

PEERS = ("n0", "n1", "n2")
ELECTION_MS, SHORTENED_WAIT_MS = 1_000, 60_000
N1, N2 = Contact("n1", 2, False, 10), Contact("n2", 3, False, 10)


def leaderless(*contacts: Contact, **changes: Any) -> Status:
    return leader(role=Role.FOLLOWER, leader="", members=(), contacts=contacts, **changes)


def cause(status: Status) -> str:
    return cause_of_wait(status, PEERS, ELECTION_MS, SHORTENED_WAIT_MS)


@pytest.mark.parametrize("status", [leader(), leader(role=Role.FOLLOWER, leader="n1", members=())])
def test_member_of_a_group_with_a_leader_does_not_wait(status: Status) -> None:
    assert cause(status) == ""


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (leaderless(), "1 of 3 voters answer, and 2 must; no answer from n1, n2: start what is stopped"),
        (leaderless(N1, N2._replace(silent_ms=3_000)), "2 of 3 voters answer, and 2 must; no answer from n2"),
        (leaderless(N1._replace(incarnation=9, is_new=True), N2._replace(incarnation=8, is_new=True)),
         r"1 of 3 voters answer, and 2 must; a new disk, which cannot vote, at n1, n2: put a former disk.* n0 alone"),
        (leaderless(N1, N2, is_checked=False), "n0 votes when the others have confirmed that its disk has all"),
        (leaderless(N1, N2, recovering=True), "n0 has lost power and may lack confirmed messages, so all voters must"),
        (leaderless(N1, N2, start=700, begin=Begin(4, 0), leaderless_ms=20_000),
         r"the log of n0 begins too late: it may lead in 40 s \(dLegerShortenedLogWait\)"),
        (leaderless(N1._replace(is_new=True), group=0), "formed when all members have started: no answer from n2"),
        (leaderless(N1, N2, group=0), r"the disk of n0 is new, and the group exists \(answer of n1, n2\): it joins"),
        (leader(role=Role.FOLLOWER, leader="n1", incarnation=77), "the leader n1 has not added the disk of n0"),
        (leader(role=Role.FOLLOWER, leader="n1", recovering=True), "n0 has lost power, and votes when it has what n1"),
        (leader(role=Role.FOLLOWER, leader="n1", stored=Position(4, 3), committed=Position(10, 3),
                configuration=THREE.with_member(Member("n0", 1, Suffrage.JOINING))),
         "n0 copies the log of n1, lacks 6 bytes, and votes when it has them"),
    ],
)  # fmt: skip
def test_cause_names_the_members_and_what_ends_the_wait(status: Status, text: str) -> None:
    assert re.search(text, cause(status)), cause(status)


def test_shortage_names_the_offsets() -> None:
    status = leader(start=700, begin=Begin(4, 300), lost=LostRange(0, 300))
    assert status.shortened_by == 400
    assert "the log of member n0 begins at 700, and that of the group at 300: n0 is not elected" in shortage_of(status)
    assert "messages are lost: offsets 0 to 300 of the log" in shortage_of(status)
    assert shortage_of(leader(start=300, begin=Begin(4, 300))) == ""


def test_wait_is_logged_once_a_minute_and_names_its_beginning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "raptormq")
    waiting = Waiting(PEERS, ELECTION_MS, SHORTENED_WAIT_MS)
    for now_ms in range(0, 130_000, 50):
        waiting.update(leaderless(N1), now_ms, lambda: 1_000_000_000.0)
        assert waiting.remark.startswith("waits since 2001-09-09T01:46:40Z: the group has no leader: 2 of 3 voters")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3, "after 5, 65 and 125 s"
    assert all(line == f"member n0 {waiting.remark}" for line in lines)
    waiting.update(leader(), 130_000)
    assert waiting.remark == ""


def test_election_that_ends_soon_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "raptormq")
    waiting = Waiting(PEERS, ELECTION_MS, SHORTENED_WAIT_MS)
    for now_ms in range(0, 20_000, 4_000):
        waiting.update(leaderless(N1, N2), now_ms)
        waiting.update(leader(), now_ms + 3_000)
    assert caplog.records == []
