"""Messages that the broker keeps for later, as they are read back from the log."""

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
    """Yield the messages of records back to back. A damaged one is left out with a warning that names their ``kind``;
    one that does not even tell its size ends them.
    """
    at = 0
    while at < len(data):
        size = len(data) - at
        try:
            size = record_size(data, at)
            yield decode_record(data, at)
        except RecordError as error:
            logger.warning("a %s message is lost, its record is damaged: %s", kind, error)
        at += size


def has_topic(store: MessageStore, topics: TopicTable, topic: str, log_offset: int) -> bool:
    """Whether the topic is there that a message at ``log_offset`` waits for; one that was made again is another."""
    return topic in topics.configs and log_offset >= store.tombstone_offset(topic)
