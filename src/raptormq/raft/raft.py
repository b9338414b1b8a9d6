"""The state machine of one member. Its inputs are messages, time and proposals; its output is :class:`~.effects.Ready`.

The package docstring shows how a shell drives it. :mod:`~.leadership` has the state of elections and leaders,
:mod:`~.log` the arithmetic of positions, :mod:`~.begin` the rule for shortened logs.

Sources: Ongaro, "Consensus: Bridging Theory and Practice", chapters 3, 4, 6 and 9. The structure of ready and advance
is that of etcd's raft. Membership changes follow Ongaro's thesis: the last configuration in the log is in effect,
committed or not. A change is refused until the previous one is committed and the leader has committed an entry of its
term.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from .begin import Begin, LostRange
from .effects import (
    AppendData,
    AppendEntry,
    Contact,
    FlushMark,
    LogEffect,
    MemberStatus,
    ReadState,
    Ready,
    Reset,
    Role,
    Saved,
    Status,
    Truncate,
)
from .leadership import Candidacy, Leadership, PendingRead, Progress, Transfer
from .log import ZERO, Configuration, Entry, EpochLog, Member, Position, Suffrage
from .messages import (
    Append,
    AppendResponse,
    Hello,
    HelloResponse,
    Install,
    Message,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from .promises import NOTHING, MemberPromise, Promise, StartCheck
from .proposals import (
    AddMember,
    DataAppended,
    LacksData,
    PromoteMember,
    Proposal,
    ProposalRefused,
    ReadIndex,
    RemoveMember,
    TransferLeadership,
)

UNCUT = Position(sys.maxsize, sys.maxsize)
MAX_TERM_STEP = 1 << 32
"""Maximum lead of a message over the member's term. Without it one corrupt message could use up the 2^63 terms."""
CONFLICT_ELECTIONS = 60
"""Number of election timeouts for which a conflict is shown. Members repeat a refused operation several times within
this period.
"""
BOOT_STEP_BITS = 20
"""Number of bits of the random step between the boot numbers of two successive processes on a disk."""
OUTDATED = (
    "the disk of this member is an older copy of itself and lacks what the member has confirmed to its group: its disk"
    " must be empty"
)
RECOVER = "raft:recover"
"""Context of the read-index request with which a recovering member learns the commit position at its restart."""


class InvariantViolated(Exception):
    """The state of a member is inconsistent. The member must stop, because it might confirm records that are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of a member.

    Attributes:
        peers: id -> address of all members that form the group at its first start, including this member. Ignored once
            the group exists.
        heartbeat_ms: interval between heartbeats of the leader.
        election_ms: election timeout. Without a leader, a member starts an election after a random time of one to two
            timeouts.
        sync_flush: whether bytes count as stored when they are flushed. Otherwise they count when they are written.
        max_append_bytes: maximum size of the bytes of one message, unless a single record is larger.
        max_inflight_bytes: maximum number of bytes that the leader sends to a member before the member confirms them.
        transfer_bytes: maximum lag of the transfer target at which the leader stops accepting data.
        preferred_leader: id of the member to which other leaders transfer leadership when it is up to date.
        shortened_wait_ms: time without a leader after which a member may lead although its log begins after that of
            the group.
    """

    peers: Mapping[str, str] = field(default_factory=dict)
    heartbeat_ms: int = 200
    election_ms: int = 1000
    sync_flush: bool = False
    max_append_bytes: int = 1 << 20
    max_inflight_bytes: int = 16 << 20
    transfer_bytes: int = 1 << 20
    preferred_leader: str = ""
    shortened_wait_ms: int = 600_000

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_ms * 2 <= self.election_ms:
            raise ValueError("election_ms must be at least twice heartbeat_ms")


class Raft:
    """A member of a group. Does no I/O.

    Attributes:
        id: the member's id.
        eligible: whether the member may lead. The shell sets it to False when tables or segments are damaged; a leader
            then transfers leadership.
        accepts_ranges: whether the member writes the bytes that the leader sends. The shell sets it to False while its
            disk is full. The member then votes and responds to heartbeats, and confirms nothing more.
    """

    def __init__(
        self, member_id: str, saved: Saved, options: Options, rng: Random, align: Callable[[int, int], int]
    ) -> None:
        """Start from the state on the disk; with ``sync_flush`` all of it must have been flushed.

        Args:
            member_id: the member's id.
            saved: the state on the disk.
            options: the settings.
            rng: source of election timeouts and of the id of a new group.
            align: ``align(start, limit)`` returns the end of the last record that ends in ``(start, limit]``. If the
                first record after ``start`` ends beyond ``limit``, it returns the end of that record. ``start`` is a
                record boundary. It returns ``start`` if the first record is damaged, so that its end is not known.

        Raises:
            ValueError: the incarnation is missing, the member is not in the list of peers, or the epoch table is not in
                order.
        """
        state = saved.hard_state
        if not state.incarnation:
            raise ValueError("the incarnation is not set: it must be a random number that is stored on the disk")
        if options.peers and member_id not in options.peers:
            raise ValueError(f"the list of peers does not contain this member, {member_id}")
        self.id = member_id
        self.eligible = self.accepts_ranges = True
        self._options = options
        self._rng = rng
        self._align = align
        self._log = EpochLog(saved.start, saved.end, saved.entries)
        self._committed = self._applied = self._log.prefix(*saved.commit)
        lacking = self._committed < saved.commit or len(self._log.entries) < len(saved.entries)
        forgot = saved.may_have_lost_data or (lacking and not options.sync_flush)
        self._state = state._replace(
            boot=state.boot + 1 + rng.getrandbits(BOOT_STEP_BITS),
            recovering=bool(state.group) and (state.recovering or forgot),
            begin=state.begin if state.begin.term else Begin(0, saved.start),
        )
        self._saved_state = state
        # Progress of the shell: bytes written, bytes stored (flushed, or only written without sync_flush), and number
        # of durable entries.
        self._written = self._flushed = saved.end
        self._kept = self._log.end.entries
        self._promises = {each.id: each for each in saved.promises}
        start = Promise(self._state.boot, state.term, self._log.last_term, self._log.end)
        self._start_check = StartCheck(start, self._state.recovering, is_new=not state.boot)
        self._truncations = 0
        self._floor = UNCUT  # lowest truncation since the outstanding Ready was returned
        self._effects: list[LogEffect] = []
        if len(saved.entries) > self._log.end.entries:  # bytes before them were lost
            self._effects.append(Truncate(self._log.end))
        self._messages: list[Message] = []
        self._reads: list[ReadState] = []
        self._outstanding: Ready | None = None
        self._role = Role.FOLLOWER
        self._leader = ""
        self._candidacy: Candidacy | None = None
        self._leadership: Leadership | None = None
        self._elections = 0
        self._conflict = self._diverged = ""
        # Follower state of this term: position verified against the leader's log, position last reported to the leader,
        # commit position of the leader.
        self._verified = self._reported = self._leader_commit = ZERO
        self._leader_incarnation = 0
        self._round = 0
        self._barrier: Position | None = None
        self._fresh_peers: dict[str, tuple[int, bool, int]] = {}  # incarnation, has data, time of the last Hello in ms
        self._unknown_disks: dict[str, tuple[int, int]] = {}  # disks that are not members: incarnation, time of Hello
        self._contacts: dict[str, tuple[int, bool, int]] = {}  # incarnation, whether it is new, time of the message
        self._clock_ms: int | None = None
        self._now_ms = self._conflict_ms = self._had_leader_ms = 0
        self._heard_ms = -options.election_ms
        self._election_due_ms = 0
        self._hello_due_ms = 0
        self._restart_election_timer()
        self._handlers: dict[type[Message], Callable[[Any], None]] = {
            Append: self._on_append,
            AppendResponse: self._on_append_response,
            Install: self._on_install,
            VoteRequest: self._on_vote_request,
            VoteResponse: self._on_vote_response,
            TimeoutNow: self._on_timeout_now,
            ReadIndexRequest: self._on_read_index_request,
            ReadIndexResponse: self._on_read_index_response,
        }

    # Interface of the shell

    @property
    def role(self) -> Role:
        """The member's role."""
        return self._role

    @property
    def term(self) -> int:
        """The largest term seen."""
        return self._state.term

    @property
    def leader(self) -> str:
        """Id of the leader of this term, empty if unknown."""
        return self._leader

    @property
    def committed(self) -> Position:
        """The commit position that the member knows."""
        return self._committed

    @property
    def accepts_data(self) -> bool:
        """Whether the shell may append records: the member leads, its epoch table is durable, the start of its term is
        committed, and no leadership transfer is about to complete.
        """
        leadership = self._leadership
        return (
            leadership is not None
            and self._kept == self._log.end.entries
            and self._committed >= leadership.start
            and not (leadership.transfer and leadership.transfer.closing)
        )

    @property
    def is_transferring(self) -> bool:
        """Whether the member leads, and a leadership transfer is in progress."""
        return self._leadership is not None and self._leadership.transfer is not None

    def step(self, message: Message) -> None:
        """Handle a message from another member."""
        if message.to != self.id or message.sender == self.id:
            return
        self._contacts[message.sender] = (message.incarnation, not message.group, self._now_ms)
        self._compare_groups(message)
        if isinstance(message, Hello):
            self._on_hello(message)
            return
        if message.to_incarnation != self._state.incarnation:
            return
        if message.group and message.group != self._state.group and not self._is_fresh():
            self._note_conflict(_of_another_group(message))
            return
        if isinstance(message, HelloResponse):
            self._on_hello_response(message)
            return
        if not self._may_handle(message):
            return
        if message.term > self._state.term + MAX_TERM_STEP:
            self._note_conflict(
                f"{message.sender} names the term {message.term}, and the group is in {self._state.term}"
            )
            return
        if not self._is_of_former_process(message) and self._agree_on_term(message):
            self._note_vote(message)
            self._handlers[type(message)](message)

    def tick(self, now_ms: int) -> None:
        """Advance the member's clock to ``now_ms`` of a monotonic clock. Call at least every ``heartbeat_ms``.

        One call advances the clock by at most half an election timeout, so a process that was suspended handles
        the messages that have arrived before it starts an election.
        """
        if self._clock_ms is not None:
            self._now_ms += max(0, min(now_ms - self._clock_ms, self._options.election_ms // 2))
        self._clock_ms = now_ms
        if self._leader_is_alive():
            self._had_leader_ms = self._now_ms
        self._forget_conflict()
        self._start_check.update(self._other_voters(), is_late=self._is_late())
        if self._leadership is not None:
            self._lead()
        elif not (self._leader_is_alive() and self._start_check.is_done) and self._now_ms >= self._hello_due_ms:
            self._hello_due_ms = self._now_ms + self._options.heartbeat_ms
            self._send_hello()
        if self._leadership is None and self._now_ms >= self._election_due_ms:
            self._leader = ""
            self._campaign(pre=True)

    def propose(self, proposal: Proposal) -> Position | None:
        """Handle a proposal of the shell. Return the log position at which the proposal is committed, or None if the
        proposal adds nothing to the log.

        Raises:
            ProposalRefused: the member does not accept the proposal now.
        """
        if isinstance(proposal, ReadIndex):
            self._propose_read(proposal.context)
            return None
        leadership = self._leadership
        if leadership is None:
            raise ProposalRefused(f"{self.id} is not the leader", self._leader)
        match proposal:
            case DataAppended(end):
                self._append_data(end)
                return self._log.end
            case TransferLeadership(to):
                self._propose_transfer(leadership, to)
                return None
            case _:
                return self._change_members(leadership, self._changed(leadership, proposal))

    def ready(self) -> Ready | None:
        """Return the pending work, or None if there is none. Must not be called again before :meth:`advance`.

        Raises:
            RuntimeError: the previous Ready was not advanced.
            InvariantViolated: the state is inconsistent; the member must stop.
        """
        if self._outstanding is not None:
            raise RuntimeError("the previous Ready must be advanced first")
        self._check()
        changed = self._state != self._saved_state
        commit = self._committed if self._committed > self._applied else None
        if not (changed or self._effects or self._messages or self._reads or commit):
            return None
        ready = Ready(
            self._state if changed else None, tuple(self._effects), tuple(self._messages), commit, tuple(self._reads)
        )
        self._saved_state = self._state
        self._floor = UNCUT
        self._effects, self._messages, self._reads = [], [], []
        self._outstanding = ready
        return ready

    def advance(self, ready: Ready) -> None:
        """Record that all work of ``ready`` is done.

        Raises:
            RuntimeError: ``ready`` is not the outstanding one.
            InvariantViolated: the state is inconsistent; the member must stop.
        """
        if ready is not self._outstanding:
            raise RuntimeError("only the outstanding Ready can be advanced")
        self._outstanding = None
        for effect in ready.log:
            if isinstance(effect, AppendData):
                self._written = effect.end
            elif isinstance(effect, AppendEntry):
                self._kept += 1
            elif isinstance(effect, Reset):
                self._written, self._kept = effect.end
                self._flushed = self._written
        # Parts of ``ready.log`` may have been truncated after it was returned; they do not count as written.
        self._written = min(self._written, self._floor.offset)
        self._kept = min(self._kept, self._floor.entries)
        if not self._options.sync_flush:
            self._flushed = self._written
        self._flushed = min(self._flushed, self._written)
        if ready.commit is not None:
            self._applied = ready.commit
        self._on_stored()
        self._check()

    def flush_mark(self) -> FlushMark:
        """Return the end of the written log. Call before a flush begins."""
        return FlushMark(self._written, self._truncations)

    def flushed(self, mark: FlushMark) -> None:
        """Record that the flush that began at ``mark`` has succeeded. Ignored if the log was truncated since."""
        if mark.truncations == self._truncations and mark.offset > self._flushed:
            self._flushed = mark.offset
            self._on_stored()

    def process_ended(self, member: str) -> None:
        """Record that the process of a member has ended, which the shell sees from its refused connections.

        If the member was the leader, no election timeout passes before the next election. The voters campaign one after
        another, a heartbeat interval apart in the order of their ids, so that they do not split the votes. If the shell
        was wrong, the next message of the leader cancels the campaign, and a vote needs a majority in any case.
        """
        if member != self._leader or self._leadership is not None:
            return
        voters = [each.id for each in self._log.configuration.members if each.suffrage is Suffrage.VOTER]
        rank = sum(each < self.id for each in voters if each != member)
        self._leader = ""
        self._election_due_ms = min(self._election_due_ms, self._now_ms + rank * self._options.heartbeat_ms)

    def starts_at(self, offset: int) -> None:
        """Record that the bytes of the commit log below ``offset`` are deleted. If the member leads, this decides that
        the log of the group begins there.
        """
        self._log.start = max(self._log.start, min(offset, self._log.end.offset))
        if self._leadership is not None:
            self._decide_begin()
        elif self._candidacy is not None and not self._may_campaign():
            self._become_follower(self._state.term, "")

    def status(self) -> Status:
        """Return the member's view of the group."""
        log, leadership = self._log, self._leadership
        members = () if leadership is None else tuple(leadership.progress.values())
        transfer = leadership.transfer if leadership else None
        return Status(
            id=self.id,
            role=self._role,
            term=self._state.term,
            leader=self._leader,
            incarnation=self._state.incarnation,
            group=self._state.group,
            committed=self._committed,
            applied=self._applied,
            stored=self._stored(),
            end=log.end,
            configuration=log.configuration,
            configuration_committed=log.configuration_end <= self._committed,
            recovering=self._state.recovering,
            accepts_data=self.accepts_data,
            members=tuple(
                MemberStatus(
                    member.id,
                    member.incarnation,
                    member.suffrage,
                    member.match,
                    self._now_ms - member.answered_ms < self._options.election_ms,
                    self._now_ms - member.answered_ms,
                    member.recovering,
                    self._shortened_by(member),
                )
                for member in members
            ),
            transferring_to=transfer.to if transfer else "",
            joining_disks=tuple(self._joining_disks().items()),
            elections=self._elections,
            conflict=OUTDATED if self._state.outdated else self._conflict,
            start=log.start,
            begin=self._state.begin,
            lost=self._state.lost,
            contacts=tuple(
                Contact(member, incarnation, is_new, self._now_ms - heard_ms)
                for member, (incarnation, is_new, heard_ms) in sorted(self._contacts.items())
            ),
            leaderless_ms=0 if self._leader_is_alive() else self._now_ms - self._had_leader_ms,
            is_checked=self._start_check.is_done,
            diverged=self._diverged,
        )

    @property
    def promises(self) -> tuple[MemberPromise, ...]:
        """The promises of other members, which the shell saves from time to time (:attr:`Saved.promises`)."""
        return tuple(self._promises.values())

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The epoch table. Its last entries may not be on the disk yet."""
        return self._log.entries

    # Terms and roles

    def _is_of_former_process(self, message: Message) -> bool:
        """Return whether a message comes from a former process of its sender. When the message comes from a new
        process, confirmations of the former process no longer count.
        """
        if self._leadership is None:
            return False
        progress = self._leadership.progress.get(message.sender)
        if progress is None or progress.incarnation != message.incarnation:
            return False
        if not progress.boot:
            progress.boot = message.boot
        elif message.boot > progress.boot:
            self._keep_promise(self._promise_to_leader(progress))
            progress.restarted(message.boot, self._log.end)
        return message.boot < progress.boot

    def _agree_on_term(self, message: Message) -> bool:
        """Compare the term of a message with the member's term. Become a follower if the message has a newer term.
        Return whether the message must be handled.
        """
        term = self._state.term
        if isinstance(message, VoteResponse) and message.pre and message.granted:
            return True  # a granted pre-vote has the term of its voter, which may differ
        if message.term > term:
            if isinstance(message, VoteRequest):
                if not message.transfer and self._leader_is_alive():
                    return False
                if message.pre:
                    return True
            self._become_follower(message.term, "")
        elif message.term < term:
            if isinstance(message, Append | Install):
                self._send(AppendResponse, message.sender, message.incarnation, matched=ZERO, received=ZERO)
            elif isinstance(message, VoteRequest):
                self._answer_vote(message, granted=False)
            return False
        return True

    def _note_conflict(self, text: str) -> None:
        self._conflict, self._conflict_ms = text, self._now_ms

    def _compare_groups(self, message: Message) -> None:
        """Record that members of another group exist, if this disk has data and the member has no leader. A message of
        its own leader ends the record.
        """
        if not message.group or message.group == self._state.group or not self._log.end.offset:
            return
        if not self._leader_is_alive():
            is_stray = not self._state.group
            what = f"{message.sender} belongs to a group, but this disk has data that belongs to no group"
            self._note_divergence(self._diverged or (what if is_stray else _of_another_group(message)))

    def _note_divergence(self, text: str) -> None:
        """Record that the group has elected, or elects, a leader whose log excludes committed data of this disk."""
        self._diverged = text
        self._note_conflict(text)

    def _forget_conflict(self) -> None:
        """Clear a conflict that has not recurred. Data on a disk without a group is a conflict until the member joins a
        group.
        """
        is_stray = self._is_fresh() and self._log.end.offset > 0
        if self._now_ms - self._conflict_ms >= CONFLICT_ELECTIONS * self._options.election_ms and not is_stray:
            self._conflict = ""

    def _leader_is_alive(self) -> bool:
        if self._leadership is not None:
            return True
        return bool(self._leader) and self._now_ms - self._heard_ms < self._options.election_ms

    def _become_follower(self, term: int, leader: str) -> None:
        self._keep_promises()
        if term > self._state.term:
            self._state = self._state._replace(term=term, vote="")
            self._verified = self._reported = self._leader_commit = ZERO
            self._round = 0
            self._barrier = None
        self._role = Role.FOLLOWER
        self._leader = leader
        self._candidacy = self._leadership = None
        self._restart_election_timer()

    def _restart_election_timer(self) -> None:
        election = self._options.election_ms
        self._election_due_ms = self._now_ms + election + self._rng.randrange(election)

    def _is_fresh(self) -> bool:
        """Return whether the disk belongs to no group or has an empty log, so it has confirmed nothing to a group."""
        return not self._state.group or self._log.end == ZERO

    def _campaign(self, *, pre: bool, transfer: bool = False) -> None:
        self._restart_election_timer()
        if not self._may_campaign():
            return
        bootstrap = self._is_fresh()
        configuration = self._first_configuration() if bootstrap else self._log.configuration
        own = configuration.get(self.id)
        if own is None or own.suffrage is not Suffrage.VOTER or own.incarnation != self._state.incarnation:
            return
        self._leadership = None
        self._leader = ""
        term = self._state.term + 1
        if pre:
            self._role = Role.PRE_CANDIDATE
        else:
            self._become_follower(term, "")
            self._role = Role.CANDIDATE
            self._state = self._state._replace(vote=self.id)
        candidacy = self._candidacy = Candidacy(term, configuration, pre, bootstrap, transfer)
        candidacy.granted[self.id] = self._state.recovering
        for member in configuration.members:
            if member.id != self.id and member.suffrage is Suffrage.VOTER:
                self._send(
                    VoteRequest,
                    member.id,
                    member.incarnation,
                    term=term,
                    last_term=self._log.last_term,
                    end=self._log.end,
                    pre=pre,
                    transfer=transfer,
                    bootstrap=configuration if bootstrap else None,
                    start=self._log.start,
                    begin_term=self._state.begin.term,
                    begin=self._state.begin.offset,
                )
        self._count_votes(candidacy)

    def _may_campaign(self) -> bool:
        is_complete = self._log.start <= self._state.begin.offset or self._may_elect_shortened()
        return self.eligible and self._start_check.is_done and not self._state.outdated and is_complete

    def _first_configuration(self) -> Configuration:
        """Return the members of the group that this disk can form with its peers; empty unless all peers have sent
        Hello recently.

        A majority of the peers is not enough: two wiped disks of three could form a new group, and the data of the
        third one would be lost.
        """
        if not self._options.peers:
            return Configuration()
        members = [Member(self.id, self._state.incarnation, Suffrage.VOTER, self._options.peers.get(self.id, ""))]
        for peer, address in self._options.peers.items():
            if peer == self.id:
                continue
            incarnation, has_data, heard_ms = self._fresh_peers.get(peer, (0, False, 0))
            if not incarnation or self._now_ms - heard_ms > 2 * self._options.election_ms:
                return Configuration()
            if has_data:
                if self._log.end.offset:
                    self._note_divergence(
                        f"{self.id} and {peer} both have data, but no group: one of them must be empty"
                    )
                return Configuration()
            members.append(Member(peer, incarnation, Suffrage.VOTER, address))
        return Configuration.of(members)

    def _send_hello(self) -> None:
        """Announce this disk to all peers and members. The disk may be new or an older copy, or the leader may have
        replaced it.
        """
        known = dict.fromkeys([*self._options.peers, *(member.id for member in self._log.configuration.members)])
        for peer in known:
            if peer != self.id:
                self._send_hello_to(peer)

    def _send_hello_to(self, peer: str) -> None:
        self._send(
            Hello,
            peer,
            0,
            fresh=self._is_fresh(),
            has_data=self._log.end.offset > 0,
            start=self._start_check.start,
            lost_power=self._start_check.lost_power,
            asks=self._start_check.needs(self._other_voters()),
            outdated=self._state.outdated,
        )

    def _on_hello(self, hello: Hello) -> None:
        if hello.fresh or self._is_fresh() or hello.group == self._state.group:
            self._respond_to_hello(hello)
        if self._is_fresh():
            if hello.fresh and hello.sender in self._options.peers:
                self._fresh_peers[hello.sender] = (hello.incarnation, hello.has_data, self._now_ms)
            return
        member = self._log.configuration.get(hello.sender)
        if member is not None and member.incarnation == hello.incarnation:
            self._unknown_disks.pop(hello.sender, None)
        elif hello.has_data and hello.group != self._state.group:
            self._note_conflict(f"{hello.sender} cannot join with data of another group: its disk must be empty")
        else:
            self._unknown_disks[hello.sender] = (hello.incarnation, self._now_ms)

    # Promises

    def _respond_to_hello(self, hello: Hello) -> None:
        """Tell a member what its disk has promised. If the disk has all of it, renew the promise of the new process."""
        self._keep_promises()
        found = self._promises.get(hello.sender)
        known = found.promise if found is not None and found.incarnation == hello.incarnation else NOTHING
        if hello.asks:
            self._send(HelloResponse, hello.sender, hello.incarnation, asked_boot=hello.boot, promise=known)
        if hello.outdated:
            self._note_conflict(
                f"the disk of {hello.sender} is an older copy of itself and lacks what {hello.sender} has confirmed:"
                " its disk must be empty"
            )
        elif not known.is_broken_by(hello.start, lost_power=hello.lost_power):
            # Otherwise the message is late, or its sender runs on an older copy and learns this from the response.
            self._is_of_former_process(hello)
            renewed = known.renewed(hello.start, lost_power=hello.lost_power)
            self._keep_promise(MemberPromise(hello.sender, hello.incarnation, renewed))

    def _on_hello_response(self, response: HelloResponse) -> None:
        check = self._start_check
        if response.asked_boot != self._state.boot or self._state.outdated:
            return
        if response.promise.is_broken_by(check.start, lost_power=check.lost_power):
            self._become_follower(self._state.term, "")
            self._state = self._state._replace(outdated=True)
            return
        member = self._log.configuration.get(response.sender)
        is_member = member is not None and member.incarnation == response.incarnation
        # Another disk of this member id has not seen what was promised to the group, so its response does not count.
        if is_member or self._is_fresh() or response.group == self._state.group:
            check.responded.add(response.sender)
            check.update(self._other_voters(), is_late=self._is_late())

    def _other_voters(self) -> set[str]:
        return set(self._log.configuration.voters() or self._options.peers) - {self.id}

    def _is_late(self) -> bool:
        """Return whether the first election timeout of this process is over."""
        return self._now_ms >= self._options.election_ms

    def _may_handle(self, message: Message) -> bool:
        """Return whether the start check permits the member to handle ``message``. Send Hello to a sender that has not
        responded yet.
        """
        check = self._start_check
        if self._state.outdated or check.is_done:
            return not self._state.outdated
        if message.sender not in check.responded:
            self._send_hello_to(message.sender)
        may_follow = check.lets_follow(message.sender, self._other_voters(), is_late=self._is_late())
        return may_follow and isinstance(message, Append | Install)

    def _note_vote(self, message: Message) -> None:
        """Record the term of a vote message as a promise of its sender, if the start of the sender's process was
        checked.
        """
        if isinstance(message, VoteRequest | VoteResponse) and not message.pre:
            found = self._promises.get(message.sender)
            if found is not None and found.promise.boot == message.boot:
                promise = Promise(message.boot, message.term)
                self._keep_promise(MemberPromise(message.sender, message.incarnation, promise))

    def _keep_promise(self, new: MemberPromise) -> None:
        member = self._log.configuration.get(new.id)
        if member is None or member.incarnation != new.incarnation or new.id == self.id:
            return
        known = self._promises.get(new.id)
        if known is None or known.incarnation != new.incarnation or known.promise < new.promise:
            self._promises[new.id] = new

    def _keep_promises(self) -> None:
        if self._leadership is not None:
            for progress in self._leadership.progress.values():
                self._keep_promise(self._promise_to_leader(progress))

    def _promise_to_leader(self, progress: Progress) -> MemberPromise:
        """Return what a member has promised to this leader."""
        promise = Promise(progress.boot, self._state.term, self._log.term_at(progress.match), progress.match)
        return MemberPromise(progress.id, progress.incarnation, promise if progress.match > ZERO else NOTHING)

    def _told_promises(self) -> tuple[MemberPromise, ...]:
        """Return the promises that the leader sends in its heartbeats, including its own."""
        self._keep_promises()
        state, stored = self._state, self._stored()
        own = Promise(state.boot, state.term, self._log.term_at(stored), stored)
        return (*self._promises.values(), MemberPromise(self.id, state.incarnation, own))

    # Votes

    def _on_vote_request(self, request: VoteRequest) -> None:
        log, state = self._log, self._state
        if request.pre:
            free = request.term > state.term
        else:
            free = state.vote == request.sender or (not state.vote and not self._leader)
        is_complete = self._begins_in_time(request) and log.is_up_to_date(request.last_term, request.end)
        granted = free and self._may_elect(request) and is_complete
        if granted and not request.pre:
            self._state = state._replace(vote=request.sender)
            self._restart_election_timer()
        self._answer_vote(request, granted=granted)

    def _answer_vote(self, request: VoteRequest, *, granted: bool) -> None:
        self._send(
            VoteResponse,
            request.sender,
            request.incarnation,
            asked_term=request.term,
            granted=granted,
            pre=request.pre,
            recovering=self._state.recovering,
        )

    def _may_elect(self, request: VoteRequest) -> bool:
        """Return whether this disk may take part in the election."""
        if not self._is_fresh():
            return request.bootstrap is None
        if self._log.end.offset:
            self._note_divergence(f"{request.sender} requests a vote, but this disk has data that belongs to no group")
            return False
        if request.bootstrap is None:
            return bool(request.group)
        own = request.bootstrap.get(self.id)
        return own is not None and own.incarnation == self._state.incarnation

    def _begins_in_time(self, request: VoteRequest) -> bool:
        """Return whether the candidate's log begins at or before that of the group, by the last decision that the
        candidate or this member knows.
        """
        if request.start is None or self._is_fresh():  # a member of 0.2.0, or nothing is known here
            return True
        begin = self._state.begin
        if request.begin_term:
            begin = max(begin, Begin(request.begin_term, request.begin or 0))
        return request.start <= begin.offset or self._may_elect_shortened()

    def _may_elect_shortened(self) -> bool:
        """Return whether the group has had no leader for so long that a member with a shortened log may lead it."""
        return self._now_ms - self._had_leader_ms >= self._options.shortened_wait_ms

    def _on_vote_response(self, response: VoteResponse) -> None:
        candidacy = self._candidacy
        if candidacy is None or (response.asked_term, response.pre) != (candidacy.term, candidacy.pre):
            return
        voter = candidacy.configuration.get(response.sender)
        if voter is None or voter.suffrage is not Suffrage.VOTER or voter.incarnation != response.incarnation:
            return
        if response.granted:
            candidacy.granted[voter.id] = response.recovering
        else:
            candidacy.refused.add(voter.id)
        self._count_votes(candidacy)

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        if message.sender == self._leader and not self._state.recovering:
            self._campaign(pre=False, transfer=True)

    def _count_votes(self, candidacy: Candidacy) -> None:
        if candidacy.is_won():
            if candidacy.pre:
                self._campaign(pre=False, transfer=candidacy.transfer)
            else:
                self._become_leader(candidacy)
        elif candidacy.is_lost():
            self._become_follower(self._state.term, "")

    def _become_leader(self, candidacy: Candidacy) -> None:
        self._candidacy = None
        self._role = Role.LEADER
        self._leader = self.id
        self._diverged = ""
        self._elections += 1
        self._state = self._state._replace(recovering=False)
        if candidacy.bootstrap:
            self._state = self._state._replace(group=self._rng.getrandbits(62) + 1)
        before = self._log.end
        start = Position(before.offset, before.entries + 1)
        election, heartbeat = self._options.election_ms, self._options.heartbeat_ms
        self._leadership = Leadership(start, self._now_ms + heartbeat, self._now_ms + election)
        self._leadership.next_transfer_ms = self._now_ms + election
        known, own = self._state.begin.offset, self._log.start
        self._decide_begin()
        if own > known:
            self._state = self._state._replace(lost=LostRange(known, own))
        self._append_entry(candidacy.configuration if candidacy.bootstrap else None)
        self._leadership.follow(self._log.configuration, self.id, before, self._now_ms)
        self._heartbeat(self._leadership)

    def _decide_begin(self) -> None:
        """Decide as the leader where the log of the group begins: not before it did, nor before the own log does."""
        offset = max(self._state.begin.offset, self._log.start)
        self._follow_begin(Begin(self._state.term, offset))

    def _follow_begin(self, begin: Begin) -> None:
        """Adopt a decision of the leader. A lost range is over when the log begins after it, because retention would
        have deleted it by now.
        """
        lost = self._state.lost
        if lost is not None and begin.offset > lost.end:
            lost = None
        self._state = self._state._replace(begin=begin, lost=lost)

    # The follower

    def _follow(self, message: Append | Install) -> bool:
        """Accept the sender as the leader of the term. Return False if this member leads the term itself, or if this
        disk has data without a group.
        """
        if self._leadership is not None:
            self._note_conflict(f"{message.sender} says that it leads term {message.term}, which {self.id} leads")
            return False
        if self._is_fresh():
            if self._log.end.offset:
                self._note_divergence(
                    f"{message.sender} leads a group, but this disk has data that belongs to no group"
                )
                return False
            self._state = self._state._replace(group=message.group)
            self._fresh_peers.clear()
        if self._role is not Role.FOLLOWER:
            self._become_follower(self._state.term, message.sender)
        self._leader = message.sender
        self._leader_incarnation = message.incarnation
        self._heard_ms = self._now_ms
        self._round = max(self._round, message.round)
        self._restart_election_timer()
        return True

    def _on_append(self, append: Append) -> None:
        if not self._follow(append):
            return
        for each in append.promises:
            self._keep_promise(each)
        if append.begin is not None:
            self._follow_begin(Begin(append.term, append.begin))
        log = self._log
        if not self.accepts_ranges and append.end.offset > max(log.end.offset, append.previous.offset):
            self._respond()  # not even that it lacks the bytes before the range: the leader would send them again
            return
        if not log.contains(append.previous, append.previous_term):
            term, end = log.end_of(append.previous_term)
            self._respond(rejected=True, previous=append.previous, hint_term=term, hint=end)
            return
        if not self._truncate_diverged(append):
            return
        news = append.end > log.end
        if news:
            self._append_missing(append)
        self._diverged = ""
        self._verified = max(self._verified, append.end)
        self._leader_commit = max(self._leader_commit, append.commit)
        self._update_matched()
        if not news:
            self._respond(lost=append.sent > self._verified and self.accepts_ranges)
        if self._state.recovering and self._barrier is None and append.end == append.previous:
            self._send(ReadIndexRequest, append.sender, append.incarnation, context=f"{RECOVER}:{self._state.boot}")

    def _truncate_diverged(self, append: Append) -> bool:
        """Truncate the log where it diverges from the range. Return False if that would truncate committed data."""
        log, index = self._log, append.previous.entries
        divergence: Position | None = None
        for entry in append.entries:
            if index == log.end.entries:
                if log.end.offset > entry.offset:
                    divergence = Position(entry.offset, index)
                break
            own = log.entry(index)
            if own != entry:
                divergence = Position(min(own.offset, entry.offset), index)
                break
            index += 1
        else:
            if index < log.end.entries and log.entry(index).offset < append.end.offset:
                divergence = Position(log.entry(index).offset, index)
        if divergence is None:
            return True
        if divergence < self._committed:
            self._refuse_divergence(append, divergence)
            return False
        self._truncate(divergence)
        return True

    def _truncate(self, end: Position) -> None:
        self._log.truncate(end)
        self._drop_unsent_appends()
        self._effects.append(Truncate(end))
        self._truncations += 1
        self._written = min(self._written, end.offset)
        self._flushed = min(self._flushed, end.offset)
        self._kept = min(self._kept, end.entries)
        self._floor = min(self._floor, end)

    def _drop_unsent_appends(self) -> None:
        """Drop unsent Append messages of a former leadership, to which the shell would attach the bytes that replace
        the truncated ones.
        """
        self._messages = [message for message in self._messages if not isinstance(message, Append)]

    def _append_missing(self, append: Append) -> None:
        """Append the part of the range that the log lacks."""
        log, begin = self._log, append.previous.offset
        for entry in append.entries[log.end.entries - append.previous.entries :]:
            self._write(entry.offset, append.data, begin)
            log.append_entry(entry)
            self._effects.append(AppendEntry(entry))
        self._write(append.end.offset, append.data, begin)

    def _write(self, end: int, data: Any, begin: int) -> None:
        start = self._log.end.offset
        if end > start:
            self._effects.append(AppendData(start, end, data, start - begin))
            self._log.append_bytes(end)

    def _on_install(self, install: Install) -> None:
        if not self._follow(install):
            return
        log, entries = self._log, install.entries
        if install.start > self._committed and not log.contains(install.start, entries[-1].term if entries else 0):
            own = log.between(ZERO, self._committed)
            if entries[: len(own)] != own or any(
                entry.offset < self._committed.offset for entry in entries[len(own) :]
            ):
                self._refuse_divergence(install, self._committed)
                return
            log.reset(install.start, entries)
            self._follow_begin(Begin(install.term, install.start.offset))
            self._drop_unsent_appends()
            self._effects = [Reset(install.start, entries)]
            self._truncations += 1
            self._written = self._flushed = self._kept = 0
            self._floor = ZERO
        self._diverged = ""
        self._verified = max(self._verified, install.start)
        self._leader_commit = max(self._leader_commit, install.start)
        self._update_matched()
        self._respond()

    def _refuse_divergence(self, message: Append | Install, divergence: Position) -> None:
        """Record a conflict: the leader's log lacks committed data, which must not be truncated here."""
        self._note_divergence(
            f"{message.sender} leads term {message.term}, but its log lacks data committed up to {self._committed}: "
            f"it diverges from the log of {self.id} at {divergence}"
        )

    def _respond(self, **fields: Any) -> None:
        matched = self._matched()
        self._reported = matched
        self._send(
            AppendResponse,
            self._leader,
            self._leader_incarnation,
            matched=matched,
            received=self._verified,
            round=self._round,
            recovering=self._state.recovering,
            start=self._log.start,
            **fields,
        )

    def _matched(self) -> Position:
        return min(self._verified, self._stored())

    def _update_matched(self) -> None:
        """Advance the commit position, and end the recovery, as far as the matched position allows."""
        matched = self._matched()
        self._committed = max(self._committed, min(self._leader_commit, matched))
        if self._barrier is not None and matched >= self._barrier:
            self._barrier = None
            self._state = self._state._replace(recovering=False)

    def _on_read_index_response(self, response: ReadIndexResponse) -> None:
        if response.sender != self._leader:
            return
        if not response.context.startswith(RECOVER):
            self._reads.append(ReadState(response.context, response.position))
        elif self._state.recovering and response.context == f"{RECOVER}:{self._state.boot}":
            self._barrier = response.position
            self._update_matched()

    # The leader

    def _lead(self) -> None:
        """Do the periodic work of a leader: quorum check, heartbeat, transfer timeout and membership repair."""
        leadership = self._leadership
        assert leadership is not None
        if self._now_ms >= leadership.quorum_due_ms:
            if not leadership.has_quorum(self._log.configuration, self.id):
                self._become_follower(self._state.term, "")
                return
            leadership.quorum_due_ms = self._now_ms + self._options.election_ms
            for progress in leadership.progress.values():
                progress.active = False
        if self._now_ms < leadership.heartbeat_due_ms:
            return
        leadership.heartbeat_due_ms = self._now_ms + self._options.heartbeat_ms
        self._heartbeat(leadership, self._told_promises())
        if leadership.transfer and self._now_ms >= leadership.transfer.deadline_ms:
            leadership.transfer = None
        self._repair_membership(leadership)
        self._transfer_to_preferred(leadership)

    def _heartbeat(self, leadership: Leadership, promises: tuple[MemberPromise, ...] = ()) -> None:
        leadership.round += 1
        for progress in leadership.progress.values():
            progress.waiting = False
            if progress.probing:
                self._send_range(progress)
            else:
                self._send_append(progress, progress.received, progress.received, promises)
        self._confirm_reads(leadership)

    def _send_range(self, progress: Progress) -> None:
        """Send the part of the log that a member lacks, up to ``max_inflight_bytes`` ahead of its confirmation."""
        log, options = self._log, self._options
        if progress.next.offset < log.start:
            if not progress.waiting:
                progress.waiting = progress.probing = True
                start = min(log.at(log.start), self._committed)
                self._send(
                    Install,
                    progress.id,
                    progress.incarnation,
                    start=start,
                    entries=log.between(ZERO, start),
                    round=self._leadership_round(),
                )
            return
        if progress.probing:
            if not progress.waiting:
                progress.waiting = True
                self._send_append(progress, progress.next, progress.next)
            return
        limit = progress.match.offset + options.max_inflight_bytes
        while progress.next < log.end and progress.next.offset < limit:
            start = progress.next
            end = log.end
            if end.offset - start.offset > options.max_append_bytes:
                limit_of_range = self._align(start.offset, start.offset + options.max_append_bytes)
                if limit_of_range == start.offset:
                    return
                end = log.at(limit_of_range)
            progress.next = end
            self._send_append(progress, start, end)

    def _leadership_round(self) -> int:
        return self._leadership.round if self._leadership else 0

    def _send_append(
        self,
        progress: Progress,
        start: Position,
        end: Position,
        promises: tuple[MemberPromise, ...] = (),
    ) -> None:
        entries = self._log.between(start, end)
        self._send(
            Append,
            progress.id,
            progress.incarnation,
            previous=start,
            previous_term=self._log.term_at(start),
            end=end,
            entries=entries,
            commit=self._committed,
            sent=ZERO if progress.probing else progress.next,
            round=self._leadership_round(),
            promises=promises,
            begin=self._state.begin.offset if promises or entries else None,
        )

    def _on_append_response(self, response: AppendResponse) -> None:
        leadership = self._leadership
        progress = leadership.progress.get(response.sender) if leadership else None
        if leadership is None or progress is None or progress.incarnation != response.incarnation:
            return
        if response.matched > response.received or response.received > self._log.end:
            self._note_conflict(
                f"{response.sender} says that it has the log up to {response.received}, which {self.id} leads and which"
                f" ends at {self._log.end}"
            )
            return
        if response.round > leadership.round:
            self._note_conflict(f"{response.sender} answers the heartbeat {response.round}, which was not sent")
            return
        progress.active = True
        progress.answered_ms = self._now_ms
        progress.recovering = response.recovering
        progress.start = response.start
        progress.round = max(progress.round, response.round)
        if response.rejected:
            self._back_up(progress, response)
        else:
            progress.match = max(progress.match, response.matched)
            progress.received = max(progress.received, response.received)
            if progress.probing:
                if progress.received >= progress.next:
                    progress.probing = False
                    progress.next = progress.received
            elif response.lost and response.received < progress.next:
                progress.next = progress.received
        self._advance_commit(leadership)
        if self._leadership is not leadership:
            return
        self._send_range(progress)
        self._confirm_reads(leadership)
        self._advance_transfer(leadership)

    def _back_up(self, progress: Progress, response: AppendResponse) -> None:
        """Choose the position of the next probe, which searches the point where a member's log diverges. ``match`` does
        not change.
        """
        if response.previous <= progress.match or (progress.probing and response.previous != progress.next):
            return
        term, end = self._log.end_of(response.hint_term)
        guess = min(end, response.hint) if term == response.hint_term else end
        progress.probing, progress.waiting = True, False
        progress.next = max(progress.match, guess)

    def _append_data(self, end: int) -> None:
        if not self.accepts_data:
            raise ProposalRefused("the member does not accept data now", self._leader)
        if end < self._log.end.offset:
            raise ProposalRefused(f"the log already ends at {self._log.end.offset}, beyond {end}")
        self._log.append_bytes(end)
        self._written = end
        if not self._options.sync_flush:
            self._flushed = end
        self._on_stored()
        self._broadcast()

    def _append_entry(self, configuration: Configuration | None) -> Position:
        entry = Entry(self._state.term, self._log.end.offset, configuration)
        self._log.append_entry(entry)
        self._effects.append(AppendEntry(entry))
        return self._log.end

    def _broadcast(self) -> None:
        if self._leadership is not None:
            for progress in self._leadership.progress.values():
                self._send_range(progress)

    def _advance_commit(self, leadership: Leadership) -> None:
        """Commit the position that a majority has stored, if it is of this term (Raft, 5.4.2)."""
        log = self._log
        position = leadership.committable(log.configuration, self.id, self._stored())
        if position <= self._committed or log.term_at(position) != self._state.term:
            return
        first = self._committed < leadership.start
        self._committed = position
        if first:
            for context, requester in list(leadership.early_reads):
                self._start_read(context, requester)
            leadership.early_reads.clear()
        if log.configuration_end <= position and log.configuration.get(self.id) is None:
            self._heartbeat(leadership)  # sends the commit position to the others
            self._request_election(leadership)
            self._become_follower(self._state.term, "")

    def _request_election(self, leadership: Leadership) -> None:
        """Request an immediate election from a member with the complete log, because this member leaves the group."""
        for progress in leadership.progress.values():
            is_complete = progress.match == self._log.end and not self._shortened_by(progress)
            if progress.suffrage is Suffrage.VOTER and is_complete and not progress.recovering:
                self._send(TimeoutNow, progress.id, progress.incarnation)
                return

    # Reads

    def _propose_read(self, context: str) -> None:
        if self._leadership is not None:
            self._start_read(context, self.id)
        elif self._leader:
            self._send(ReadIndexRequest, self._leader, self._leader_incarnation, context=context)
        else:
            raise ProposalRefused("no leader is known")

    def _on_read_index_request(self, request: ReadIndexRequest) -> None:
        if self._leadership is not None:
            self._start_read(request.context, request.sender)

    def _start_read(self, context: str, requester: str) -> None:
        leadership = self._leadership
        assert leadership is not None
        if self._committed < leadership.start:
            leadership.early_reads[context, requester] = None
            return
        if any((read.context, read.requester) == (context, requester) for read in leadership.reads):
            return
        leadership.reads.append(PendingRead(context, requester, self._committed, leadership.round + 1))
        self._heartbeat(leadership)

    def _confirm_reads(self, leadership: Leadership) -> None:
        if not leadership.reads:
            return
        confirmed = leadership.confirmed_round(self._log.configuration, self.id)
        for read in [read for read in leadership.reads if read.round <= confirmed]:
            leadership.reads.remove(read)
            member = self._log.configuration.get(read.requester)
            if read.requester == self.id:
                self._reads.append(ReadState(read.context, read.position))
            elif member is not None:
                self._send(
                    ReadIndexResponse, member.id, member.incarnation, context=read.context, position=read.position
                )

    # Leadership transfer

    def _propose_transfer(self, leadership: Leadership, to: str) -> None:
        progress = leadership.progress.get(to)
        if to == self.id:
            raise ProposalRefused(f"{to} is already the leader")
        if progress is None or progress.suffrage is not Suffrage.VOTER:
            raise ProposalRefused(f"{to} is not a voter of the group")
        if progress.recovering:
            raise ProposalRefused(f"{to} has lost power and has not caught up yet")
        if self._shortened_by(progress):
            raise ProposalRefused(
                f"the log of {to} begins at {progress.start}, and that of the group at {self._state.begin.offset}:"
                " consumers would skip the messages between; choose another member"
            )
        if leadership.transfer is not None and leadership.transfer.to != to:
            raise ProposalRefused(f"a leadership transfer to {leadership.transfer.to} is in progress")
        if leadership.transfer is None:
            leadership.transfer = Transfer(to, self._now_ms + self._options.election_ms)
        self._advance_transfer(leadership)

    def _advance_transfer(self, leadership: Leadership) -> None:
        transfer = leadership.transfer
        if transfer is None or (progress := leadership.progress.get(transfer.to)) is None:
            leadership.transfer = None
            return
        if progress.match.offset + self._options.transfer_bytes >= self._log.end.offset:
            transfer.closing = True
        if progress.match == self._log.end and not transfer.campaign_requested:
            transfer.campaign_requested = True
            self._send(TimeoutNow, progress.id, progress.incarnation)

    def _shortened_by(self, progress: Progress) -> int:
        """Return the number of bytes by which the log of a member begins after that of the group."""
        return max(0, (progress.start or 0) - self._state.begin.offset)

    def _transfer_to_preferred(self, leadership: Leadership) -> None:
        """Transfer leadership to the preferred leader, or to any suitable voter if this member is not eligible."""
        wanted = self._options.preferred_leader
        if leadership.transfer or self._now_ms < leadership.next_transfer_ms or self._committed < leadership.start:
            return
        candidates = [
            progress
            for progress in leadership.progress.values()
            if progress.suffrage is Suffrage.VOTER
            and progress.active
            and not progress.recovering
            and not self._shortened_by(progress)
            and progress.match.offset + self._options.transfer_bytes >= self._log.end.offset
            and (progress.id == wanted or not self.eligible)
        ]
        if candidates and (self.id != wanted or not self.eligible):
            leadership.next_transfer_ms = self._now_ms + 10 * self._options.election_ms
            best = max(candidates, key=lambda progress: (progress.id == wanted, progress.match))
            self._propose_transfer(leadership, best.id)

    # Membership

    def _changed(self, leadership: Leadership, proposal: Proposal) -> Configuration:
        """Return the configuration that a proposal requests."""
        configuration = self._log.configuration
        match proposal:
            case AddMember(id=member_id):
                return self._with_added(leadership, proposal)
            case PromoteMember(id=member_id):
                member = configuration.get(member_id)
                if member is None:
                    raise ProposalRefused(f"{member_id} is not a member of the group")
                if member.suffrage is Suffrage.VOTER:
                    raise ProposalRefused(f"{member_id} is already a voter")
                if leadership.progress[member_id].match < self._committed:
                    raise LacksData(f"{member_id} lacks committed data: try again when it has caught up")
                return configuration.with_member(member._replace(suffrage=Suffrage.VOTER))
            case RemoveMember(id=member_id):
                if configuration.get(member_id) is None:
                    raise ProposalRefused(f"{member_id} is not a member of the group")
                if configuration.voters() == [member_id]:
                    raise ProposalRefused(f"{member_id} is the last voter of the group")
                voters = configuration.without(member_id).voters()
                alive = [voter for voter in voters if voter == self.id or self._is_alive(leadership.progress[voter])]
                if len(alive) <= len(voters) // 2:
                    raise ProposalRefused(f"without {member_id} the group has no majority of live voters")
                return configuration.without(member_id)
        raise ProposalRefused(f"unknown proposal {proposal!r}")

    def _with_added(self, leadership: Leadership, proposal: AddMember) -> Configuration:
        known = self._log.configuration.get(proposal.id)
        suffrage = Suffrage.LEARNER if proposal.suffrage is Suffrage.LEARNER else Suffrage.JOINING
        if known is not None:
            return self._log.configuration.with_member(known._replace(address=proposal.address or known.address))
        incarnation = self._joining_disks().get(proposal.id)
        if incarnation is None:
            raise ProposalRefused(f"{proposal.id} has not contacted the leader: start it with an empty disk first")
        return self._log.configuration.with_member(Member(proposal.id, incarnation, suffrage, proposal.address))

    def _change_members(self, leadership: Leadership, configuration: Configuration) -> Position:
        if self._committed < leadership.start:
            raise ProposalRefused("the leader has not committed the start of its term yet; try again")
        if self._log.configuration_end > self._committed:
            raise ProposalRefused("another membership change is not committed yet; try again")
        end = self._append_entry(configuration)
        leadership.follow(configuration, self.id, self._log.end, self._now_ms)
        self._broadcast()
        return end

    def _joining_disks(self) -> dict[str, int]:
        """Return the disks that have sent Hello within the last election timeout and are not members."""
        since = self._now_ms - self._options.election_ms
        asking = {}
        for member_id, (incarnation, heard_ms) in self._unknown_disks.items():
            member = self._log.configuration.get(member_id)
            if heard_ms > since and (member is None or member.incarnation != incarnation):
                asking[member_id] = incarnation
        return asking

    def _is_alive(self, progress: Progress) -> bool:
        return progress.active or self._now_ms - progress.answered_ms < self._options.election_ms

    def _repair_membership(self, leadership: Leadership) -> None:
        """Promote a joining member that has caught up, or replace a dead member's disk by its new one; one membership
        change per call.
        """
        configuration = self._log.configuration
        if self._committed < leadership.start or self._log.configuration_end > self._committed or leadership.transfer:
            return
        for progress in leadership.progress.values():
            if progress.suffrage is Suffrage.JOINING and progress.active and progress.match >= self._committed:
                self._change_members(leadership, self._changed(leadership, PromoteMember(progress.id)))
                return
        for member_id, incarnation in self._joining_disks().items():
            member = configuration.get(member_id)
            if member is None or self._is_alive(leadership.progress[member_id]):
                continue
            if not leadership.has_quorum(configuration, self.id, without=member_id):
                continue
            suffrage = Suffrage.LEARNER if member.suffrage is Suffrage.LEARNER else Suffrage.JOINING
            swapped = member._replace(incarnation=incarnation, suffrage=suffrage)
            self._change_members(leadership, configuration.with_member(swapped))
            return

    # All roles

    def _stored(self) -> Position:
        """Return the position up to which the log is stored in the configured flush mode."""
        return self._log.prefix(self._flushed, self._kept)

    def _on_stored(self) -> None:
        """React to an advance of the stored position: commit as leader, respond as follower."""
        if self._leadership is not None:
            self._advance_commit(self._leadership)
        elif self._leader:
            self._update_matched()
            if self._matched() > self._reported:
                self._respond()

    def _send(self, kind: type[Message], to: str, to_incarnation: int, **fields: Any) -> None:
        state = self._state
        fields.setdefault("term", state.term)
        self._messages.append(
            kind(
                sender=self.id,
                to=to,
                incarnation=state.incarnation,
                boot=state.boot,
                to_incarnation=to_incarnation,
                group=state.group,
                **fields,
            )
        )

    def _check(self) -> None:
        stored, end = self._stored(), self._log.end
        if not self._applied <= self._committed <= end:
            raise InvariantViolated(
                f"applied {self._applied} <= committed {self._committed} <= end {end} does not hold"
            )
        if stored > end or self._flushed > self._written:
            raise InvariantViolated(f"stored {stored} is beyond the end {end}")
        if self._verified > end and self._leadership is None:
            raise InvariantViolated(f"verified {self._verified} is beyond the end {end}")
        if (self._leadership is not None) != (self._role is Role.LEADER):
            raise InvariantViolated(f"the role is {self._role}, but the state of a leader does not match it")


def _of_another_group(message: Message) -> str:
    return f"{message.sender} belongs to another group ({message.group:x})"
