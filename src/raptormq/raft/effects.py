"""What a member wants its shell to do: the parts of :class:`Ready`, and what the shell gives back at the next start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from .log import ZERO, Configuration, Entry, Position
from .messages import Message


class Role(StrEnum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class HardState(NamedTuple):
    """The small state that is durable before anything that follows from it is sent.

    Attributes:
        term: the largest term seen.
        vote: who got the vote of this term; empty for nobody.
        incarnation: the random identity of this disk, never 0.
        boot: how often a process has started on this disk.
        group: the random id of the group; 0 before the member belongs to one.
        recovering: the member may have forgotten what it had confirmed, and has not caught up yet.
    """

    term: int = 0
    vote: str = ""
    incarnation: int = 0
    boot: int = 0
    group: int = 0
    recovering: bool = False


class Saved(NamedTuple):
    """What is found on the disk at a start.

    Attributes:
        hard_state: as written last. On an empty disk only ``incarnation`` is set, to a new random number.
        entries: the epoch table.
        start: first offset of the commit log.
        end: end of the commit log after recovery; a record's end.
        commit: a committed position that was written some time ago.
        forgetful: the machine may have lost power, and the log was not flushed before it was confirmed.
    """

    hard_state: HardState
    entries: tuple[Entry, ...] = ()
    start: int = 0
    end: int = 0
    commit: Position = ZERO
    forgetful: bool = False


class Truncate(NamedTuple):
    """Cut the bytes behind ``end.offset`` and the entries behind the first ``end.entries``, the latter durably."""

    end: Position

    def __str__(self) -> str:
        return f"truncate to {self.end}"


class AppendData(NamedTuple):
    """Write bytes ``[start, end)``: what is in ``data`` behind the first ``skip`` bytes."""

    start: int
    end: int
    data: Any
    skip: int

    def __str__(self) -> str:
        return f"write {self.start}..{self.end}"


class AppendEntry(NamedTuple):
    """Append an entry to the epoch table. Durable before the next effect: bytes behind it would get another term."""

    entry: Entry

    def __str__(self) -> str:
        return f"append {self.entry}"


class Reset(NamedTuple):
    """Drop the whole log and everything derived from it; it goes on at ``end`` with these entries."""

    end: Position
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        return f"reset to {self.end}"


LogEffect = Truncate | AppendData | AppendEntry | Reset


class ReadState(NamedTuple):
    """The answer to a read-index: whoever has applied ``position`` may answer the read ``context``."""

    context: str
    position: Position


@dataclass(slots=True)
class Ready:
    """What is to be done, in the order of the fields.

    Attributes:
        hard_state: to be written and flushed, unless None.
        log: to be done to the log, in this order.
        messages: to be sent, after the two above.
        commit: everything up to here is confirmed, unless None. May be written to the disk some time later.
        reads: read-indexes that have become known.
    """

    hard_state: HardState | None
    log: tuple[LogEffect, ...]
    messages: tuple[Message, ...]
    commit: Position | None
    reads: tuple[ReadState, ...]


class FlushMark(NamedTuple):
    """How far the log was written when a flush began; stale as soon as the log was truncated."""

    offset: int
    truncations: int


class MemberStatus(NamedTuple):
    """What the leader knows of another member.

    Attributes:
        matched: up to where its log is known to be the leader's and stored.
        active: it has answered within the last election time-out.
        silent_ms: how long ago it answered last.
        recovering: it may have forgotten what it had confirmed.
    """

    id: str
    incarnation: int
    suffrage: str
    matched: Position
    active: bool
    silent_ms: int
    recovering: bool


class Status(NamedTuple):
    """A member's view of the group.

    Attributes:
        leader: id of the leader of this term, empty if unknown.
        committed, applied, stored, end: positions; ``applied <= committed <= end`` and ``stored <= end``.
        configuration: the members, of which the last change may be uncommitted.
        configuration_committed: whether it is committed.
        members: only at the leader, the others.
        transferring_to: id of the member that leadership moves to, empty for none.
        strangers: ids whose disk is not the one that the group knows, or that it does not know at all, and their
            incarnations.
        elections: how many elections this process has won.
        conflict: why something was refused that would have lost or mixed up data; empty for nothing.
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
    strangers: tuple[tuple[str, int], ...]
    elections: int
    conflict: str
