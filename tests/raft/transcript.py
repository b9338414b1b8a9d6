"""Scenarios as text: commands, and below each command the actions of the members. The files in ``scenarios/`` are the
golden transcripts.

A file is a sequence of blocks. A block is a command, a line of dashes and its output::

    # n0 is elected by both of the others
    campaign n0
    ----
    n0 pre-candidate term 0
    n0->n1 VoteRequest term 1 pre log 0@0+0
    ...

Messages of a command wait in the network until ``deliver`` delivers them, so that a scenario determines their order.
Commands:

    group n0 n1 n2 [sync]       members that have formed a group in term 1 with n0 as the leader, and have all of its
    log fresh n3 [peers n0 n1 n3]   start a member on an empty disk
    tick n0 MS                  pass time at one member
    campaign n0                 pass time at one member until it campaigns
    elect n0 n1 [n2]            the same, after the others have given up their leader; deliver the votes among these
    append n0 100               append 100 bytes at the leader
    propose n0 add n3 | promote n3 | remove n1 | transfer n1 | read CONTEXT
    deliver [A->B] [KIND]       deliver the messages that wait, of one link or kind, but not those they lead to
    settle                      deliver until nothing waits
    drop [A->B] [KIND]          lose messages
    hold n0 | work n0           stop and go on with what a member is to write
    flush n0                    flush what is written, and tell the member (of a group with sync)
    mark n0 | flushed n0        the two halves of it
    kill n0 | power n0 OFFSET | wipe n0 | start n0
    meet n0                     deliver its Hello and the responses
    copy n0 | restore n0        keep a copy of its disk; put that copy in its place
    ended n1 n0                 tell n1 that the process of n0 has ended
    deleted n0 OFFSET           retention deletes what is before an offset
    status                      one line for each member

Incarnations are 1, 2, … in the order of the disks. ``python -m tests.raft.transcript`` writes the outputs again. Review
the difference before a commit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

from raptormq.raft import (
    ZERO,
    AddMember,
    Append,
    AppendData,
    AppendEntry,
    DataAppended,
    Entry,
    FlushMark,
    HardState,
    MemberPromise,
    Message,
    Options,
    Position,
    PromoteMember,
    Proposal,
    ProposalRefused,
    Raft,
    ReadIndex,
    Ready,
    RemoveMember,
    Reset,
    Role,
    Saved,
    TransferLeadership,
    Truncate,
)

FOLDER = Path(__file__).parent / "scenarios"
DASHES = "----"
RECORD = 10


class Member:
    """A member and the data on its disk."""

    def __init__(self, member_id: str, incarnation: int, options: Options) -> None:
        self.id = member_id
        self.options = options
        self.state = HardState(incarnation=incarnation)
        self.entries: list[Entry] = []
        self.begin = self.end = 0
        self.commit = ZERO
        self.promises: tuple[MemberPromise, ...] = ()
        self.kept: tuple[Any, ...] | None = None
        self.may_have_lost_data = False
        self.raft: Raft | None = None
        self.held = False
        self.doing: Ready | None = None
        self.mark: FlushMark | None = None
        self.now = 0

    def start(self) -> None:
        saved = Saved(
            self.state, tuple(self.entries), self.begin, self.end, self.commit, self.may_have_lost_data, self.promises
        )
        self.raft = Raft(self.id, saved, self.options, Random(self.id), align)
        self.doing = None
        self.may_have_lost_data = False
        self.tick(0)

    def tick(self, milliseconds: int) -> None:
        assert self.raft is not None
        end = self.now + milliseconds
        while self.now < end:
            self.now = min(end, self.now + self.options.heartbeat_ms)
            self.raft.tick(self.now)
        if milliseconds == 0:
            self.raft.tick(self.now)

    def do(self, effect: Any) -> None:
        match effect:
            case Truncate(end):
                self.end = end.offset
                del self.entries[end.entries :]
            case AppendData(start, end):
                assert start == self.end
                self.end = end
            case AppendEntry(entry):
                assert entry.offset == self.end
                self.entries.append(entry)
            case Reset(end, entries):
                self.begin = self.end = end.offset
                self.entries = list(entries)


def align(start: int, limit: int) -> int:
    return max(limit // RECORD * RECORD, start + RECORD)


class Transcript:
    """Runs commands and collects their output."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.network: list[Message] = []
        self.shown: list[str] = []
        self.disks = 0
        self.sync = False

    def run(self, command: str) -> list[str]:
        """Run one command and return its output."""
        self.shown = []
        name, *words = command.split()
        try:
            getattr(self, f"do_{name}")(words)
            self.pump()
        except ProposalRefused as refused:
            self.show(f"refused: {refused}")
        return self.shown

    def show(self, line: str) -> None:
        self.shown.append(line)

    def raft(self, member_id: str) -> Raft:
        raft = self.members[member_id].raft
        assert raft is not None, f"{member_id} is not running"
        return raft

    # Commands

    def do_group(self, words: list[str]) -> None:
        self.sync = "sync" in words
        ids = [word for word in words if word != "sync"]
        for member_id in ids:
            self.add(member_id, ids)
        quiet = list(self.shown)
        for member in self.members.values():
            member.tick(self.members[ids[0]].options.heartbeat_ms)
        self.do_settle([])
        self.do_campaign([ids[0]])
        for _ in range(3):
            self.do_settle([])
            for member in self.members.values():
                self.do_flush([member.id])
            self.do_settle([])
            self.do_tick([ids[0], "200"])
        self.do_settle([])
        self.shown = quiet
        self.do_status([])

    def do_fresh(self, words: list[str]) -> None:
        self.add(words[0], words[2:] or [*self.members, words[0]])

    def add(self, member_id: str, peers: list[str]) -> None:
        self.disks += 1
        options = Options(peers=dict.fromkeys(peers, ""), sync_flush=self.sync, transfer_bytes=20)
        self.members[member_id] = Member(member_id, self.disks, options)
        self.members[member_id].start()

    def do_tick(self, words: list[str]) -> None:
        self.members[words[0]].tick(int(words[1]))
        self.pump()

    def do_campaign(self, words: list[str]) -> None:
        member, raft = self.members[words[0]], self.raft(words[0])
        for _ in range(20):
            member.tick(200)
            if raft.role is not Role.FOLLOWER:
                break
        self.pump()

    def do_elect(self, words: list[str]) -> None:
        for voter in words[1:]:
            self.members[voter].tick(self.members[voter].options.election_ms)
        self.do_campaign(words)
        for _ in range(4):
            for kind in ("VoteRequest", "VoteResponse"):
                for message in self.take([kind], words):
                    self.receive(message)

    def do_append(self, words: list[str]) -> None:
        member, raft = self.members[words[0]], self.raft(words[0])
        if not raft.accepts_data:
            self.show(f"{member.id} does not accept data")
            return
        member.end += int(words[1])
        raft.propose(DataAppended(member.end))

    def do_propose(self, words: list[str]) -> None:
        member_id, what, argument = words
        kinds: dict[str, type[Any]] = {
            "add": AddMember, "promote": PromoteMember, "remove": RemoveMember, "transfer": TransferLeadership,
            "read": ReadIndex,
        }  # fmt: skip
        proposal: Proposal = kinds[what](argument)
        position = self.raft(member_id).propose(proposal)
        if position is not None:
            self.show(f"committed when {position} is")

    def do_deliver(self, words: list[str]) -> None:
        for message in self.take(words):
            self.receive(message)

    def do_settle(self, words: list[str]) -> None:
        self.pump()
        while self.network:
            for message in self.take([]):
                self.receive(message)
            self.pump()

    def do_drop(self, words: list[str]) -> None:
        self.show(f"{len(self.take(words))} lost")

    def do_hold(self, words: list[str]) -> None:
        self.members[words[0]].held = True

    def do_work(self, words: list[str]) -> None:
        member = self.members[words[0]]
        member.held = False
        if member.doing is not None:
            self.finish(member, member.doing)

    def do_mark(self, words: list[str]) -> None:
        self.members[words[0]].mark = self.raft(words[0]).flush_mark()

    def do_flushed(self, words: list[str]) -> None:
        mark = self.members[words[0]].mark
        assert mark is not None
        self.raft(words[0]).flushed(mark)

    def do_flush(self, words: list[str]) -> None:
        self.do_mark(words)
        self.do_flushed(words)

    def do_kill(self, words: list[str]) -> None:
        self.members[words[0]].raft = None

    def do_ended(self, words: list[str]) -> None:
        self.raft(words[0]).process_ended(words[1])

    def do_power(self, words: list[str]) -> None:
        member = self.members[words[0]]
        member.raft = None
        member.end = min(member.end, int(words[1]))
        member.may_have_lost_data = not self.sync

    def do_wipe(self, words: list[str]) -> None:
        self.add(words[0], list(self.members))

    def do_start(self, words: list[str]) -> None:
        self.members[words[0]].start()

    def do_meet(self, words: list[str]) -> None:
        self.pump()
        self.do_deliver(["Hello", f"{words[0]}->"])
        self.do_deliver(["HelloResponse", f"->{words[0]}"])

    def do_copy(self, words: list[str]) -> None:
        member = self.members[words[0]]
        member.kept = (member.state, list(member.entries), member.begin, member.end, member.commit, member.promises)

    def do_restore(self, words: list[str]) -> None:
        member = self.members[words[0]]
        assert member.kept is not None
        member.raft = None
        member.state, entries, member.begin, member.end, member.commit, member.promises = member.kept
        member.entries = list(entries)

    def do_deleted(self, words: list[str]) -> None:
        self.members[words[0]].begin = int(words[1])
        self.raft(words[0]).starts_at(int(words[1]))

    def do_status(self, words: list[str]) -> None:
        self.pump()
        for member in self.members.values():
            if member.raft is None:
                self.show(f"{member.id} down, log {member.begin}..{member.end}")
                continue
            view = member.raft.status()
            notes = [
                note for note, there in (("recovering", view.recovering), ("accepts data", view.accepts_data)) if there
            ]
            self.show(
                f"{view.id} {view.role} term {view.term} leader {view.leader or '-'} committed {view.committed}"
                f" stored {view.stored} end {view.end} [{view.configuration}] {', '.join(notes)}".rstrip()
            )
            if view.joining_disks:
                self.show(
                    f"   asking to join: {', '.join(f'{who}:{incarnation}' for who, incarnation in view.joining_disks)}"
                )
            if view.conflict:
                self.show(f"   {view.conflict}")

    # Network and disk

    def take(self, words: list[str], among: list[str] | None = None) -> list[Message]:
        taken = [
            message
            for message in self.network
            if all(self.fits(message, word) for word in words)
            and (among is None or (message.sender in among and message.to in among))
        ]
        self.network = [message for message in self.network if message not in taken]
        return taken

    @staticmethod
    def fits(message: Message, word: str) -> bool:
        return word in (
            f"{message.sender}->{message.to}",
            type(message).__name__,
            f"{message.sender}->",
            f"->{message.to}",
        )

    def receive(self, message: Message) -> None:
        member = self.members.get(message.to)
        if member is not None and member.raft is not None:
            member.raft.step(message)
            self.pump()

    def pump(self) -> None:
        for member in self.members.values():
            while member.raft is not None and member.doing is None and (ready := member.raft.ready()) is not None:
                member.doing = ready
                if not member.held:
                    self.finish(member, ready)

    def finish(self, member: Member, ready: Ready) -> None:
        assert member.raft is not None
        if ready.hard_state is not None:
            if (ready.hard_state.term, ready.hard_state.vote) != (member.state.term, member.state.vote):
                self.show(f"{member.id} term {ready.hard_state.term} vote {ready.hard_state.vote or '-'}")
            if ready.hard_state.recovering != member.state.recovering:
                self.show(f"{member.id} {'is recovering' if ready.hard_state.recovering else 'has recovered'}")
            if ready.hard_state.outdated and not member.state.outdated:
                self.show(f"{member.id} is outdated")
            member.state = ready.hard_state
        for effect in ready.log:
            member.do(effect)
            self.show(f"{member.id} {effect}")
        for message in ready.messages:
            if isinstance(message, Append) and message.end.offset > message.previous.offset:
                assert message.previous.offset >= member.begin
            if message not in self.network:
                self.show(f"{message}")
                self.network.append(message)
        if ready.commit is not None:
            member.commit = ready.commit
            self.show(f"{member.id} commit {Position(*ready.commit)}")
        for read in ready.reads:
            self.show(f"{member.id} may answer {read.context} when it has applied {read.position}")
        member.doing = None
        member.promises = member.raft.promises
        member.raft.advance(ready)


def outcome(text: str) -> str:
    """Return a scenario with its current outputs."""
    transcript = Transcript()
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if inside and line:
            continue
        if line == DASHES:
            command = next(before for before in reversed(lines) if before and not before.startswith("#"))
            lines += [DASHES, *transcript.run(command)]
            inside = True
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    for path in sorted(FOLDER.glob("*.txt")):
        path.write_text(outcome(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
