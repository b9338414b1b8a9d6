"""The state of a candidate (:class:`Candidacy`) and of a leader (:class:`Leadership`).

Each is created when the role begins and discarded when it ends, so no state outlives its term: neither a leadership
transfer that a step-down interrupts, nor positions that members confirmed to another leader.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .log import ZERO, Configuration, Position, Suffrage


@dataclass(slots=True)
class Candidacy:
    """One election, or one pre-vote.

    Attributes:
        term: term of the election.
        configuration: the members whose votes are requested.
        pre: whether this is a pre-vote, which raises no member's term.
        bootstrap: whether the group is being formed, which requires the votes of all members.
        transfer: whether the leader requested the election.
        granted: ids of the voters that granted their vote; the value is their ``recovering`` flag.
        refused: ids of the voters that refused.
    """

    term: int
    configuration: Configuration
    pre: bool
    bootstrap: bool
    transfer: bool
    granted: dict[str, bool] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def is_won(self) -> bool:
        """Return whether the candidate has won.

        A recovering voter may have lost confirmed records, which the rest of the majority may lack too, so its vote
        does not count towards a majority. If all voters grant their votes, the candidate's log is the most complete one
        that exists, and recovering voters count.
        """
        voters = self.configuration.voters()
        if len(self.granted) == len(voters):
            return True
        sound = sum(not recovering for recovering in self.granted.values())
        return not self.bootstrap and sound >= self.configuration.quorum()

    def is_lost(self) -> bool:
        """Return whether enough voters have refused: a majority, or a single one while the group is being formed."""
        return len(self.refused) >= (1 if self.bootstrap else self.configuration.quorum())


@dataclass(slots=True)
class Progress:
    """The leader's view of one other member.

    Attributes:
        boot: boot number of the member's newest known process.
        match: position up to which the member stores the leader's log; the commit rule uses it.
        received: position up to which the member has received the leader's log, stored or not.
        next: position where the next range begins.
        probing: the point where the logs diverge is unknown, and ``next`` is a guess.
        waiting: a probe has been sent and not been answered.
        active: the member has responded since the last quorum check.
        round: the last heartbeat round that the member has responded to.
        start: first offset of the member's log; None while it is unknown.
    """

    id: str
    incarnation: int
    suffrage: Suffrage
    next: Position
    answered_ms: int
    boot: int = 0
    match: Position = ZERO
    received: Position = ZERO
    probing: bool = True
    waiting: bool = False
    active: bool = False
    round: int = 0
    recovering: bool = False
    start: int | None = None

    def restarted(self, boot: int, end: Position) -> None:
        """Reset the view after a restart of the member, whose machine may have lost bytes that it had confirmed."""
        self.boot = boot
        self.match = self.received = ZERO
        self.next = end
        self.probing, self.waiting = True, False
        self.round = 0


@dataclass(slots=True)
class Transfer:
    """A leadership transfer in progress.

    Attributes:
        closing: the leader accepts no more data, so that the target can catch up.
        campaign_requested: the target was sent :class:`~.messages.TimeoutNow`.
    """

    to: str
    deadline_ms: int
    closing: bool = False
    campaign_requested: bool = False


@dataclass(slots=True)
class PendingRead:
    """A read-index request that waits until a majority has answered heartbeat ``round``."""

    context: str
    requester: str
    position: Position
    round: int


@dataclass(slots=True)
class Leadership:
    """The state of a leader in one term.

    Attributes:
        start: position after the entry that starts the term. Nothing is committed before that entry is.
        round: number of the last heartbeat round.
        early_reads: context and requester of reads that arrived before the start of the term was committed.
    """

    start: Position
    heartbeat_due_ms: int
    quorum_due_ms: int
    progress: dict[str, Progress] = field(default_factory=dict)
    round: int = 0
    reads: list[PendingRead] = field(default_factory=list)
    early_reads: dict[tuple[str, str], None] = field(default_factory=dict)
    transfer: Transfer | None = None
    next_transfer_ms: int = 0

    def follow(self, configuration: Configuration, own_id: str, end: Position, now_ms: int) -> None:
        """Add and remove :class:`Progress` objects to match ``configuration``. A member with a new incarnation gets a
        new object.
        """
        kept: dict[str, Progress] = {}
        for member in configuration.members:
            if member.id == own_id:
                continue
            progress = self.progress.get(member.id)
            if progress is None or progress.incarnation != member.incarnation:
                progress = Progress(member.id, member.incarnation, member.suffrage, end, now_ms)
            progress.suffrage = member.suffrage
            kept[member.id] = progress
        self.progress = kept

    def committable(self, configuration: Configuration, own_id: str, stored: Position) -> Position:
        """Return the position that a majority of the voters has stored."""
        positions = [stored if voter == own_id else self.progress[voter].match for voter in configuration.voters()]
        positions.sort(reverse=True)
        return positions[configuration.quorum() - 1] if positions else ZERO

    def has_quorum(self, configuration: Configuration, own_id: str, without: str = "") -> bool:
        """Return whether a majority of the voters has responded since the last quorum check. ``without`` does not count
        as a voter.
        """
        voters = [voter for voter in configuration.voters() if voter != without]
        return sum(voter == own_id or self.progress[voter].active for voter in voters) > len(voters) // 2

    def confirmed_round(self, configuration: Configuration, own_id: str) -> int:
        """Return the last heartbeat round that a majority of the voters has responded to."""
        rounds = [self.round if voter == own_id else self.progress[voter].round for voter in configuration.voters()]
        rounds.sort(reverse=True)
        return rounds[configuration.quorum() - 1] if rounds else 0
