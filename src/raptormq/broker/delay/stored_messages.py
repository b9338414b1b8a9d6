"""Decodes delayed and timer messages from the log."""

from __future__ import annotations

from collections.abc import Iterator

from raptormq.broker.tables import TopicTable
from raptormq.errors import RecordError
from raptormq.logs import get_logger
from raptormq.protocol.record import StoredMessage, decode_record, record_size
from raptormq.storage.fs import Buffer
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)


def decode_messages(data: Buffer, kind: str) -> Iterator[StoredMessage]:
    """Yield the messages of consecutive records.

    A damaged record is skipped with a warning that contains ``kind``. A record with an invalid size ends the iteration.
    """
    at = 0
    while at < len(data):
        size = len(data) - at
        try:
            size = record_size(data, at)
            yield decode_record(data, at)
        except RecordError as error:
            logger.warning("skipped a damaged %s message: %s", kind, error)
        at += size


def has_topic(store: MessageStore, topics: TopicTable, topic: str, log_offset: int) -> bool:
    """Return whether ``topic`` exists and was not deleted after the message at ``log_offset`` was stored."""
    return topic in topics.configs and log_offset >= store.tombstone_offset(topic)
