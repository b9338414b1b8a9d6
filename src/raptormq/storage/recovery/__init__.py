"""The start of a store: what the checkpoint and the marker say, queues loaded, checked and rebuilt, the torn tail cut.

Runs before anybody is served; nothing else changes files meanwhile.
"""

from __future__ import annotations

from raptormq.storage.recovery.checkpoint_file import Checkpoint, CheckpointFile
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
]
