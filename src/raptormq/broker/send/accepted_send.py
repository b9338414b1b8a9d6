"""An accepted send: its record and the data of its response.

:mod:`.admission` and :mod:`.batch_fast_path` create it, :mod:`.send_service` stores it, :mod:`.answers` answers it.
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
    """False if the producer set WAIT=false: the response does not wait for the confirmation of the record."""
    recall_handle: str = ""
    """Recall handle of a timer message."""
    in_batch: int = 0
    """Number of messages of a batch that is stored as one record, 0 for other sends."""
    later_topic: str = ""
    """Destination topic of a half, delayed or timer message, otherwise empty."""
