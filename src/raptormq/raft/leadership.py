"""What only a candidate or only a leader knows. Each is made when the role begins and dropped when it ends.

Nothing of it can outlive a term: a transfer that a step-down interrupts leaves no flag behind, and what a member has
confirmed to another leader does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .log import ZERO, Configuration, Position, Suffrage


@dataclass(slots=True)
class Candidacy:
    """One round of votes.

    Attributes:
        term: that the votes are for.
        configuration: the members that are asked.
        pre: nobody's term is raised yet.
        bootstrap: the group does not exist yet: all have to agree.
        granted: the voters that agree, and whether they may have forgotten something.
        refused: the voters that do not.
    """

    term: int
    configuration: Configuration
    pre: bool
    bootstrap: bool
    transfer: bool
    granted: dict[str, bool] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def is_won(self) -> bool:
        """Return whether the candidate leads.

        A voter that may have forgotten what it confirmed does not help to form a majority: the rest of the majority may
        not have it either. But when all voters agree, the candidate's log is the best that exists anywhere.
        """
        voters = self.configuration.voters()
        if len(self.granted) == len(voters):
            return True
        sound = sum(not recovering for recovering in self.granted.values())
        return not self.bootstrap and sound >= self.configuration.quorum()

    def is_lost(self) -> bool:
        """Return whether a majority refuses."""
        return len(self.refused) >= (1 if self.bootstrap else self.configuration.quorum())


@dataclass(slots=True)
class Progress:
    """The leader's view of one other member.

    Attributes:
        boot: the latest start of the member's process that was heard of.
        match: what counts: the member's log is the leader's up to here, and stored.
        received: up to here it is the leader's, stored or not.
        next: where the next range begins.
        probing: it is not known where the logs part; ``next`` is a guess.
        waiting: a probe is under way.
        active: an answer has come since the last check of the quorum.
        round: the last heartbeat round that it has answered.
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

    def restarted(self, boot: int, end: Position) -> None:
        """Forget what another process of the member has confirmed: the machine may have lost it."""
        self.boot = boot
        self.match = self.received = ZERO
        self.next = end
        self.probing, self.waiting = True, False
        self.round = 0


@dataclass(slots=True)
class Transfer:
    """Leadership is on its way to another member.

    Attributes:
        closing: no more data is accepted, so that the member can have all of it.
        told: the member was asked to campaign.
    """

    to: str
    deadline_ms: int
    closing: bool = False
    told: bool = False


@dataclass(slots=True)
class PendingRead:
    """A read-index that waits until a majority has answered ``round``."""

    context: str
    requester: str
    position: Position
    round: int


@dataclass(slots=True)
class Leadership:
    """One member's leadership of one term.

    Attributes:
        start: position just behind the entry that starts the term; nothing is confirmed before that entry is.
        round: number of the last heartbeat round.
        early_reads: reads that came before the start of the term was committed: context and requester.
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
        """Keep, add and drop the views of members as ``configuration`` says; another incarnation is another member."""
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
        """Return whether a majority of the voters other than ``without`` has answered lately."""
        voters = [voter for voter in configuration.voters() if voter != without]
        return sum(voter == own_id or self.progress[voter].active for voter in voters) > len(voters) // 2

    def confirmed_round(self, configuration: Configuration, own_id: str) -> int:
        """Return the last round that a majority of the voters has answered."""
        rounds = [self.round if voter == own_id else self.progress[voter].round for voter in configuration.voters()]
        rounds.sort(reverse=True)
        return rounds[configuration.quorum() - 1] if rounds else 0
