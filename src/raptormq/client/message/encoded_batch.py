"""`EncodedBatch`: a batch that a connector has encoded itself, column by column, without an object per message.

See also: `producer.producer` and `producer.staging` send it. Source: `raptormq.protocol.batch` for the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raptormq.client.config import ProducerConfig
from raptormq.client.message.send_request import (
    SendRequest,
    body_too_large,
    check_batch_topic,
    prepare_merged,
    prepare_single,
)
from raptormq.protocol import properties as names
from raptormq.protocol.batch import decode_batch
from raptormq.protocol.message import Message
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.properties import decode_properties


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Messages of one topic with `wait_stored`, and without flag, delay and priority."""

    topic: str
    body: bytes
    """The records. The properties of each contain its unique id and `WAIT=true`."""
    message_ids: Sequence[str]
    """The unique ids in the order of the records."""
    tags: str | None = None
    """The tag that every message has."""
    keys: Sequence[str] = ()
    """The distinct keys of all messages, at most `MAX_KEYS_CHARS` characters with separators. Not needed by
    `StagingClient.stage_encoded`: brokers that stage a batch read the keys of its messages."""

    def messages(self) -> Iterator[Message]:
        """Yield the messages, which keep their unique ids.

        Raises:
            RecordError: the body is not a batch.
        """
        for _, body, text in decode_batch(self.body):
            found = decode_properties(text.decode())
            tags, keys = found.pop(names.TAGS, None), found.pop(names.KEYS, "")
            del found[names.WAIT]
            yield Message(self.topic, body, tags, tuple(keys.split(names.KEY_SEPARATOR)) if keys else (), found)


def prepare_encoded(batch: EncodedBatch, ids: UniqueIdFactory, now_ms: int, config: ProducerConfig) -> SendRequest:
    """Prepare an encoded batch as one request. The records are not checked.

    Raises:
        MessageError: the topic or the tag is not valid, the topic takes no batches, or the batch is larger than
            `max_message_bytes`.
    """
    _check(batch, config)
    batch_id = ids.next_id(now_ms)
    return prepare_merged(batch.topic, batch.body, batch.message_ids, 0, batch.tags, batch.keys, True, batch_id, now_ms)


def prepare_only(batch: EncodedBatch, now_ms: int, config: ProducerConfig) -> SendRequest:
    """Prepare the only message of an encoded batch as a single message, compressed if it is large enough.

    Raises:
        MessageError: as in `prepare_encoded`.
        RecordError: the body is not a batch.
    """
    _check(batch, config)
    [(flag, body, properties)] = decode_batch(batch.body)
    return prepare_single(batch.topic, (flag, body, properties.decode()), 0, batch.message_ids[0], now_ms, config)


def _check(batch: EncodedBatch, config: ProducerConfig) -> None:
    check_batch_topic(batch.topic)
    if len(batch.body) > config.max_message_bytes:
        raise body_too_large(len(batch.body), config)
