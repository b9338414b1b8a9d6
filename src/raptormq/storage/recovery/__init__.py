"""Recovery at the start of a store: reads the checkpoint and the crash marker, loads, checks and rebuilds the queues,
and truncates a torn tail of the log.

Runs before the broker serves clients, without concurrent changes of files.
"""

from __future__ import annotations

from raptormq.storage.recovery.checkpoint_file import Checkpoint, CheckpointFile
from raptormq.storage.recovery.emptying import start_over
from raptormq.storage.recovery.queue_check import EndsPacker
from raptormq.storage.recovery.queue_loading import RebuildRequired, load_queue, queue_ids
from raptormq.storage.recovery.recovery import Recovery, RecoveryReport, RunningMarker

__all__ = [
    "Checkpoint",
    "CheckpointFile",
    "EndsPacker",
    "RebuildRequired",
    "Recovery",
    "RecoveryReport",
    "RunningMarker",
    "load_queue",
    "queue_ids",
    "start_over",
]
