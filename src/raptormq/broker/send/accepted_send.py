"""A send that may be stored, and what its answer needs.

Neighbours: :mod:`.admission` and :mod:`.usual_batches` make it, :mod:`.group` stores it, :mod:`.answers` answers it.
"""

from __future__ import annotations

from typing import NamedTuple

from raptormq.protocol.command import RemotingCommand
from raptormq.storage.queue import PendingList, PendingRecord


class AcceptedSend(NamedTuple):
    """A request that may be stored."""

    request: RemotingCommand
    pending: PendingRecord | PendingList
    is_list: bool
    record_count: int
    queue_id: int
    unique_key: str
    wait: bool
    """False when the producer does not want to wait for the disk."""
    recall_handle: str = ""
    """By which a timer message can be taken back."""
    in_batch: int = 0
    """Messages of a batch that is stored as one record, else 0."""
    later_topic: str = ""
    """The topic that the message is for, where it waits in another one: a half, a delay level, a delivery time."""
