"""Stored records as messages for applications: inflated, and taken out of inner batches. Pure.

Neighbours: `pulling` brings the records, `message_batch` is what becomes of them, consumers hand the messages out.
Source: RocketMQ `MessageDecoder`, `PullAPIWrapper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from raptormq.client.message_batch import InnerBatch, MessageBatch, StoredMessages
from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.batch_places import locate_messages
from raptormq.protocol.compression import decompress
from raptormq.protocol.inner_batch import INNER_BATCH, inner_count
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.message_id import offset_id
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import Bytes, StoredMessage, SysFlag, decode_view

# A plain integer: operators of IntFlag cost a microsecond each, once per message.
_COMPRESSED = int(SysFlag.COMPRESSED)

Damaged = Callable[[StoredMessage, RecordError], None]
"""Told of an inner batch that cannot be taken apart; raises, or returns to go on with the record after it."""


def decode_messages(body: Bytes, queue: MessageQueue, first_offset: int = 0) -> list[MessageExt]:
    """Return the messages of a pull from `queue`, in the order of their queue offsets.

    Raises:
        RecordError: the records are damaged or cut, or a body cannot be inflated.
    """
    return [message for batch in decode_batches(body, queue, first_offset) for message in batch]


def decode_batches(
    body: Bytes,
    queue: MessageQueue,
    first_offset: int = 0,
    tags: Iterable[str] = (),
    damaged: Damaged | None = None,
) -> list[MessageBatch]:
    """Return the messages of a pull, each inner batch by itself and what stands between two of them as one.

    Args:
        body: stored records back to back.
        queue: where they were pulled from.
        first_offset: where the pull began; brokers answer with all of a batch when its middle is asked for, the
            messages before are left out.
        tags: tags wanted, all when empty.
        damaged: what to do about an inner batch that cannot be taken apart; by default that is an error.

    Raises:
        RecordError: the records are damaged or cut, or a body cannot be inflated.
    """
    batches: list[MessageBatch] = []
    single: list[MessageExt] = []
    data = memoryview(body)
    position, end = 0, len(data)
    wanted = frozenset(tags)
    while position < end:
        record, record_body = decode_view(data, position)
        position += record.total_size
        if record.sys_flag & INNER_BATCH != INNER_BATCH:
            message = _message(record, record_body, queue)
            if not wanted or message.tags in wanted:
                single.append(message)
            continue
        if single:
            batches.append(StoredMessages(single))
            single = []
        try:
            batch = _inner_batch(record, record_body, queue, first_offset)
        except RecordError as error:
            if damaged is None:
                raise
            damaged(record, error)
            continue
        if batch is not None and wanted:
            batch = batch.with_tags(wanted)
        if batch is not None:
            batches.append(batch)
    if single:
        batches.append(StoredMessages(single))
    return batches


def _message(record: StoredMessage, record_body: memoryview, queue: MessageQueue) -> MessageExt:
    properties = decode_properties(record.properties)
    stored_at = offset_id(record.store_host, record.physical_offset)
    plain = decompress(record_body, record.sys_flag) if record.sys_flag & _COMPRESSED else record_body
    return MessageExt(
        record.topic,
        bytes(plain),
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


def _inner_batch(
    record: StoredMessage, record_body: memoryview, queue: MessageQueue, first_offset: int
) -> InnerBatch | None:
    """Return the messages of an inner batch from `first_offset` on; `None` when there are none."""
    data = memoryview(decompress(record_body, record.sys_flag)) if record.sys_flag & _COMPRESSED else record_body
    places = locate_messages(data, inner_count(record.properties))
    skipped = max(first_offset - record.queue_offset, 0)
    if skipped >= len(places):
        return None
    return InnerBatch(record, data, places[skipped:] if skipped else places, range(skipped, len(places)), queue)
