"""Compares the queues of a conversion by checksums: SHA-256 over queue offset, log offset, size and tag code of every
message in the log (28 bytes each, big-endian), queue by queue in the order of their ids.

See also: :mod:`~raptormq.storage.conversion.rebuild` builds the new queues.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from raptormq.errors import ConversionRefused
from raptormq.storage.conversion.rebuild import SLICE_ROWS, QueueConversion
from raptormq.storage.queue import ConsumeQueue, QueueTable

_ROW = struct.Struct(">qqiq")


class Checksums(NamedTuple):
    """Hexadecimal checksums of the old and the new queues."""

    before: str
    after: str


@dataclass(slots=True)
class _Check:
    """Position of the comparison of one queue, and the hashes so far."""

    at: int
    end: int
    before: hashlib._Hash = field(default_factory=hashlib.sha256)
    after: hashlib._Hash = field(default_factory=hashlib.sha256)


class QueueComparison:
    """One pass over all queues of a conversion that have caught up. Later records are added to the old and the new
    queues by the same call.
    """

    def __init__(self, conversion: QueueConversion, table: QueueTable) -> None:
        self._conversion = conversion
        self._table = table
        self._unchecked = dict.fromkeys(table.queue_ids(conversion.topic))
        self._check: _Check | None = None
        self._digests: dict[int, tuple[bytes, bytes]] = {}
        self._restarted: set[int] = set()
        self.messages = 0
        """Messages compared so far."""

    @property
    def is_complete(self) -> bool:
        """Whether all queues are equal."""
        return not self._unchecked

    def compare(self, *, wait: bool = False) -> bool:
        """Compare one slice. Return True if nothing is left to compare (:attr:`is_complete` is true then), or if a
        queue differs and is copied again. A queue is copied again at most once.

        Raises:
            PagesMissing: ``wait`` is false and the call would block on the disk.
            ConversionRefused: a queue differs again after the second copy.
            StorageError: the disk cannot read an item.
        """
        queue_id = next(iter(self._unchecked), None)
        if queue_id is None or self._conversion.is_lagging:
            return True
        source, queue = self._table.get(self._conversion.topic, queue_id), self._conversion.queues.get(queue_id)
        if source is None or queue is None:
            del self._unchecked[queue_id]
            return False
        if self._compare_slice(source, queue, wait):
            self._finish(queue_id)
        return False

    def _compare_slice(self, source: ConsumeQueue, queue: ConsumeQueue, wait: bool) -> bool:
        rows = self._conversion.rows
        first = rows.first_offset(source, wait=wait) if source.max_offset else 0
        check = self._check
        if check is None:
            check = self._check = _Check(first, min(source.max_offset, queue.max_offset))
        start = max(first, check.at)
        if start >= check.end:
            return True
        old_rows, end = rows.read(source, start, SLICE_ROWS, wait=wait)
        end = min(end, check.end)
        new_rows, at = [], start
        while at < end:
            more, at = rows.read(queue, at, SLICE_ROWS, wait=wait)
            new_rows += more
        for digest, found in ((check.before, old_rows), (check.after, new_rows)):
            digest.update(
                b"".join(
                    _ROW.pack(row.base, row.physical, row.size, row.tag_code)
                    for row in found
                    if start <= row.base < end
                )
            )
        self.messages += end - start
        check.at = end
        return end >= check.end

    def _finish(self, queue_id: int) -> None:
        check, self._check = self._check, None
        assert check is not None
        self._digests[queue_id] = check.before.digest(), check.after.digest()
        if check.before.digest() == check.after.digest():
            del self._unchecked[queue_id]
            return
        if queue_id in self._restarted:
            raise ConversionRefused(
                f"queue {queue_id} of {self._conversion.topic} still differs after a second copy and is not converted"
            )
        self._restarted.add(queue_id)
        self._conversion.restart_queue(queue_id)

    def checksums(self) -> Checksums:
        """Return the checksums of all queues compared."""
        before, after = hashlib.sha256(), hashlib.sha256()
        for queue_id in sorted(self._digests):
            for digest, part in zip((before, after), self._digests[queue_id], strict=True):
                digest.update(part)
        return Checksums(before.hexdigest(), after.hexdigest())
