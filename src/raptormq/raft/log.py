"""Raft's log as byte offsets of the commit log plus a table of entries that have no bytes.

The replicated log is the commit log itself. Only two things are not bytes in it: that a term starts, and that the
membership changes. Both are entries of the epoch table, each with a place between two bytes::

    commit log   0 .................. 700 ........... 900 ......... 1200
    entries      | term 1              | term 4        |             | term 5
                   members n0 n1 n2                    | members n0 n2

    position     (offset, entries): the prefix of the log with that many bytes and that many entries
                 (0, 0) < (0, 1) < (700, 1) < (700, 2) < (900, 2) < (900, 3) < (1200, 3) < (1200, 4)

A byte and an entry each count as one unit, so ``offset + entries`` is the index that the Raft paper speaks of, and all
of its arguments hold as they stand. Each term starts with an entry, so the term of every unit follows from the table:
bytes belong to the term of the last entry before them, bytes before the first entry to term 0 (a store that was not
replicated before). Two logs that both hold position ``p`` with the same term are equal up to ``p``.

A position is meaningful together with the log it belongs to. Positions of two logs may be compared when both are
prefixes of one log, which is the case when their last terms are equal (:meth:`EpochLog.is_up_to_date`).

Sources: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm", section 5; KIP-101 and KIP-595
(leader epoch -> start offset, diverging epoch); KIP-853 (voters are identified by id and directory id).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple


class Position(NamedTuple):
    """A prefix of the log: its bytes and its entries. Ordered along one log."""

    offset: int
    entries: int

    def __str__(self) -> str:
        return f"{self.offset}+{self.entries}"


ZERO = Position(0, 0)


class Suffrage(StrEnum):
    """What a member counts for."""

    VOTER = "voter"
    JOINING = "joining"  # a learner that the leader promotes as soon as it has caught up
    LEARNER = "learner"  # receives the log, neither votes nor counts


class Member(NamedTuple):
    """A member of the group.

    Attributes:
        id: the configured name (``dLegerSelfId``), unique in the group.
        incarnation: the random identity of the member's disk. An empty disk under a known id is another incarnation.
        suffrage: whether it votes and counts.
        address: where it is reached; opaque here.
    """

    id: str
    incarnation: int
    suffrage: Suffrage = Suffrage.VOTER
    address: str = ""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of a group, in the order of their ids."""

    members: tuple[Member, ...] = ()

    @classmethod
    def of(cls, members: Iterable[Member]) -> Configuration:
        """Return the configuration with these members.

        Raises:
            ValueError: two members have one id.
        """
        ordered = tuple(sorted(members))
        if len({member.id for member in ordered}) != len(ordered):
            raise ValueError("two members of a group have the same id")
        return cls(ordered)

    def get(self, member_id: str) -> Member | None:
        """Return the member with this id."""
        for member in self.members:
            if member.id == member_id:
                return member
        return None

    def voters(self) -> list[str]:
        """Return the ids of the voters."""
        return [member.id for member in self.members if member.suffrage is Suffrage.VOTER]

    def quorum(self) -> int:
        """Return how many voters are a majority."""
        return len(self.voters()) // 2 + 1

    def with_member(self, member: Member) -> Configuration:
        """Return this configuration with ``member`` in the place of the member of its id, if there is one."""
        return Configuration.of([*(other for other in self.members if other.id != member.id), member])

    def without(self, member_id: str) -> Configuration:
        """Return this configuration without the member of this id."""
        return Configuration(tuple(member for member in self.members if member.id != member_id))

    def __str__(self) -> str:
        marks = {Suffrage.VOTER: "", Suffrage.JOINING: "^", Suffrage.LEARNER: "~"}
        return ",".join(f"{marks[member.suffrage]}{member.id}:{member.incarnation}" for member in self.members)


class Entry(NamedTuple):
    """A unit of the log without bytes: the start of a term or a membership change.

    Attributes:
        term: the term of the leader that appended it; larger than that of the entry before it at the start of a term.
        offset: the number of bytes before it.
        configuration: all members from here on, None if they stay. The start of a group's first term has one.
    """

    term: int
    offset: int
    configuration: Configuration | None = None

    def __str__(self) -> str:
        what = "start" if self.configuration is None else f"members {self.configuration}"
        return f"[term {self.term} at {self.offset}: {what}]"


class EpochLog:
    """The shape of a member's log: its first and last offset and its entries.

    Attributes:
        start: offset of the first byte that is still there. Entries are never dropped: there are as many as elections.
        end: position of the log's end.
        configuration: the last one in the log, committed or not; it is in force from the moment it is appended.
        configuration_end: the position just behind its entry.
    """

    __slots__ = ("_entries", "_offsets", "configuration", "configuration_end", "end", "start")

    def __init__(self, start: int, end_offset: int, entries: Sequence[Entry]) -> None:
        """Take what was found on the disk; entries behind the last byte are left out, as what was before them is lost.

        Raises:
            ValueError: terms or offsets go back, or the log ends before its start.
        """
        if end_offset < start:
            raise ValueError(f"the log ends at {end_offset}, before its start {start}")
        for before, after in pairwise(entries):
            if after.term < before.term or after.offset < before.offset:
                raise ValueError(f"the epoch table goes back: {after} follows {before}")
        self._entries = [entry for entry in entries if entry.offset <= end_offset]
        self._offsets = [entry.offset for entry in self._entries]
        self.start = start
        self.end = Position(end_offset, len(self._entries))
        self.configuration, self.configuration_end = self._last_configuration()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries."""
        return tuple(self._entries)

    @property
    def last_term(self) -> int:
        """Term of the last unit."""
        return self._entries[-1].term if self._entries else 0

    def term_at(self, position: Position) -> int:
        """Return the term of the last unit of the prefix ``position``."""
        return self._entries[position.entries - 1].term if position.entries else 0

    def entry(self, index: int) -> Entry:
        """Return the entry with this index, counted from 0."""
        return self._entries[index]

    def contains(self, position: Position, term: int) -> bool:
        """Return whether ``position`` is a prefix of this log, the last unit of which has ``term``."""
        offset, count = position
        if offset > self.end.offset or not 0 <= count <= len(self._entries):
            return False
        if count and self._offsets[count - 1] > offset:
            return False
        if count < len(self._entries) and self._offsets[count] < offset:
            return False
        return self.term_at(position) == term

    def is_up_to_date(self, last_term: int, end: Position) -> bool:
        """Return whether a log with this last term and end holds all that this one may have promised."""
        return (last_term, end) >= (self.last_term, self.end)

    def end_of(self, term: int) -> tuple[int, Position]:
        """Return the largest term up to ``term`` that has a unit here, and the end of its last unit."""
        count = len(self._entries)
        while count and self._entries[count - 1].term > term:
            count -= 1
        found = self._entries[count - 1].term if count else 0
        return found, self.end if count == len(self._entries) else Position(self._offsets[count], count)

    def prefix(self, offset: int, entries: int) -> Position:
        """Return the longest prefix of this log with at most this many bytes and entries."""
        count = min(entries, len(self._entries))
        while count and self._offsets[count - 1] > offset:
            count -= 1
        bound = self.end.offset if count == len(self._entries) else self._offsets[count]
        return Position(min(offset, bound), count)

    def at(self, offset: int) -> Position:
        """Return the longest prefix with exactly this many bytes."""
        return Position(offset, bisect_right(self._offsets, offset))

    def between(self, start: Position, end: Position) -> tuple[Entry, ...]:
        """Return the entries of the range."""
        return tuple(self._entries[start.entries : end.entries])

    def append_bytes(self, end_offset: int) -> None:
        """Extend the log by bytes."""
        self.end = Position(end_offset, self.end.entries)

    def append_entry(self, entry: Entry) -> None:
        """Extend the log by an entry, which stands at its end."""
        self._entries.append(entry)
        self._offsets.append(entry.offset)
        self.end = Position(self.end.offset, len(self._entries))
        if entry.configuration is not None:
            self.configuration, self.configuration_end = entry.configuration, self.end

    def truncate(self, end: Position) -> None:
        """Cut everything behind ``end``, the entries too when no byte is cut."""
        del self._entries[end.entries :]
        del self._offsets[end.entries :]
        self.end = end
        self.configuration, self.configuration_end = self._last_configuration()

    def reset(self, end: Position, entries: Sequence[Entry]) -> None:
        """Forget the log; it goes on at ``end``, without the bytes before it."""
        self._entries = list(entries)
        self._offsets = [entry.offset for entry in entries]
        self.start = end.offset
        self.end = end
        self.configuration, self.configuration_end = self._last_configuration()

    def _last_configuration(self) -> tuple[Configuration, Position]:
        for index in range(len(self._entries) - 1, -1, -1):
            entry = self._entries[index]
            if entry.configuration is not None:
                return entry.configuration, Position(entry.offset, index + 1)
        return Configuration(), ZERO
