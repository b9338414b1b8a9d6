"""A send that was accepted: its record and the data for its response.

Neighbours: :mod:`.admission` and :mod:`.usual_batches` make it, :mod:`.group` stores it, :mod:`.answers` answers it.
"""

from __future__ import annotations

from typing import NamedTuple

from raptormq.protocol.command import RemotingCommand
from raptormq.storage.queue import PendingList, PendingRecord


class AcceptedSend(NamedTuple):
    """A validated send request."""

    request: RemotingCommand
    pending: PendingRecord | PendingList
    is_list: bool
    record_count: int
    queue_id: int
    unique_key: str
    wait: bool
    """False if the producer set WAIT=false: the response need not wait until the record is confirmed."""
    recall_handle: str = ""
    """Handle for recalling a timer message."""
    in_batch: int = 0
    """Number of messages of a batch that is stored as one record, else 0."""
    later_topic: str = ""
    """Final topic of a message that is stored in another one first: a half, delayed or timer message."""
