"""The Raft log: the bytes of the commit log, plus the entries of the epoch table.

The replicated log is the commit log itself. Two kinds of events have no bytes in it: the start of a term and a
membership change. Both are entries of the epoch table, each with a place between two bytes::

    commit log   0 .................. 700 ........... 900 ......... 1200
    entries      | term 1              | term 4        |             | term 5
                   members n0 n1 n2                    | members n0 n2

    position     (offset, entries): the prefix of the log with that many bytes and that many entries
                 (0, 0) < (0, 1) < (700, 1) < (700, 2) < (900, 2) < (900, 3) < (1200, 3) < (1200, 4)

A byte and an entry each count as one unit, so ``offset + entries`` is the log index of the Raft paper, and the proofs
of the paper apply unchanged. Each term starts with an entry, so the table determines the term of every unit: a byte has
the term of the last entry before it. Bytes before the first entry have term 0 (a store that was not replicated before).
Two logs that both contain position ``p`` with the same term are equal up to ``p``.

A position belongs to a log. Positions of two logs are comparable only if one log is a prefix of the other, which is the
case when their last terms are equal (:meth:`EpochLog.is_up_to_date`).

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
    """The length of a prefix of the log, in bytes and entries. Positions of one log are totally ordered."""

    offset: int
    entries: int

    def __str__(self) -> str:
        return f"{self.offset}+{self.entries}"


ZERO = Position(0, 0)


class Suffrage(StrEnum):
    """Whether a member votes and counts towards majorities."""

    VOTER = "voter"
    JOINING = "joining"  # a learner that the leader promotes when it has caught up
    LEARNER = "learner"  # receives the log, does not vote


class Member(NamedTuple):
    """A member of the group.

    Attributes:
        id: the configured name (``dLegerSelfId``), unique in the group.
        incarnation: the random identity of the member's disk. A new disk under the same id has another incarnation.
        suffrage: whether the member votes.
        address: its network address; opaque to the library.
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
            ValueError: two members have the same id.
        """
        ordered = tuple(sorted(members))
        if len({member.id for member in ordered}) != len(ordered):
            raise ValueError("two members of a group have the same id")
        return cls(ordered)

    def get(self, member_id: str) -> Member | None:
        """Return the member with this id, None if there is none."""
        for member in self.members:
            if member.id == member_id:
                return member
        return None

    def voters(self) -> list[str]:
        """Return the ids of the voters."""
        return [member.id for member in self.members if member.suffrage is Suffrage.VOTER]

    def quorum(self) -> int:
        """Return the number of voters that form a majority."""
        return len(self.voters()) // 2 + 1

    def with_member(self, member: Member) -> Configuration:
        """Return this configuration with ``member`` added, in place of a member with the same id if there is one."""
        return Configuration.of([*(other for other in self.members if other.id != member.id), member])

    def without(self, member_id: str) -> Configuration:
        """Return this configuration without the member of this id."""
        return Configuration(tuple(member for member in self.members if member.id != member_id))

    def __str__(self) -> str:
        marks = {Suffrage.VOTER: "", Suffrage.JOINING: "^", Suffrage.LEARNER: "~"}
        return ",".join(f"{marks[member.suffrage]}{member.id}:{member.incarnation}" for member in self.members)


class Entry(NamedTuple):
    """An entry of the epoch table: the start of a term or a membership change.

    Attributes:
        term: the term of the leader that appended the entry. At the start of a term it is larger than the term of the
            previous entry.
        offset: the number of log bytes before the entry.
        configuration: all members from this entry on; None if the members do not change. The entry that starts the
            first term of a group has a configuration.
    """

    term: int
    offset: int
    configuration: Configuration | None = None

    def __str__(self) -> str:
        what = "start" if self.configuration is None else f"members {self.configuration}"
        return f"[term {self.term} at {self.offset}: {what}]"


class EpochLog:
    """The structure of a member's log: its first and last offset and its entries.

    Attributes:
        start: offset of the first byte that retention has kept. Entries are never deleted: their number grows only with
            elections and membership changes.
        end: position of the log's end.
        configuration: the last configuration in the log. It takes effect when it is appended, before it is committed.
        configuration_end: the position after the entry of ``configuration``.
    """

    __slots__ = ("_entries", "_offsets", "configuration", "configuration_end", "end", "start")

    def __init__(self, start: int, end_offset: int, entries: Sequence[Entry]) -> None:
        """Load the log from the state on the disk. Entries beyond ``end_offset`` are ignored, because bytes before them
        are lost.

        Raises:
            ValueError: terms or offsets decrease, or the log ends before its start.
        """
        if end_offset < start:
            raise ValueError(f"the log ends at {end_offset}, before its start {start}")
        for before, after in pairwise(entries):
            if after.term < before.term or after.offset < before.offset:
                raise ValueError(f"the epoch table is not in order: {after} follows {before}")
        self._entries = [entry for entry in entries if entry.offset <= end_offset]
        self._offsets = [entry.offset for entry in self._entries]
        self.start = start
        self.end = Position(end_offset, len(self._entries))
        self.configuration, self.configuration_end = self._last_configuration()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries of the epoch table."""
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
        """Return whether ``position`` is in this log and the unit before it has ``term``."""
        offset, count = position
        if offset > self.end.offset or not 0 <= count <= len(self._entries):
            return False
        if count and self._offsets[count - 1] > offset:
            return False
        if count < len(self._entries) and self._offsets[count] < offset:
            return False
        return self.term_at(position) == term

    def is_up_to_date(self, last_term: int, end: Position) -> bool:
        """Return whether a log with ``last_term`` and ``end`` is at least as up to date as this one (Raft, 5.4.1)."""
        return (last_term, end) >= (self.last_term, self.end)

    def end_of(self, term: int) -> tuple[int, Position]:
        """Return the largest term of this log that is not above ``term``, and the position where it ends."""
        count = len(self._entries)
        while count and self._entries[count - 1].term > term:
            count -= 1
        found = self._entries[count - 1].term if count else 0
        return found, self.end if count == len(self._entries) else Position(self._offsets[count], count)

    def prefix(self, offset: int, entries: int) -> Position:
        """Return the position of the longest prefix with at most ``offset`` bytes and ``entries`` entries."""
        count = min(entries, len(self._entries))
        while count and self._offsets[count - 1] > offset:
            count -= 1
        bound = self.end.offset if count == len(self._entries) else self._offsets[count]
        return Position(min(offset, bound), count)

    def at(self, offset: int) -> Position:
        """Return the position of the longest prefix with exactly ``offset`` bytes."""
        return Position(offset, bisect_right(self._offsets, offset))

    def between(self, start: Position, end: Position) -> tuple[Entry, ...]:
        """Return the entries between two positions."""
        return tuple(self._entries[start.entries : end.entries])

    def append_bytes(self, end_offset: int) -> None:
        """Extend the log to ``end_offset`` bytes."""
        self.end = Position(end_offset, self.end.entries)

    def append_entry(self, entry: Entry) -> None:
        """Append an entry at the end of the log."""
        self._entries.append(entry)
        self._offsets.append(entry.offset)
        self.end = Position(self.end.offset, len(self._entries))
        if entry.configuration is not None:
            self.configuration, self.configuration_end = entry.configuration, self.end

    def truncate(self, end: Position) -> None:
        """Remove all bytes and entries after ``end``."""
        del self._entries[end.entries :]
        del self._offsets[end.entries :]
        self.end = end
        self.configuration, self.configuration_end = self._last_configuration()

    def reset(self, end: Position, entries: Sequence[Entry]) -> None:
        """Replace the log with one that starts at ``end`` and has ``entries``, but no bytes before ``end``."""
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
