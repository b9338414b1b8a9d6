"""The messages between the members of a group.

Every message has the same header::

    sender, incarnation, boot   the sender's id, the identity of its disk, and the number of its process start
    to, to_incarnation          the receiver's id and disk; 0 if the sender does not know the disk yet
    group                       random id of the group, 0 before the first election
    term                        the sender's term; in a pre-vote request, the term of the next election

A member drops messages for another incarnation or from another group, so a volume that is attached to the wrong member
cannot mix up data. Messages from an earlier boot are ignored, because the sender may have lost the bytes that they
confirm.

Messages may be lost, duplicated, delayed and reordered. Messages are immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .log import ZERO, Configuration, Entry, Position
from .promises import NOTHING, MemberPromise, Promise

OPTIONAL = {"optional": True}
"""Metadata of a field that members of version 0.2.0 do not know. It is None in their messages."""


@dataclass(slots=True, kw_only=True)
class Message:
    """Base class of the messages, with the header."""

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
        """Return the fields after the header as text, for transcripts and logs."""
        return ""

    def fault(self) -> str:
        """Return why no correct member can have sent this message; empty for a valid message. The shell must not pass
        faulty messages to the library, because they would damage the epoch table.
        """
        return ""


@dataclass(slots=True, kw_only=True)
class Hello(Message):
    """Announces a disk to all configured and known members. A member sends it while it has no live leader, or while its
    start check (:class:`~.promises.StartCheck`) is incomplete.

    The leader replaces the disk of a known id automatically. A new id needs :class:`~.proposals.AddMember`.

    Attributes:
        fresh: whether the disk belongs to no group.
        has_data: whether the log has bytes.
        start: what was on the disk when the process started.
        lost_power: whether the member knew at its start that it may have lost bytes.
        asks: whether the member wants a response.
        outdated: whether the member knows that its disk is an older copy of itself.
    """

    fresh: bool = True
    has_data: bool = False
    start: Promise = NOTHING
    lost_power: bool = False
    asks: bool = False
    outdated: bool = False

    def details(self) -> str:
        notes = f"{' fresh' if self.fresh else ''}{' has data' if self.has_data else ''}"
        notes += f"{' asks' if self.asks else ''}{' outdated' if self.outdated else ''}"
        return f" incarnation {self.incarnation}{notes}"


@dataclass(slots=True, kw_only=True)
class HelloResponse(Message):
    """The response to a :class:`Hello`: the promise of the disk, as the responding member remembers it.

    Attributes:
        asked_boot: ``boot`` of the request.
        promise: the newest promise of the disk that the responding member knows.
    """

    asked_boot: int
    promise: Promise

    def details(self) -> str:
        return f" promised {self.promise.last_term}@{self.promise.end} in term {self.promise.term}"


@dataclass(slots=True, kw_only=True)
class VoteRequest(Message):
    """A candidate requests a vote.

    Attributes:
        last_term, end: last term and end of the candidate's log.
        pre: whether this is a pre-vote, which changes no state of the voter.
        transfer: whether the leader requested the election. Voters then handle the request although the leader is
            alive.
        bootstrap: the members of the group that is being formed; None if the group exists.
        start: first offset of the candidate's log.
        begin_term, begin: the last decision about the begin of the log (:class:`~.begin.Begin`) that the candidate
            knows.
    """

    last_term: int
    end: Position
    pre: bool = False
    transfer: bool = False
    bootstrap: Configuration | None = None
    start: int | None = field(default=None, metadata=OPTIONAL)
    begin_term: int | None = field(default=None, metadata=OPTIONAL)
    begin: int | None = field(default=None, metadata=OPTIONAL)

    def details(self) -> str:
        flags = f"{' pre' if self.pre else ''}{' transfer' if self.transfer else ''}"
        members = f" bootstrap {self.bootstrap}" if self.bootstrap else ""
        begins = f" from {self.start}, begin {self.begin}" if self.start else ""
        return f"{flags} log {self.last_term}@{self.end}{begins}{members}"

    def fault(self) -> str:
        return f"its log has the later term {self.last_term}" if self.last_term > self.term else ""


@dataclass(slots=True, kw_only=True)
class VoteResponse(Message):
    """The response to a :class:`VoteRequest`.

    Attributes:
        asked_term: the term of the request.
        granted: whether the vote is granted.
        pre: whether the request was a pre-vote.
        recovering: the voter may have lost records that it had confirmed. Its vote counts only if all voters grant
            theirs.
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
    """A range of the leader's log; an empty range is a heartbeat or a probe.

    Attributes:
        previous, previous_term: position where the range begins, and the term of the unit before it.
        end: position where the range ends.
        entries: the entries of the range. Its bytes are ``[previous.offset, end.offset)`` of the commit log.
        commit: the leader's commit position.
        sent: position up to which the leader has sent its log; ``0+0`` in a probe. A follower that has received less
            reports a loss.
        round: number of the last heartbeat round, for read-index.
        promises: in a heartbeat, the promises of all members that the leader knows, and its own.
        begin: in a heartbeat, and in a range with entries, the begin of the group's log that is decided in the term of
            the message (:class:`~.begin.Begin`).
        data: the bytes of the range, opaque to the library. The leader's shell attaches them when it sends the message;
            the follower's shell gets them in the effect :class:`~.effects.AppendData`.
    """

    previous: Position
    previous_term: int
    end: Position
    entries: tuple[Entry, ...] = ()
    commit: Position = ZERO
    sent: Position = ZERO
    round: int = 0
    promises: tuple[MemberPromise, ...] = ()
    begin: int | None = field(default=None, metadata=OPTIONAL)
    data: Any = None

    def details(self) -> str:
        entries = "".join(f" {entry}" for entry in self.entries)
        begin = f" begin {self.begin}" if self.begin else ""
        return f" {self.previous_term}@{self.previous}..{self.end}{entries} commit {self.commit}{begin}"

    def fault(self) -> str:
        return _fault_of(self.entries, self.previous, self.previous_term, self.end, self.term)


@dataclass(slots=True, kw_only=True)
class AppendResponse(Message):
    """The response to an :class:`Append` or an :class:`Install`.

    Attributes:
        matched: position up to which the follower's log equals the leader's and is stored in the follower's flush mode.
            The commit rule uses it.
        received: position up to which the logs are equal; bytes after ``matched`` are not stored yet.
        lost: the leader has sent more than the follower has received, so a message was lost.
        rejected: the follower's log does not contain ``previous``, the start of the range.
        hint_term, hint: the follower's largest term that is not above ``previous_term``, and the position where it
            ends. The leader uses them only to choose the next probe.
        round: the last heartbeat round that the follower has seen.
        recovering: see :class:`VoteResponse`.
        start: first offset of the follower's log.
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
    start: int | None = field(default=None, metadata=OPTIONAL)

    def details(self) -> str:
        flags = f"{' lost' if self.lost else ''}{' recovering' if self.recovering else ''}"
        if self.rejected:
            return f" rejected {self.previous} hint {self.hint_term}@{self.hint}{flags}"
        pending = f" received {self.received}" if self.received != self.matched else ""
        begins = f" from {self.start}" if self.start else ""
        return f" matched {self.matched}{pending}{begins}{flags}"


@dataclass(slots=True, kw_only=True)
class Install(Message):
    """Instructs a follower to discard its log and start at ``start``, because the leader has deleted the bytes that the
    follower needs.

    The shell transfers the state derived from the bytes before ``start`` (topics, groups, offsets); the library does
    not.

    Attributes:
        start: a committed position of the leader's log, not before its first byte.
        entries: all entries up to ``start``.
    """

    start: Position
    entries: tuple[Entry, ...]
    round: int = 0

    def details(self) -> str:
        return f" start {self.start}{''.join(f' {entry}' for entry in self.entries)}"

    def fault(self) -> str:
        return _fault_of(self.entries, ZERO, 0, self.start, self.term)


@dataclass(slots=True, kw_only=True)
class TimeoutNow(Message):
    """The leader requests that a member with the complete log starts an election immediately."""


@dataclass(slots=True, kw_only=True)
class ReadIndexRequest(Message):
    """A follower requests a position that includes everything committed before the request.

    The response has the same ``context``. Requests of the library have a context that starts with ``raft:``.
    """

    context: str

    def details(self) -> str:
        return f" {self.context}"


@dataclass(slots=True, kw_only=True)
class ReadIndexResponse(Message):
    """The response to a :class:`ReadIndexRequest`, sent after a majority has confirmed the sender's leadership."""

    context: str
    position: Position

    def details(self) -> str:
        return f" {self.context} {self.position}"


def _fault_of(entries: tuple[Entry, ...], start: Position, start_term: int, end: Position, term: int) -> str:
    """Return why ``entries`` cannot be the entries from ``start`` to ``end`` in the log of a leader in ``term``; empty
    if they can be.
    """
    if end.offset < start.offset or end.entries - start.entries != len(entries):
        return f"the range {start}..{end} does not have {len(entries)} entries"
    places = [Entry(start_term, start.offset), *entries, Entry(term, end.offset)]
    for before, after in pairwise(places):
        if after.term < before.term or after.offset < before.offset:
            return f"terms or offsets of its entries decrease: {after} follows {before}"
    return ""
