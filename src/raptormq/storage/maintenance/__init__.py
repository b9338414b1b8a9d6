"""Work beside the requests: checkpoints, retention, eviction of pages.

Decides what is deleted, never what is stored.
"""

from __future__ import annotations

from raptormq.storage.maintenance.checkpointer import Checkpointer
from raptormq.storage.maintenance.maintenance import Maintenance
from raptormq.storage.maintenance.retention import Retention

__all__ = [
    "Checkpointer",
    "Maintenance",
    "Retention",
]
