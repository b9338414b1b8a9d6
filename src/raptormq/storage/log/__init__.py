"""The commit log: segments of bytes, the gate that refuses writes, flushes, readahead.

Handles offsets and bytes, not records.
"""

from __future__ import annotations

from raptormq.storage.log.commit_log import CommitLog, SegmentWrite
from raptormq.storage.log.confirmation import Confirmation
from raptormq.storage.log.flush import FlushService
from raptormq.storage.log.offset_waiters import OffsetCallback, OffsetWaiters, wait_for_offset
from raptormq.storage.log.readahead import PageWarmer
from raptormq.storage.log.segment import Segment
from raptormq.storage.log.write_gate import RATIO, WriteGate

__all__ = [
    "RATIO",
    "CommitLog",
    "Confirmation",
    "FlushService",
    "OffsetCallback",
    "OffsetWaiters",
    "PageWarmer",
    "Segment",
    "SegmentWrite",
    "WriteGate",
    "wait_for_offset",
]
