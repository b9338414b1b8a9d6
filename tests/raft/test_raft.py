"""Messages that a single member accepts or refuses. Transcripts and the simulation test whole groups."""

from __future__ import annotations

from random import Random

import pytest

from raptormq.raft import (
    ZERO,
    AddMember,
    Append,
    AppendResponse,
    Configuration,
    DataAppended,
    Entry,
    HardState,
    Hello,
    HelloResponse,
    Install,
    Member,
    Message,
    Options,
    Position,
    Promise,
    PromoteMember,
    ProposalRefused,
    Raft,
    ReadIndex,
    Ready,
    RemoveMember,
    Role,
    Saved,
    TimeoutNow,
    TransferLeadership,
    Truncate,
    VoteRequest,
    VoteResponse,
)
from raptormq.raft.raft import CONFLICT_ELECTIONS

GROUP = 77
MEMBERS = Configuration.of([Member("n0", 10), Member("n1", 11), Member("n2", 12)])
PEERS = {"n0": "", "n1": "", "n2": ""}


def member(
    options: Options | None = None, *, end: int = 100, commit: Position = ZERO, entries: tuple[Entry, ...] = ()
) -> Raft:
    """Return n0 of a group that is in term 1, after all others have said that it has what it has promised."""
    saved = Saved(HardState(1, "", 10, 1, GROUP), entries or (Entry(1, 0, MEMBERS),), end=end, commit=commit)
    raft = Raft("n0", saved, options or Options(peers=PEERS), Random(1), lambda start, limit: limit)
    raft.tick(0)
    for sent in work(raft):
        assert isinstance(sent, Hello)
        raft.step(HelloResponse(**head(sent.to), asked_boot=sent.boot, promise=Promise()))  # type: ignore[arg-type]
    return raft


def restarted(state: HardState | None = None, configuration: Configuration = MEMBERS) -> Raft:
    """Return n0 just after its start."""
    saved = Saved(state or HardState(1, "", 10, 1, GROUP), (Entry(1, 0, configuration),), end=100)
    raft = Raft("n0", saved, Options(peers=PEERS), Random(1), lambda start, limit: limit)
    raft.tick(0)
    work(raft)
    return raft


def work(raft: Raft) -> list[Message]:
    """Execute everything that is ready, and return the sent messages."""
    sent: list[Message] = []
    while (ready := raft.ready()) is not None:
        sent += ready.messages
        raft.advance(ready)
    return sent


def pass_time(raft: Raft, start: int, milliseconds: int) -> list[Message]:
    sent = []
    for now in range(start, start + milliseconds + 1, 100):
        raft.tick(now)
        sent += work(raft)
    return sent


def head(sender: str = "n1", term: int = 1) -> dict[str, object]:
    return {
        "sender": sender, "to": "n0", "term": term, "incarnation": 10 + int(sender[1]), "boot": 1,
        "to_incarnation": 10, "group": GROUP,
    }  # fmt: skip


def answer(raft: Raft, sent: list[Message], voters: tuple[str, ...] = ("n1",)) -> list[Message]:
    """Let members grant votes and acknowledge all appends."""
    for message in sent:
        if message.to not in voters:
            continue
        if isinstance(message, VoteRequest):
            term = message.term - 1 if message.pre else message.term
            fields = {**head(message.to, term), "asked_term": message.term, "granted": True, "pre": message.pre}
            raft.step(VoteResponse(**fields))  # type: ignore[arg-type]
        elif isinstance(message, Append):
            fields = {**head(message.to, message.term), "matched": message.end, "received": message.end}
            raft.step(AppendResponse(**fields, round=message.round))  # type: ignore[arg-type]
    return work(raft)


def leader(options: Options | None = None, voters: tuple[str, ...] = ("n1", "n2")) -> Raft:
    raft = member(options)
    sent = pass_time(raft, 0, 2000)
    for _ in range(6):
        sent = answer(raft, sent, voters)
    assert raft.role is Role.LEADER
    assert raft.accepts_data
    return raft


def test_a_ready_has_to_be_advanced_before_the_next() -> None:
    raft = member()
    pass_time(raft, 0, 900)
    raft.tick(1500)
    raft.tick(2000)
    raft.tick(2500)
    ready = raft.ready()
    assert ready is not None
    with pytest.raises(RuntimeError, match="advanced first"):
        raft.ready()
    with pytest.raises(RuntimeError, match="only the outstanding"):
        raft.advance(Ready(None, (), (), None, ()))
    raft.advance(ready)


def test_a_stopped_process_does_not_campaign_at_once() -> None:
    raft = member()
    raft.step(Append(**head(), previous=ZERO, previous_term=0, end=ZERO))  # type: ignore[arg-type]
    work(raft)
    raft.tick(3_600_000)
    assert not [message for message in work(raft) if isinstance(message, VoteRequest)]
    assert raft.role is Role.FOLLOWER


def test_a_clock_that_goes_back_does_no_harm() -> None:
    raft = member()
    raft.tick(500)
    raft.tick(100)
    pass_time(raft, 100, 2000)
    assert raft.role is Role.PRE_CANDIDATE


@pytest.mark.parametrize(
    ("field", "value"),
    [("to_incarnation", 99), ("to_incarnation", 0), ("group", 78), ("to", "n1"), ("sender", "n0")],
)
def test_a_message_that_is_not_for_this_disk_is_dropped(field: str, value: object) -> None:
    raft = member()
    fields = {**head(term=5), field: value}
    raft.step(VoteRequest(**fields, last_term=5, end=Position(900, 9)))  # type: ignore[arg-type]
    assert raft.term == 1
    assert work(raft) == []


def test_another_group_is_named() -> None:
    raft = member()
    raft.step(Append(**{**head(), "group": 78}, previous=ZERO, previous_term=0, end=ZERO))  # type: ignore[arg-type]
    assert raft.status().conflict == "n1 belongs to another group (4e)"


def test_a_leader_without_what_is_confirmed_is_refused() -> None:
    raft = member(end=100, commit=Position(100, 1))
    entries = (Entry(1, 0, MEMBERS), Entry(9, 50))
    raft.step(
        Append(**head(term=9), previous=ZERO, previous_term=0, end=Position(50, 2), entries=entries)  # type: ignore[arg-type]
    )
    ready = raft.ready()
    assert ready is not None
    assert not [effect for effect in ready.log if isinstance(effect, Truncate)]
    assert not [message for message in ready.messages if isinstance(message, AppendResponse)]
    status = raft.status()
    assert (status.end, status.committed) == (Position(100, 1), Position(100, 1))
    assert status.conflict == (
        "n1 leads term 9, but its log lacks data committed up to 100+1: it diverges from the log of n0 at 50+1"
    )


def test_member_that_recovers_from_a_power_loss_recovers_after_its_next_start() -> None:
    assert restarted(HardState(1, "", 10, 1, GROUP, recovering=True)).status().recovering


def test_snapshot_does_not_replace_a_log_that_contains_its_beginning() -> None:
    raft = member(end=100)
    raft.step(Append(**head(), previous=Position(100, 1), previous_term=1, end=Position(100, 1)))  # type: ignore[arg-type]
    [response] = [message for message in work(raft) if isinstance(message, AppendResponse)]
    assert response.matched == Position(100, 1), "the leader may count this member, which does not know it yet"
    assert raft.status().committed < Position(50, 1)
    raft.step(Install(**head(), start=Position(50, 1), entries=(Entry(1, 0, MEMBERS),)))  # type: ignore[arg-type]
    ready = raft.ready()
    assert ready is not None
    assert not ready.log
    assert raft.status().end == Position(100, 1)


def test_snapshot_of_a_leader_without_what_is_confirmed_is_refused() -> None:
    raft = member(end=100, commit=Position(100, 1))
    entries = (Entry(1, 0, MEMBERS), Entry(9, 50))
    raft.step(Install(**head(term=9), start=Position(200, 2), entries=entries))  # type: ignore[arg-type]
    ready = raft.ready()
    assert ready is not None
    assert not ready.log
    status = raft.status()
    assert (status.end, status.committed) == (Position(100, 1), Position(100, 1))
    assert status.conflict.startswith("n1 leads term 9, but its log lacks data committed up to 100+1")
    assert status.diverged == status.conflict


def test_a_member_that_may_not_lead_does_not_campaign() -> None:
    raft = member()
    raft.eligible = False
    pass_time(raft, 0, 5000)
    assert raft.role is Role.FOLLOWER
    raft.step(TimeoutNow(**head()))  # type: ignore[arg-type]
    assert raft.role is Role.FOLLOWER


def lead(raft: Raft, start: int, milliseconds: int) -> list[Message]:
    """Advance the time of a leader whose followers respond. Return the sent messages."""
    sent: list[Message] = []
    for now in range(start, start + milliseconds, 100):
        raft.tick(now)
        sent += (messages := work(raft))
        sent += answer(raft, messages, ("n1", "n2"))
    return sent


def test_a_leader_that_may_not_lead_any_more_hands_over() -> None:
    raft = leader()
    raft.eligible = False
    assert [message.to for message in lead(raft, 2100, 4000) if isinstance(message, TimeoutNow)]
    raft = leader()
    assert not [message.to for message in lead(raft, 2100, 4000) if isinstance(message, TimeoutNow)]


def test_leadership_moves_to_the_preferred_leader() -> None:
    raft = leader(Options(peers=PEERS, preferred_leader="n2"))
    assert {message.to for message in lead(raft, 2100, 4000) if isinstance(message, TimeoutNow)} == {"n2"}


def test_a_transfer_that_fails_ends() -> None:
    raft = leader()
    raft.propose(TransferLeadership("n1"))
    work(raft)
    assert [raft.accepts_data, raft.status().transferring_to] == [False, "n1"]
    lead(raft, 2100, 1400)
    assert [raft.accepts_data, raft.status().transferring_to] == [True, ""]


def test_a_write_under_way_does_not_count_for_what_replaces_it() -> None:
    raft = member(end=0)
    raft.step(
        Append(**head(), previous=Position(0, 1), previous_term=1, end=Position(100, 1))  # type: ignore[arg-type]
    )
    writing = raft.ready()
    assert writing is not None
    raft.step(
        Append(**head("n2", 2), previous=Position(0, 1), previous_term=1, end=Position(0, 2), entries=(Entry(2, 0),))  # type: ignore[arg-type]
    )
    raft.advance(writing)
    cutting = raft.ready()
    assert cutting is not None
    raft.step(
        Append(**head("n2", 2), previous=Position(0, 2), previous_term=2, end=Position(60, 2))  # type: ignore[arg-type]
    )
    raft.advance(cutting)
    assert raft.status().stored == Position(0, 2)
    work(raft)
    assert raft.status().stored == Position(60, 2)


def test_an_append_that_waits_to_be_sent_is_not_sent_after_a_truncation() -> None:
    raft = leader()
    raft.tick(2200)
    outstanding = raft.ready()
    assert outstanding is not None
    raft.propose(DataAppended(200))
    entries = (Entry(9, 100),)
    raft.step(
        Append(**head(term=9), previous=Position(100, 2), previous_term=2, end=Position(100, 3), entries=entries)  # type: ignore[arg-type]
    )
    raft.advance(outstanding)
    assert raft.status().end == Position(100, 3)
    assert not [message for message in work(raft) if isinstance(message, Append)]


def test_a_leader_without_a_majority_steps_down() -> None:
    raft = leader()
    pass_time(raft, 2100, 3000)
    assert raft.role is not Role.LEADER
    assert not raft.accepts_data


@pytest.mark.parametrize(
    ("proposal", "reason"),
    [
        (DataAppended(50), "the log already ends at 100, beyond 50"),
        (TransferLeadership("n0"), "n0 is already the leader"),
        (TransferLeadership("n7"), "n7 is not a voter of the group"),
        (AddMember("n7"), "n7 has not contacted the leader: start it with an empty disk first"),
        (PromoteMember("n7"), "n7 is not a member of the group"),
        (PromoteMember("n1"), "n1 is already a voter"),
        (RemoveMember("n7"), "n7 is not a member of the group"),
    ],
    ids=str,
)
def test_what_a_leader_refuses(proposal: DataAppended | AddMember, reason: str) -> None:
    raft = leader()
    before = raft.status()
    with pytest.raises(ProposalRefused, match=reason):
        raft.propose(proposal)
    assert raft.status() == before


def test_a_removal_that_leaves_no_majority_is_refused() -> None:
    raft = leader()
    for now in range(2100, 3600, 100):  # n2 does not respond
        raft.tick(now)
        answer(raft, work(raft), ("n1",))
    with pytest.raises(ProposalRefused, match="without n1 the group has no majority of live voters"):
        raft.propose(RemoveMember("n1"))
    assert raft.propose(RemoveMember("n2")) == Position(100, 3)


def test_a_follower_names_the_leader() -> None:
    raft = member()
    with pytest.raises(ProposalRefused, match="no leader is known"):
        raft.propose(ReadIndex("r"))
    raft.step(Append(**head(), previous=ZERO, previous_term=0, end=ZERO))  # type: ignore[arg-type]
    with pytest.raises(ProposalRefused, match="n0 is not the leader") as refused:
        raft.propose(DataAppended(200))
    assert refused.value.leader == "n1"


def test_a_member_whose_disk_has_other_data_cannot_join() -> None:
    raft = leader()
    fields = {**head("n3", 0), "incarnation": 5, "group": 0, "to_incarnation": 0}
    raft.step(Hello(**fields, has_data=True))  # type: ignore[arg-type]
    assert raft.status().conflict == "n3 cannot join with data of another group: its disk must be empty"
    with pytest.raises(ProposalRefused, match="n3 has not contacted the leader"):
        raft.propose(AddMember("n3"))


def test_a_conflict_is_over_when_it_does_not_occur_again() -> None:
    raft = leader()
    fields = {**head("n3", 0), "incarnation": 5, "group": 0, "to_incarnation": 0}
    election_ms, now = Options().election_ms, 0

    def pass_elections(count: int) -> None:
        nonlocal now
        pass_time(raft, now, count * election_ms)
        now += count * election_ms

    for _ in range(2):
        raft.step(Hello(**fields, has_data=True))  # type: ignore[arg-type]
        pass_elections(CONFLICT_ELECTIONS - 10)
    assert raft.status().conflict
    pass_elections(20)
    assert not raft.status().conflict


def test_data_without_a_group_is_a_conflict_until_it_has_one() -> None:
    raft = fresh("n0", 10, 500)
    work(raft)
    raft.step(Append(**head(), previous=ZERO, previous_term=0, end=ZERO))  # type: ignore[arg-type]
    pass_time(raft, 0, 2 * CONFLICT_ELECTIONS * Options().election_ms)
    assert raft.status().conflict


def fresh(member_id: str, incarnation: int, end: int = 0, peers: dict[str, str] | None = None) -> Raft:
    saved = Saved(HardState(incarnation=incarnation), end=end, commit=Position(end, 0))
    raft = Raft(member_id, saved, Options(peers=peers or PEERS), Random(1), lambda start, limit: limit)
    raft.tick(0)
    return raft


def test_a_store_with_data_becomes_the_first_member() -> None:
    raft = fresh("n0", 10, 500, {"n0": "host:1"})
    pass_time(raft, 0, 2000)
    assert raft.accepts_data
    assert raft.committed == Position(500, 1)
    assert raft.entries == (Entry(1, 500, Configuration.of([Member("n0", 10, address="host:1")])),)


def test_two_disks_with_data_do_not_form_a_group() -> None:
    raft = fresh("n0", 10, 500)
    fields = {"to": "n0", "term": 0, "boot": 1}
    for now in range(0, 3000, 100):
        raft.step(Hello(sender="n1", incarnation=11, **fields, has_data=True))  # type: ignore[arg-type]
        raft.step(Hello(sender="n2", incarnation=12, **fields))  # type: ignore[arg-type]
        raft.tick(now)
        work(raft)
    assert raft.status().conflict == "n0 and n1 both have data, but no group: one of them must be empty"
    assert raft.role is Role.FOLLOWER


def test_a_store_with_data_does_not_follow_a_group() -> None:
    raft = fresh("n0", 10, 500)
    work(raft)
    raft.step(Append(**head(), previous=ZERO, previous_term=0, end=ZERO))  # type: ignore[arg-type]
    status = raft.status()
    assert (status.group, status.end.offset) == (0, 500)
    assert status.conflict == "n1 leads a group, but this disk has data that belongs to no group"


def test_store_with_data_has_diverged_from_a_group_that_sends_to_its_former_disk() -> None:
    raft = fresh("n0", 99, 500)
    work(raft)
    raft.step(Append(**head(), previous=ZERO, previous_term=0, end=ZERO))  # type: ignore[arg-type]
    pass_time(raft, 0, 2 * CONFLICT_ELECTIONS * Options().election_ms)
    raft.step(Append(**head("n2"), previous=ZERO, previous_term=0, end=ZERO))  # type: ignore[arg-type]
    assert raft.status().diverged == "n1 belongs to a group, but this disk has data that belongs to no group"


def test_divergence_lasts_until_a_leader_has_what_is_confirmed() -> None:
    raft = member(end=100, commit=Position(100, 1))
    entries = (Entry(1, 0, MEMBERS), Entry(9, 50))
    raft.step(
        Append(**head(term=9), previous=ZERO, previous_term=0, end=Position(50, 2), entries=entries)  # type: ignore[arg-type]
    )
    pass_time(raft, 0, 2 * CONFLICT_ELECTIONS * Options().election_ms)
    assert "its log lacks data committed up to 100+1" in raft.status().diverged
    found = Position(100, 1)
    raft.step(Append(**head(term=raft.term + 1), previous=found, previous_term=1, end=found))  # type: ignore[arg-type]
    assert raft.status().diverged == ""


def test_message_of_another_group_is_a_divergence_only_without_a_leader() -> None:
    raft = member()
    foreign = {**head("n2"), "group": 78, "to_incarnation": 0}
    raft.step(Hello(**foreign, fresh=False, has_data=True))  # type: ignore[arg-type]
    assert raft.status().diverged == "n2 belongs to another group (4e)"
    raft.step(Append(**head(), previous=ZERO, previous_term=0, end=ZERO))  # type: ignore[arg-type]
    assert raft.status().diverged == ""
    raft.step(Hello(**foreign, fresh=False, has_data=True))  # type: ignore[arg-type]
    assert raft.status().diverged == ""


def test_what_cannot_be_started() -> None:
    def start(incarnation: int, peers: dict[str, str]) -> Raft:
        saved = Saved(HardState(incarnation=incarnation))
        return Raft("n0", saved, Options(peers=peers), Random(1), lambda start, limit: limit)

    with pytest.raises(ValueError, match="does not contain this member, n0"):
        start(10, {"n1": "", "n2": ""})
    with pytest.raises(ValueError, match="the incarnation is not set"):
        start(0, PEERS)
    with pytest.raises(ValueError, match="at least twice"):
        Options(heartbeat_ms=600, election_ms=1000)
