"""Which copy of a record is damaged, decided by the copies of all members of a group. No I/O.

The CRC of a record covers its body alone. A bit that flips in the header, the topic or the properties is found only by
comparison: at the same offsets of the log, the records of all members have the same bytes.

A record that a majority of the group has with equal bytes is valid, and the other copies of it are damaged. The same
bit does not flip on two disks by chance, but a copy of a damaged copy is equal to it. Therefore only originals count:
bytes that a member has received when they were new. A member that has replaced its disk, or was down for a while, has
read the bytes from the disk of another member. It does not vote on them::

    n0 (original)   n1 (original)   n2          of 3 members
    A               B               B           B is valid: n0 is damaged
    A               B               B, a copy   undecided: n2 may have copied damage of n1
    A               B               no answer   undecided

Where no majority has equal originals, nobody knows which copy is valid. All copies are then named, and none is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from raptormq.protocol.record import BLANK_MAGIC
from raptormq.storage.records import next_record_end, peek


class Copy(NamedTuple):
    """The records of one member in a range of the log."""

    data: bytes
    """The bytes from the beginning of the range on, valid as far as their lengths, offsets and CRCs show."""
    copied: tuple[tuple[int, int], ...] | None
    """The parts of the range, as begin and end in the log, that are no originals. None if the member does not vote."""

    def votes(self, begin: int, end: int) -> bool:
        """Return whether the member votes on the record ``[begin, end)``."""
        return self.copied is not None and not any(low < end and begin < high for low, high in self.copied)


class Difference(NamedTuple):
    """One record of which members have different copies."""

    offset: int
    size: int
    members: tuple[str, ...]
    """The members whose copies are damaged. If no copy is known to be valid, all members that have sent theirs."""
    is_decided: bool
    """Whether a majority of the group has equal originals of the record."""
    is_own: bool
    """Whether it is decided that the own copy is damaged."""


def agreed(copies: Mapping[str, bytes], voters: Collection[str], majority: int) -> bytes | None:
    """Return the copy of a record that at least ``majority`` voters have, None if there is none.

    Args:
        copies: the copies by member.
        voters: the members that have originals.
        majority: more than half of the voters of the group, including those that have sent nothing.
    """
    counts = Counter(copy for member, copy in copies.items() if member in voters)
    return next((copy for copy, count in counts.items() if count >= majority), None)


def differences(own: str, copies: Mapping[str, Copy], begin: int, majority: int, segment_size: int) -> list[Difference]:
    """Return the records from the log offset ``begin`` on that are not equal on all members of ``copies``.

    Args:
        own: the member whose records determine where records begin and end.
        copies: the copies by member. A copy may end earlier than others; it is then not compared further.
        begin: log offset of the first byte of each copy.
        majority: see :func:`agreed`.
        segment_size: size of a segment of the log in bytes.

    Raises:
        RecordError: the own copy does not consist of records.
    """
    data, at, found = copies[own].data, 0, list[Difference]()
    if all(copy.data == data for copy in copies.values()):
        return found
    while at < len(data):
        end = at + next_record_end(data, at, begin + at, segment_size)
        records = {member: copy.data[at:end] for member, copy in copies.items() if len(copy.data) >= end}
        if peek(data, at)[1] != BLANK_MAGIC and len(set(records.values())) > 1:
            voters = [member for member in records if copies[member].votes(begin + at, begin + end)]
            valid = agreed(records, voters, majority)
            damaged = sorted(member for member, record in records.items() if record != valid)
            is_own = valid is not None and own in damaged
            found.append(Difference(begin + at, end - at, tuple(damaged), valid is not None, is_own))
        at = end
    return found
