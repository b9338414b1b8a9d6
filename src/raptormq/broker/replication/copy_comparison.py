"""Compares the copies of the log of a Dledger group, to find damage that no CRC of a record covers.

When the scrub has checked a range of closed segments, it sends the digest of the records to the next member in the
order of the ids, and after the last one to the first::

    n0                                  n1                                    n2
    digest of [0, 262144)           --> compares with its own
                                    <-- another digest: n1 compares, too
    reads the records of n1 and n2  <-> ...                               <-> ...
    votes on each record that differs (storage/maintenance/copy_vote.py)

In a pass of all members each pair of a group of three is compared. If the next member cannot compare the range, because
it is down, lacks a part of it, or has an earlier release, the one after it is asked.

A member takes part if it belongs to the group, knows a leader, and has no conflict with other members. Only closed
segments below the commit position are compared. A member whose log is another one up to the end of the range does not
vote. Each member repairs only its own copy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from raptormq.broker.replication.copied_ranges import CopiedRanges
from raptormq.broker.replication.group_member import GroupMember, InThread
from raptormq.broker.replication.links import RANGE_BYTES, Links, LogRange
from raptormq.errors import NoValidCopy, RaptorMQError, StorageError
from raptormq.raft import Configuration
from raptormq.storage.maintenance import Copy, Difference, agreed, differences
from raptormq.storage.store import MessageStore

_MAX_COMPARED_BYTES = 32 << 20
"""Maximum size of a range that is compared. A check of the scrub is smaller, even if it ends in the largest record."""


class CopyComparison:
    """The comparisons of one member."""

    def __init__(
        self,
        member: GroupMember,
        links: Links,
        store: MessageStore,
        in_thread: InThread,
        found_damage: Callable[[int, int], None],
        found_valid: Callable[[str], None],
    ) -> None:
        """Create the comparison.

        Args:
            member: the member.
            links: its connections to the others.
            store: its store.
            in_thread: runs blocking disk reads.
            found_damage: called with offset and size of a range that a CRC of a record shows to be damaged.
            found_valid: called with the id of a member whose records :meth:`agreed` returns.
        """
        self._member = member
        self._found_damage = found_damage
        self._found_valid = found_valid
        self._links = links
        self._store = store
        self._in_thread = in_thread
        self.suspect: Callable[[int, int], None] = lambda _begin, _end: None
        """Called with a range of the log that differs from the copy of another member."""

    # --- the own comparisons ---

    async def is_equal(self, begin: int, end: int, digest: str) -> bool | None:
        """Return whether the records of ``[begin, end)``, which have this digest, are equal on the next member that can
        compare them; None if there is none.
        """
        configuration = self._configuration()
        if configuration is None:
            return None
        place = LogRange(begin, end, self._member.log_identity(end))
        for other in self._others(configuration):
            try:
                found = await self._links.digest(other, place, digest) if self._links.is_connected(other) else ""
            except RaptorMQError:  # a member that cannot compare does not vote
                continue
            if found:
                return found == digest
        return None

    async def differences(self, begin: int, end: int) -> list[Difference]:
        """Return the records of ``[begin, end)`` that are not equal on all members that have sent them.

        Raises:
            StorageError: this member does not take part in the group now, or its own copy cannot be read.
        """
        configuration, copies = await self._copies(begin, end)
        return differences(self._member.id, copies, begin, configuration.quorum(), self._store.config.segment_size)

    async def agreed(self, begin: int, end: int) -> bytes:
        """Return the record ``[begin, end)`` that a majority of the group has, also if it is the own one.

        Raises:
            StorageError: no majority has equal originals now.
        """
        configuration, copies = await self._copies(begin, end)
        voters = [member for member, copy in copies.items() if copy.votes(begin, end)]
        valid = agreed({member: copy.data for member, copy in copies.items()}, voters, configuration.quorum())
        if valid is None:
            raise StorageError("no majority of the group has sent equal records of this part of the log")
        self._found_valid(next(member for member, copy in copies.items() if copy.data == valid))
        return valid

    async def _copies(self, begin: int, end: int) -> tuple[Configuration, dict[str, Copy]]:
        configuration = self._configuration()
        if configuration is None:
            raise StorageError("this member does not take part in its group now")
        place = LogRange(begin, end, self._member.log_identity(end))
        copies = {self._member.id: await _whole(partial(self._read_own, end), begin, end)}
        for other in self._others(configuration):
            try:
                copies[other] = await _whole(partial(self._read_other, other, place), begin, end)
            except RaptorMQError:
                continue
        voters = configuration.voters()
        return configuration, {
            member: copy if member in voters else copy._replace(copied=None) for member, copy in copies.items()
        }

    # --- requests of other members ---

    async def read_range(self, begin: int, limit: int, most: int) -> bytes:
        """See :class:`~raptormq.broker.replication.links.Queries`."""
        segments = self._store.closed_segments()
        try:
            data: bytes = await self._in_thread(lambda: segments.read_valid(begin, limit, most))
        except StorageError:
            self._found_damage(begin, limit - begin)
            raise
        if self._store.damage.covers(begin, len(data)):  # also where no CRC shows it
            raise NoValidCopy(f"this copy of the log is damaged in the range [{begin}, {begin + len(data)})")
        return data

    async def digest(self, place: LogRange, digest: str) -> str:
        """See :class:`~raptormq.broker.replication.links.Queries`."""
        begin, limit, log = place
        if not self._is_same_log(limit, log):
            raise StorageError("this member does not take part in the group, or its log is another one")
        segments = self._store.closed_segments()
        if limit - begin > _MAX_COMPARED_BYTES:
            raise StorageError(f"the range [{begin}, {limit}) has more than {_MAX_COMPARED_BYTES} bytes")
        if not segments.start <= begin < limit <= segments.end:
            raise StorageError(
                f"the range [{begin}, {limit}) is not within the closed segments [{segments.start}, {segments.end})"
            )
        result = await self._in_thread(lambda: segments.check(begin, limit))
        own: str = result.digest
        if not own:
            self._found_damage(begin, limit - begin)
            raise NoValidCopy(f"this copy of the log is damaged in the range [{begin}, {limit})")
        if own != digest:
            self.suspect(begin, limit)
        return own

    def copied(self, place: LogRange, size: int) -> CopiedRanges | None:
        """See :class:`~raptormq.broker.replication.links.Queries`."""
        is_same = self._is_same_log(place.limit, place.log)
        return self._member.copied(place.begin, place.begin + size) if is_same else None

    # --- who takes part ---

    def _configuration(self) -> Configuration | None:
        """Return the members of the group, None if this member does not take part in it now."""
        status = self._member.status()
        if status is None or status.diverged or self._member.conflict or not status.leader:
            return None
        own = status.configuration.get(self._member.id)
        return status.configuration if own is not None and own.incarnation == status.incarnation else None

    def _others(self, configuration: Configuration) -> list[str]:
        """Return the other members, the next one first."""
        ids = sorted(member.id for member in configuration.members)
        own = ids.index(self._member.id)
        return ids[own + 1 :] + ids[:own]

    def _is_same_log(self, end: int, log: str) -> bool:
        return self._configuration() is not None and self._member.log_identity(end) == log

    async def _read_own(self, end: int, at: int) -> Copy:
        segments = self._store.closed_segments()
        data: bytes = await self._in_thread(lambda: segments.read_valid(at, end, RANGE_BYTES))
        return Copy(data, self._member.copied(at, at + len(data)).ranges)

    async def _read_other(self, member: str, place: LogRange, at: int) -> Copy:
        return await self._links.read_copy(member, place._replace(begin=at))


async def _whole(read: Callable[[int], Awaitable[Copy]], begin: int, end: int) -> Copy:
    """Return all records of ``[begin, end)``, which ``read`` returns in pieces. Its argument is the offset of each."""
    pieces, copied, at = list[bytes](), list[tuple[int, int]](), begin
    votes = True
    while at < end:
        piece = await read(at)
        if not piece.data:
            raise StorageError(f"a copy has no records at offset {at}")
        pieces.append(piece.data)
        copied += piece.copied or ()
        votes = votes and piece.copied is not None
        at += len(piece.data)
    return Copy(b"".join(pieces), tuple(copied) if votes else None)
