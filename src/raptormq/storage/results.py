"""Answers of the store to its readers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from raptormq.storage.filesystem import Buffer, DiskUsage


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
    not in memory, or because copies are not wanted: call ``get_messages_cold``, which copies ``total_bytes`` (0: nobody
    knows yet).
    """

    status: GetStatus
    buffers: list[Buffer]
    next_offset: int
    min_offset: int
    max_offset: int
    message_count: int = 0
    total_bytes: int = 0
    cold: bool = False
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
    left_out_records: int
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
