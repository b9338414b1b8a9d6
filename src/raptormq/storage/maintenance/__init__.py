"""Background work of the store: checkpoints, retention, eviction of pages, checks of closed segments."""

from __future__ import annotations

from raptormq.storage.maintenance.checkpointer import Checkpointer
from raptormq.storage.maintenance.closed_segments import CheckResult, ClosedSegments
from raptormq.storage.maintenance.copy_vote import Copy, Difference, agreed, differences
from raptormq.storage.maintenance.differing_ranges import DifferingRanges
from raptormq.storage.maintenance.maintenance import Maintenance
from raptormq.storage.maintenance.retention import Retention
from raptormq.storage.maintenance.scrub_schedule import ScrubSchedule

__all__ = [
    "CheckResult",
    "Checkpointer",
    "ClosedSegments",
    "Copy",
    "Difference",
    "DifferingRanges",
    "Maintenance",
    "Retention",
    "ScrubSchedule",
    "agreed",
    "differences",
]
