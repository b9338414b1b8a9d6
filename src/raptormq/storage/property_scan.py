"""Reads the messages of a queue whose properties a filter wants: every record in turn is looked at, within limits.

Unlike tags, properties are not in the queue's items, so a read that finds nothing has cost a read of each record.
Source: Apache RocketMQ ``DefaultMessageStore.getMessage`` with ``MessageFilter.isMatchedByCommitLog``.
"""

from __future__ import annotations

from typing import Protocol

from raptormq.storage.commit_log import CommitLog
from raptormq.storage.consume_queue import FILLER_SIZE, ITEM, ITEM_BYTES
from raptormq.storage.filesystem import Buffer
from raptormq.storage.page_cache import Extent, PagesMissing
from raptormq.storage.record_parser import are_intact, peek_properties

SCAN_BYTES = 16 << 20
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


def scan(
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
    done = total = scanned = judged = 0
    for physical, size, _ in ITEM.iter_unpack(memoryview(items)[: len(items) // ITEM_BYTES * ITEM_BYTES]):
        if physical < log.min_offset or size == FILLER_SIZE or not log.holds(physical, size):
            done += 1
            continue
        if len(found) == max_count or (scanned and scanned + size > SCAN_BYTES):
            break
        scanned += size
        try:
            record = log.read(physical, size, wait=wait)
        except PagesMissing as error:
            missing += error.extents
            continue
        properties = bytes(peek_properties(record))
        judged += len(properties)
        if judged > wanted.max_scanned_bytes and judged > len(properties):
            break
        if wanted.wants(properties) and (log.is_hot(physical) or are_intact(record, physical)):
            if found and total + size > max_bytes:
                break
            found.append(record)
            total += size
        done += 1
    if missing:
        raise PagesMissing(missing)
    return found, done, total
