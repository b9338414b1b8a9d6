"""What the members of a group send to one another.

Every message has the same head::

    sender, incarnation, boot   who sends it, from which disk, since which start of its process
    to, to_incarnation          whom it is for; 0 when the sender does not know the disk yet
    group                       random id of the group, 0 before the first election
    term                        the sender's term; of a pre-vote request, the term that it would campaign in

A message for another incarnation, or of another group, is dropped: disks are not mixed up when a volume is attached to
the wrong member. Responses of an earlier boot do not count: what they confirm may have been forgotten since.

Messages may be lost, duplicated, delayed and reordered. A message is never changed after it was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .log import ZERO, Configuration, Entry, Position


@dataclass(slots=True, kw_only=True)
class Message:
    """The head of every message."""

    sender: str
    to: str
    term: int
    incarnation: int = 0
    boot: int = 0
    to_incarnation: int = 0
    group: int = 0

    def __str__(self) -> str:
        return f"{self.sender}->{self.to} {type(self).__name__} term {self.term}{self.details()}"

    def details(self) -> str:
        """Return the fields behind the head, for transcripts and logs."""
        return ""


@dataclass(slots=True, kw_only=True)
class Hello(Message):
    """Sent by a member that hears of no leader to everyone it knows.

    The leader takes a disk in that is not a member, under a known id by itself.

    Attributes:
        fresh: the disk belongs to no group.
        has_data: its log is not empty.
    """

    fresh: bool = True
    has_data: bool = False

    def details(self) -> str:
        notes = f"{' fresh' if self.fresh else ''}{' has data' if self.has_data else ''}"
        return f" incarnation {self.incarnation}{notes}"


@dataclass(slots=True, kw_only=True)
class VoteRequest(Message):
    """A candidate asks for a vote.

    Attributes:
        last_term, end: of the candidate's log.
        pre: only asks whether the vote would be given; changes nothing at the voter.
        transfer: the leader has asked the candidate to take over, so that a leader that is alive is no reason to
            refuse.
        bootstrap: the members of a group that is being formed.
    """

    last_term: int
    end: Position
    pre: bool = False
    transfer: bool = False
    bootstrap: Configuration | None = None

    def details(self) -> str:
        flags = f"{' pre' if self.pre else ''}{' transfer' if self.transfer else ''}"
        members = f" bootstrap {self.bootstrap}" if self.bootstrap else ""
        return f"{flags} log {self.last_term}@{self.end}{members}"


@dataclass(slots=True, kw_only=True)
class VoteResponse(Message):
    """The answer.

    Attributes:
        asked_term: the term that was asked for.
        granted: whether the vote is given.
        pre: answers a pre-vote.
        recovering: the voter may have forgotten what it had confirmed; its vote counts only if all voters give theirs.
    """

    asked_term: int
    granted: bool
    pre: bool = False
    recovering: bool = False

    def details(self) -> str:
        flags = f"{' pre' if self.pre else ''}{' recovering' if self.recovering else ''}"
        return f"{flags} {'granted' if self.granted else 'refused'} {self.asked_term}"


@dataclass(slots=True, kw_only=True)
class Append(Message):
    """The leader sends a range of its log; an empty range is a heartbeat or a probe.

    Attributes:
        previous, previous_term: where the range begins, and the term of the unit before it.
        end: where it ends.
        entries: the entries of the range. Its bytes are ``[previous.offset, end.offset)`` of the commit log.
        commit: the leader's committed position.
        sent: up to where the leader has sent before; a follower that has less has lost a message.
        round: number of the last heartbeat round, for read-index.
        data: those bytes. The library does not look at it: the shell of the leader attaches it when it sends the
            message, the shell of the follower finds it in the effect :class:`~.effects.AppendData`.
    """

    previous: Position
    previous_term: int
    end: Position
    entries: tuple[Entry, ...] = ()
    commit: Position = ZERO
    sent: Position = ZERO
    round: int = 0
    data: Any = None

    def details(self) -> str:
        entries = "".join(f" {entry}" for entry in self.entries)
        return f" {self.previous_term}@{self.previous}..{self.end}{entries} commit {self.commit}"


@dataclass(slots=True, kw_only=True)
class AppendResponse(Message):
    """A follower answers an :class:`Append` or an :class:`Install`.

    Attributes:
        matched: up to here the follower's log equals the leader's and is stored as its flush mode demands. It counts.
        received: up to here it equals the leader's; the part behind ``matched`` is not stored yet.
        lost: the leader has sent more than was received, so something was lost on the way.
        rejected: the start of the range is not in the follower's log; it is ``previous``.
        hint_term, hint: the follower's largest term that is not above the leader's there, and where that term ends.
            Tells the leader where to look next, never what the follower has.
        round: of the request.
        recovering: see :class:`VoteResponse`.
    """

    matched: Position
    received: Position
    lost: bool = False
    rejected: bool = False
    previous: Position = ZERO
    hint_term: int = 0
    hint: Position = ZERO
    round: int = 0
    recovering: bool = False

    def details(self) -> str:
        flags = f"{' lost' if self.lost else ''}{' recovering' if self.recovering else ''}"
        if self.rejected:
            return f" rejected {self.previous} hint {self.hint_term}@{self.hint}{flags}"
        pending = f" received {self.received}" if self.received != self.matched else ""
        return f" matched {self.matched}{pending}{flags}"


@dataclass(slots=True, kw_only=True)
class Install(Message):
    """The leader no longer has the bytes that the follower needs: the follower forgets its log and starts at ``start``.

    The shell transfers what the bytes before ``start`` have led to (topics, groups, offsets) beside the library.

    Attributes:
        start: a committed position of the leader's log, at or behind its first byte.
        entries: all entries up to ``start``.
    """

    start: Position
    entries: tuple[Entry, ...]
    round: int = 0

    def details(self) -> str:
        return f" start {self.start}{''.join(f' {entry}' for entry in self.entries)}"


@dataclass(slots=True, kw_only=True)
class TimeoutNow(Message):
    """The leader asks a member that has everything to campaign at once."""


@dataclass(slots=True, kw_only=True)
class ReadIndexRequest(Message):
    """A follower asks the leader for a position that holds everything committed up to now.

    ``context`` is returned with the answer. The library's own requests have a context that starts with ``raft:``.
    """

    context: str

    def details(self) -> str:
        return f" {self.context}"


@dataclass(slots=True, kw_only=True)
class ReadIndexResponse(Message):
    """The answer, given after a majority has confirmed that the sender leads."""

    context: str
    position: Position

    def details(self) -> str:
        return f" {self.context} {self.position}"
