"""What readers of the store ask for and what they get: the options of a read, its filter, and the answers.

:class:`ReadOptions` is an argument of :meth:`raptormq.storage.store.MessageStore.get_messages`.
:class:`GetStatus` and :class:`GetResult` are the answer to it, :class:`Boundary` belongs to searches by time, and
:class:`StoreStats` is what the store says of itself.

:func:`scan` reads the messages of a queue whose properties a :class:`PropertyFilter` wants. Every record in turn is
looked at, within limits: unlike tags, properties are not in the queue's items, so a read that finds nothing has cost a
read of each record. Source: Apache RocketMQ ``DefaultMessageStore.getMessage`` with
``MessageFilter.isMatchedByCommitLog``.

Neighbours: :mod:`~raptormq.storage.read.queue_reader` and :mod:`~raptormq.storage.read.batch_reader` read the queues.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from raptormq.storage.fs import Buffer, DiskUsage, Extent, PagesMissing
from raptormq.storage.log import CommitLog
from raptormq.storage.queue import FILLER_SIZE, ITEM, ITEM_BYTES
from raptormq.storage.records import are_valid_records, peek_properties


class GetStatus(Enum):
    """Outcome of a read from a queue (Apache RocketMQ ``GetMessageStatus``, whose names are the remarks of pull
    responses).
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """The filter removed everything that was looked at; ask again from ``next_offset``."""
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    """The records are gone with their segment; ask again from ``next_offset``."""
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    """The offset is the next message to come."""
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    """There is no such queue (yet)."""
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    """The queue never had a message."""
    OFFSET_RESET = "OFFSET_RESET"
    """The broker has moved the group to another offset; no read of the store ends so."""


class GetResult(NamedTuple):
    """Records read from a queue, in stored form.

    ``buffers`` together are the records back to back; neighbours in the log share one buffer. At most ``copied_bytes``
    of them are copies in memory, the rest slices of the mapped log. With ``cold`` nothing was read because pages are
    not in memory, or because copies are not wanted: call ``load_messages``, which copies ``total_bytes`` (0: nobody
    knows yet).
    """

    status: GetStatus
    buffers: list[Buffer]
    next_offset: int
    min_offset: int
    max_offset: int
    message_count: int = 0
    total_bytes: int = 0
    non_resident: bool = False
    copied_bytes: int = 0


class Boundary(Enum):
    """Which message a search by time means (Apache RocketMQ ``BoundaryType``)."""

    LOWER = "LOWER"
    """The first one stored at or after the time."""
    UPPER = "UPPER"
    """The last one stored at or before the time."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What the store is like right now; sizes and offsets in bytes of the log unless said otherwise."""

    min_offset: int
    end_offset: int
    flushed_offset: int
    confirmed_offset: int
    dispatched_offset: int
    segments: int
    topics: int
    queues: int
    open_queue_files: int
    appended_records: int
    appended_bytes: int
    disk_usage: DiskUsage | None
    """Of the volume that has the log, at the last look; None before the first one."""
    skipped_records: int
    """Records, a batch being one, that reads had to leave out: damaged, or not to be taken apart."""
    deleted_segments: int
    """By retention, since the start."""
    writable: bool
    refusal: str
    """Why writes are refused; empty while they are not."""

    @property
    def disk_used_ratio(self) -> float:
        """Share of that volume in use, 0.0 to 1.0."""
        return self.disk_usage.used_ratio if self.disk_usage is not None else 0.0


class ReadOptions(NamedTuple):
    """Limits and filters of one read; the first message that fits always comes whole."""

    max_count: int
    max_bytes: int
    tags: frozenset[int] | None = None
    """Tag codes; None for all messages."""
    properties: PropertyFilter | None = None
    whole: bool = False
    """Whether the batches of a BatchCQ topic may come as they are stored; each counts as one, whatever it holds."""
    encrypted: bool = True
    """Whether those may that are encrypted."""
    copies: bool = True
    """Whether records may come as copies in memory; without, a read that needs any ends ``cold``."""


MAX_SCAN_BYTES = 16 << 20
"""Bytes of records looked at by one read at most, so that a cold one does not fetch gigabytes; one record always."""


class PropertyFilter(Protocol):
    """Decides by the properties of a message; must be quick and must not raise."""

    @property
    def max_scanned(self) -> int:
        """How many messages one read may look at."""

    @property
    def max_scanned_bytes(self) -> int:
        """How long their properties may be together; one message always."""

    def wants(self, properties: bytes) -> bool:
        """True for a message that is wanted; ``properties`` is the text form that is stored."""


def scan_properties(
    log: CommitLog, items: Buffer, max_count: int, max_bytes: int, wanted: PropertyFilter, *, wait: bool
) -> tuple[list[Buffer], int, int]:
    """Return the wanted records among those that ``items`` lead to, how many items were done with, and the bytes
    found.

    Damaged records are left out.

    Raises:
        PagesMissing: without ``wait``, when the disk would have to be waited for; it names all that will be looked at.
        StorageError: the disk cannot read the records.
    """
    found: list[Buffer] = []
    missing: list[Extent] = []
    done = total = scanned = properties_bytes = 0
    for physical, size, _ in ITEM.iter_unpack(memoryview(items)[: len(items) // ITEM_BYTES * ITEM_BYTES]):
        if physical < log.min_offset or size == FILLER_SIZE or not log.contains(physical, size):
            done += 1
            continue
        if len(found) == max_count or (scanned and scanned + size > MAX_SCAN_BYTES):
            break
        scanned += size
        try:
            record = log.read(physical, size, wait=wait)
        except PagesMissing as error:
            missing += error.extents
            continue
        properties = bytes(peek_properties(record))
        properties_bytes += len(properties)
        if properties_bytes > wanted.max_scanned_bytes and properties_bytes > len(properties):
            break
        if wanted.wants(properties) and (log.is_resident(physical) or are_valid_records(record, physical)):
            if found and total + size > max_bytes:
                break
            found.append(record)
            total += size
        done += 1
    if missing:
        raise PagesMissing(missing)
    return found, done, total
