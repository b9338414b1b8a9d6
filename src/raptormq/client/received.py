"""Stored records as messages for applications: inflated, and taken out of inner batches. Pure.

Neighbours: `pulling` brings the records, consumers hand the messages out. Source: RocketMQ `MessageDecoder`,
`PullAPIWrapper`.
"""

from __future__ import annotations

from collections.abc import Iterator

from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import decode_batch
from raptormq.protocol.compression import decompress
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.message_id import offset_id
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import StoredMessage, SysFlag, iter_records

# Plain integers: operators of IntFlag cost a microsecond each, once per message.
_INNER_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_COMPRESSED = int(SysFlag.COMPRESSED)


def decode_messages(body: bytes, queue: MessageQueue) -> list[MessageExt]:
    """Return the messages of a pull from `queue`, in the order of their queue offsets.

    Raises:
        RecordError: the records are damaged or cut, or a body cannot be inflated.
    """
    messages: list[MessageExt] = []
    for record in iter_records(body):
        if record.sys_flag & _INNER_BATCH == _INNER_BATCH:
            messages += _unwrap(record, queue)
        else:
            messages.append(_message(record, queue))
    return messages


def _message(record: StoredMessage, queue: MessageQueue) -> MessageExt:
    properties = decode_properties(record.properties)
    stored_at = offset_id(record.store_host, record.physical_offset)
    body = decompress(record.body, record.sys_flag) if record.sys_flag & _COMPRESSED else record.body
    return MessageExt(
        record.topic,
        body,
        properties,
        queue,
        record.queue_offset,
        record.physical_offset,
        properties.get(names.UNIQUE_KEY, stored_at),
        stored_at,
        record.born_timestamp,
        record.store_timestamp,
        record.reconsume_times,
        record.flag,
        record.sys_flag,
    )


def _unwrap(record: StoredMessage, queue: MessageQueue) -> Iterator[MessageExt]:
    """Yield the messages of an inner batch: their own flag, properties and body, everything else from the wrapper."""
    stored_at = offset_id(record.store_host, record.physical_offset)
    for index, inner in enumerate(decode_batch(decompress(record.body, record.sys_flag))):
        try:
            properties = decode_properties(inner.properties.decode())
        except UnicodeDecodeError as error:
            raise RecordError(f"properties in an inner batch are not UTF-8: {error}") from error
        yield MessageExt(
            record.topic,
            inner.body,
            properties,
            queue,
            record.queue_offset + index,
            record.physical_offset,
            properties.get(names.UNIQUE_KEY, stored_at),
            stored_at,
            record.born_timestamp,
            record.store_timestamp,
            0,
            inner.flag,
            record.sys_flag,
        )
