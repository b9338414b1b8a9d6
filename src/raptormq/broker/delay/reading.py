"""Messages that the broker keeps for later, as they are read back from the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from raptormq.errors import RecordError
from raptormq.protocol.record import StoredMessage, decode_record
from raptormq.storage.filesystem import Buffer

logger = logging.getLogger(__name__)


def messages_of(data: Buffer, kind: str) -> Iterator[StoredMessage]:
    """Yield the messages of records back to back; a damaged one ends them with a warning that names their ``kind``."""
    at = 0
    while at < len(data):
        try:
            message = decode_record(data, at)
        except RecordError as error:
            logger.warning("a %s message is lost, its record is damaged: %s", kind, error)
            return
        at += message.total_size
        yield message
