"""The effects that a member requests from its shell (:class:`Ready`), and the state that a restart needs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from .begin import Begin, LostRange
from .log import ZERO, Configuration, Entry, Position
from .messages import Message
from .promises import MemberPromise


class Role(StrEnum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class HardState(NamedTuple):
    """The state that has to be durable before messages that depend on it are sent.

    Attributes:
        term: the largest term seen.
        vote: id of the member that got this member's vote in ``term``; empty for none.
        incarnation: the random identity of this disk, never 0.
        boot: number of the process. It grows with each start by a random step, so that the processes of two copies of a
            disk have different numbers.
        group: the random id of the group; 0 before the member belongs to one.
        recovering: the member may have lost records that it had confirmed, and has not caught up yet.
        outdated: the disk is an older copy of itself: it lacks data, terms or votes that another member knows it had.
            The member takes no part in its group.
        begin: the begin of the group's log. The shell of a follower deletes bytes before it once it is durable.
        lost: the part of the log that the group has lost; None if nothing.
    """

    term: int = 0
    vote: str = ""
    incarnation: int = 0
    boot: int = 0
    group: int = 0
    recovering: bool = False
    outdated: bool = False
    begin: Begin = Begin()
    lost: LostRange | None = None


class Saved(NamedTuple):
    """The state on the disk at a start.

    Attributes:
        hard_state: the last hard state written. On an empty disk only ``incarnation`` is set, to a new random number.
        entries: the epoch table.
        start: first offset of the commit log.
        end: end of the commit log after recovery, at a record boundary.
        commit: the commit position that was saved last; it may be out of date.
        may_have_lost_data: the machine may have lost power while confirmed records were not flushed.
        promises: the promises of other members that were saved last; they may be out of date.
    """

    hard_state: HardState
    entries: tuple[Entry, ...] = ()
    start: int = 0
    end: int = 0
    commit: Position = ZERO
    may_have_lost_data: bool = False
    promises: tuple[MemberPromise, ...] = ()


class Truncate(NamedTuple):
    """Truncate the log to ``end.offset`` bytes, and durably truncate the epoch table to ``end.entries`` entries."""

    end: Position

    def __str__(self) -> str:
        return f"truncate to {self.end}"


class AppendData(NamedTuple):
    """Write the bytes ``[start, end)`` of the log. In ``data`` they follow the first ``skip`` bytes."""

    start: int
    end: int
    data: Any
    skip: int

    def __str__(self) -> str:
        return f"write {self.start}..{self.end}"


class AppendEntry(NamedTuple):
    """Append an entry to the epoch table. The entry must be durable before the next effect; otherwise a crash would
    leave the following bytes with the wrong term.
    """

    entry: Entry

    def __str__(self) -> str:
        return f"append {self.entry}"


class Reset(NamedTuple):
    """Delete the log and all derived data. The new log starts at ``end`` with ``entries``."""

    end: Position
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        return f"reset to {self.end}"


LogEffect = Truncate | AppendData | AppendEntry | Reset


class ReadState(NamedTuple):
    """The result of a read-index request: the read ``context`` may be answered once ``position`` is applied."""

    context: str
    position: Position


@dataclass(slots=True)
class Ready:
    """The work for the shell, to be done in the order of the fields.

    Attributes:
        hard_state: state to write and flush; None if unchanged.
        log: effects on the log, in order.
        messages: messages to send after ``hard_state`` and ``log`` are done.
        commit: the new commit position; None if unchanged. Its write to the disk may be deferred.
        reads: completed read-index requests.
    """

    hard_state: HardState | None
    log: tuple[LogEffect, ...]
    messages: tuple[Message, ...]
    commit: Position | None
    reads: tuple[ReadState, ...]


class FlushMark(NamedTuple):
    """The end of the written log when a flush began. A truncation makes the mark invalid."""

    offset: int
    truncations: int


class MemberStatus(NamedTuple):
    """The leader's view of another member.

    Attributes:
        matched: position up to which the member is known to store the leader's log.
        active: whether the member has responded within the last election timeout.
        silent_ms: time since its last response in ms.
        recovering: whether it may have lost records that it had confirmed.
        shortened_by: number of bytes by which its log begins after that of the group.
    """

    id: str
    incarnation: int
    suffrage: str
    matched: Position
    active: bool
    silent_ms: int
    recovering: bool
    shortened_by: int = 0


class Contact(NamedTuple):
    """The last message that a member has received from another disk.

    Attributes:
        id: id of the other member.
        incarnation: identity of its disk.
        is_new: whether its disk belongs to no group.
        silent_ms: time since the message in ms.
    """

    id: str
    incarnation: int
    is_new: bool
    silent_ms: int


class Status(NamedTuple):
    """A member's view of the group.

    Attributes:
        leader: id of the leader of this term, empty if unknown.
        committed, applied, stored, end: positions; ``applied <= committed <= end`` and ``stored <= end``.
        configuration: the members, of which the last change may be uncommitted.
        configuration_committed: whether the last change is committed.
        members: the other members; empty on a follower.
        transferring_to: target of a leadership transfer in progress, empty for none.
        joining_disks: disks that ask to join the group, as member id -> incarnation. The id may be that of a member
            with another disk.
        elections: number of elections that this process has won.
        conflict: why the member last refused an operation that would have lost or mixed data; empty if it refused none
            recently.
        start: first offset of the member's log.
        begin: the begin of the group's log, as far as the member knows.
        lost: the part of the log that the group has lost, as far as the member knows; None if nothing.
        contacts: the last messages of the other members, whether or not they could be handled.
        leaderless_ms: time in ms since the member last knew a leader; 0 while it knows one.
        is_checked: whether the start check is complete (:class:`~.promises.StartCheck`).
        diverged: why this disk cannot follow the leader, whose log excludes committed data of this disk; empty if the
            member can. It is kept until a leader's log contains the data.
    """

    id: str
    role: Role
    term: int
    leader: str
    incarnation: int
    group: int
    committed: Position
    applied: Position
    stored: Position
    end: Position
    configuration: Configuration
    configuration_committed: bool
    recovering: bool
    accepts_data: bool
    members: tuple[MemberStatus, ...]
    transferring_to: str
    joining_disks: tuple[tuple[str, int], ...]
    elections: int
    conflict: str
    start: int = 0
    begin: Begin = Begin()
    lost: LostRange | None = None
    contacts: tuple[Contact, ...] = ()
    leaderless_ms: int = 0
    is_checked: bool = True
    diverged: str = ""

    @property
    def shortened_by(self) -> int:
        """Number of bytes by which the member's log begins after that of the group."""
        return max(0, self.start - self.begin.offset)
