"""What one read of a BatchCQ queue has come to, and whether there is room for more.

Neighbour: :mod:`~raptormq.storage.batch_reader` fills it, item by item.
"""

from __future__ import annotations

from raptormq.storage.batch_queue import BatchConsumeQueue
from raptormq.storage.filesystem import Buffer
from raptormq.storage.page_cache import Extent
from raptormq.storage.property_scan import PropertyFilter
from raptormq.storage.wishes import Wishes


class Found:
    """What a read from ``offset`` on, where item ``number`` is, has come to."""

    def __init__(self, queue: BatchConsumeQueue, offset: int, number: int) -> None:
        self.queue = queue
        self.number = number
        """Item that comes next."""
        self.is_damaged = False
        """The record of this item is not where it says."""
        self.lost = 0
        """Items that are damaged, or whose records are, and which nobody can mend."""
        self.closed = 0
        """Batches that nobody can take apart for this reader."""
        self.is_mended = False
        """An item says something else now."""
        self.buffers: list[Buffer] = []
        self.next_offset = offset
        self.messages = 0
        self.bytes = 0
        self.scanned = 0
        """Bytes of records that were taken apart."""
        self.unpacked = 0
        """Bytes that came out of them."""
        self.judged = 0
        """Messages whose properties were looked at."""
        self.judged_bytes = 0
        """Length of these properties."""
        self.missing: list[Extent] = []
        self.copied = 0
        """Bytes of :attr:`buffers` that are copies in memory."""
        self.is_uncopied = False
        """Something was left out that only a copy can bring."""
        self.is_apart = False
        """What is left out may be a batch to be taken apart, of unknown size."""

    def has_room(self, wishes: Wishes, size: int) -> bool:
        """True when one more message, or whole batch, of so many bytes fits; the first one always does."""
        if not self.messages:
            return True
        return len(self.buffers) < wishes.max_count and self.bytes + size <= wishes.max_bytes

    def is_enough(self, wanted: PropertyFilter, size: int) -> bool:
        """True when properties of so many bytes are for the next read to look at; else they are counted."""
        too_long = self.judged > 0 and self.judged_bytes + size > wanted.max_scanned_bytes
        if too_long or self.judged >= wanted.max_scanned:
            return True
        self.judged += 1
        self.judged_bytes += size
        return False

    def count(self, messages: int, size: int, end: int) -> None:
        """Note that so many messages more are found, up to the offset ``end``."""
        self.messages += messages
        self.bytes += size
        self.next_offset = end
