"""Options and results of reads.

:class:`ReadOptions` is an argument of :meth:`raptormq.storage.store.MessageStore.get_messages`; :class:`GetStatus` and
:class:`GetResult` are its result. :class:`Boundary` belongs to searches by time, and :class:`StoreStats` has the
figures of a store.

:func:`scan_properties` reads the messages of a queue that match a :class:`PropertyFilter`. It reads each record, up to
the limits of the filter, because queue items contain tag codes but no properties. Source: Apache RocketMQ
``DefaultMessageStore.getMessage`` with ``MessageFilter.isMatchedByCommitLog``.

See also: :mod:`~raptormq.storage.read.queue_reader` and :mod:`~raptormq.storage.read.batch_reader` read the queues.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from raptormq.storage.fs import Buffer, DiskUsage, Extent, PagesMissing
from raptormq.storage.log import CommitLog
from raptormq.storage.queue import FILLER_SIZE, ITEM, ITEM_BYTES
from raptormq.storage.read.known_damage import KnownDamage, records_damaged
from raptormq.storage.records import are_valid_records, peek_properties


class GetStatus(Enum):
    """Outcome of a read from a queue (Apache RocketMQ ``GetMessageStatus``; its names are the remarks of pull
    responses).
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """No message matched the filter; continue at ``next_offset``."""
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    """The records were deleted with their segment; continue at ``next_offset``."""
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    """The offset is the end of the queue, that is, the offset of the next message."""
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    """The queue does not exist yet."""
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    """The queue never had a message."""
    OFFSET_RESET = "OFFSET_RESET"
    """The broker has reset the offset of the group; no read of the store returns this."""


class GetResult(NamedTuple):
    """Records read from a queue, in stored form.

    ``buffers`` are the records back to back; adjacent records share one buffer. At most ``copied_bytes`` of them are
    copies in memory, the rest are slices of the mapped log. ``non_resident`` means that nothing was read, because pages
    are not in memory or copies are not allowed: call ``load_messages``, which copies ``total_bytes`` (0 when unknown).
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
    """Which message a search by time returns (Apache RocketMQ ``BoundaryType``)."""

    LOWER = "LOWER"
    """The first message stored at or after the time."""
    UPPER = "UPPER"
    """The last message stored at or before the time."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Figures of the store at one moment; sizes and offsets are bytes of the log unless stated otherwise."""

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
    """Usage of the volume of the log at the last measurement; None before the first one."""
    skipped_records: int
    """Records that reads had to skip because they are damaged or cannot be unpacked; a batch counts as one."""
    deleted_segments: int
    """Segments deleted by retention since the start."""
    writable: bool
    refusal: str
    """Reason why writes are refused; empty while they are accepted."""

    @property
    def disk_used_ratio(self) -> float:
        """Used share of the volume of the log, 0.0 to 1.0."""
        return self.disk_usage.used_ratio if self.disk_usage is not None else 0.0


class ReadOptions(NamedTuple):
    """Limits and filters of one read. The first matching message is always returned whole."""

    max_count: int
    max_bytes: int
    tags: frozenset[int] | None = None
    """Tag codes of the messages to return; None for all messages."""
    properties: PropertyFilter | None = None
    whole: bool = False
    """Allow batches of a BatchCQ topic as they are stored. Each counts as one message of ``max_count``."""
    encrypted: bool = True
    """Allow batches that are encrypted as a whole."""
    copies: bool = True
    """Allow copies of records in memory. If false, a read that needs a copy returns ``non_resident``."""


MAX_SCAN_BYTES = 16 << 20
"""Maximum bytes of records that one read scans, so that a read from disk does not load gigabytes. At least one record
is scanned.
"""


class PropertyFilter(Protocol):
    """Decides by the properties of a message. Must be fast and must not raise."""

    @property
    def max_scanned(self) -> int:
        """Maximum number of messages that one read scans."""

    @property
    def max_scanned_bytes(self) -> int:
        """Maximum bytes of properties that one read scans. At least one message is scanned."""

    def wants(self, properties: bytes) -> bool:
        """Return whether the message matches. ``properties`` is the stored text form of its properties."""


def scan_properties(
    log: CommitLog,
    items: Buffer,
    max_count: int,
    max_bytes: int,
    wanted: PropertyFilter,
    damage: KnownDamage,
    *,
    wait: bool,
) -> tuple[list[Buffer], int, int]:
    """Return the matching records among those of ``items``, the number of items scanned, and the bytes of the records.

    Damaged records are skipped, except for those that another copy of the log may repair.

    Raises:
        RecordsDamaged: the first record may be repaired from another copy.
        PagesMissing: ``wait`` is false and the call would block on the disk; it names all extents of the scan.
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
        is_valid = log.is_resident(physical) or are_valid_records(record, physical)
        if damage.covers(physical, size) or (not is_valid and damage.found(physical, size)):
            if not done and not missing:
                raise records_damaged(physical)
            break
        properties = bytes(peek_properties(record))
        properties_bytes += len(properties)
        if properties_bytes > wanted.max_scanned_bytes and properties_bytes > len(properties):
            break
        if is_valid and wanted.wants(properties):
            if found and total + size > max_bytes:
                break
            found.append(record)
            total += size
        done += 1
    if missing:
        raise PagesMissing(missing)
    return found, done, total
