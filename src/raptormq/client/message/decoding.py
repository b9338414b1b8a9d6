"""Decoding of stored records into messages for applications: decryption, decompression, and unpacking of inner batches.
No I/O.

See also: `consumer.pull` returns the records, `message.message_batch` has the batches, consumers deliver the
messages. Source: RocketMQ `MessageDecoder`, `PullAPIWrapper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from raptormq.client.message.encryption import decrypt
from raptormq.client.message.message_batch import (
    DecodedMessages,
    InnerBatch,
    MessageBatch,
    PlainRecords,
    stored_message,
)
from raptormq.client.security import EncryptionKeys
from raptormq.errors import ChecksumError, KeyMissing, RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.batch_spans import check_messages, locate_messages
from raptormq.protocol.compression import decompress
from raptormq.protocol.encryption import is_encrypted_body
from raptormq.protocol.inner_batch import INNER_BATCH, inner_count
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.properties import decode_properties, find_property
from raptormq.protocol.record import Bytes, StoredMessage, SysFlag, decode_record, decode_view
from raptormq.protocol.record_spans import RecordSpan, locate_records

# A plain integer, because operations on an IntFlag take a microsecond per message.
_COMPRESSED = int(SysFlag.COMPRESSED)

Unreadable = Callable[[StoredMessage, RecordError | KeyMissing], bool]
"""Called for a body that does not match its CRC (ChecksumError), or cannot be decrypted, decompressed or unpacked.
Returns True to skip the record, False to stop before it.
"""


def decode_messages(
    body: Bytes, queue: MessageQueue, first_offset: int = 0, keys: EncryptionKeys | None = None
) -> list[MessageExt]:
    """Return the messages of a pull from `queue`, in the order of their queue offsets.

    Raises:
        RecordError: the records are damaged or cut, or a body cannot be decompressed.
        KeyMissing: a body is encrypted with a key that the client does not have.
    """
    batches = decode_batches(body, queue, first_offset, keys=keys, lazily=False)
    return [message for batch in batches for message in batch]


def decode_batches(
    body: Bytes,
    queue: MessageQueue,
    first_offset: int = 0,
    tags: Iterable[str] = (),
    unreadable: Unreadable | None = None,
    keys: EncryptionKeys | None = None,
    *,
    lazily: bool = True,
) -> list[MessageBatch]:
    """Return the messages of a pull in batches: one per inner batch, and one per sequence of messages between inner
    batches.

    Args:
        body: stored records back to back.
        queue: the queue that the records were pulled from.
        first_offset: where the pull started; a broker returns a whole batch for an offset in its middle, and the
            messages before that offset are left out.
        tags: wanted tags, all when empty.
        unreadable: handler of unreadable bodies; the default raises.
        keys: keys that encrypted bodies are decrypted with.
        lazily: decode individually stored messages on access if possible; slower if all are accessed.

    Raises:
        RecordError: the records are damaged or cut, or a body cannot be decompressed.
        KeyMissing: a body is encrypted with a key that the client does not have.
    """
    batches: list[MessageBatch] = []
    data = memoryview(body)
    position, end = 0, len(data)
    wanted = frozenset(tags)
    single = _SingleMessages(data, queue)
    while position < end:
        if lazily and not wanted and (position := single.locate(position)) == end:
            break
        record, record_body = _record_at(data, position)
        position += record.total_size
        try:
            if isinstance(record_body, ChecksumError):
                raise record_body
            if record.sys_flag & INNER_BATCH != INNER_BATCH:
                message = _message(record, record_body, queue, keys)
                if not wanted or message.tags in wanted:
                    single.add(message)
                continue
            batch = _inner_batch(record, record_body, queue, first_offset, keys)
        except (RecordError, KeyMissing) as error:
            if unreadable is None:
                raise
            if unreadable(record, error):
                continue
            break
        batches += single.take()
        if batch is not None and wanted:
            batch = batch.with_tags(wanted)
        if batch is not None:
            batches.append(batch)
    return batches + single.take()


def _record_at(data: memoryview, position: int) -> tuple[StoredMessage, memoryview | ChecksumError]:
    try:
        return decode_view(data, position)
    except ChecksumError as error:
        return decode_record(data, position, check_crc=False), error


def message_count(record: StoredMessage) -> int:
    """Return the number of queue offsets of a record: one, unless its properties mark it as a batch."""
    try:
        return inner_count(record.properties) if record.sys_flag & INNER_BATCH == INNER_BATCH else 1
    except RecordError:
        return 1


class _SingleMessages:
    """The messages between two inner batches: their positions while all are plain, otherwise decoded messages."""

    def __init__(self, data: memoryview, queue: MessageQueue) -> None:
        self._data = data
        self._queue = queue
        self._spans: list[RecordSpan] = []
        self._messages: list[MessageExt] = []

    def locate(self, position: int) -> int:
        """Add the plain records from `position` on. Return the position of the first record that must be decoded."""
        if self._messages:
            return position
        spans, position = locate_records(self._data, position)
        self._spans += spans
        return position

    def add(self, message: MessageExt) -> None:
        """Add a decoded message."""
        if self._spans:
            self._messages, self._spans = list(PlainRecords(self._data, self._spans, self._queue)), []
        self._messages.append(message)

    def take(self) -> list[MessageBatch]:
        """Return the messages as one batch, if there are any, and reset."""
        spans, self._spans = self._spans, []
        messages, self._messages = self._messages, []
        if spans:
            return [PlainRecords(self._data, spans, self._queue)]
        return [DecodedMessages(messages)] if messages else []


def _message(
    record: StoredMessage, record_body: memoryview, queue: MessageQueue, keys: EncryptionKeys | None
) -> MessageExt:
    properties = decode_properties(record.properties)
    plain = decompress(record_body, record.sys_flag) if record.sys_flag & _COMPRESSED else record_body
    if names.ENCRYPTION_KEY_ID in properties:
        plain = decrypt(plain, keys)
    return stored_message(record, bytes(plain), properties, queue)


def _inner_batch(
    record: StoredMessage, record_body: memoryview, queue: MessageQueue, first_offset: int, keys: EncryptionKeys | None
) -> MessageBatch | None:
    """Return the messages of an inner batch from `first_offset`; None if there are none."""
    plain = decompress(record_body, record.sys_flag) if record.sys_flag & _COMPRESSED else None
    key_id = find_property(record.properties, names.ENCRYPTION_KEY_ID)
    if key_id is not None and is_encrypted_body(record_body if plain is None else plain):
        plain = decrypt(record_body if plain is None else plain, keys)
        each_encrypted = False
    else:
        each_encrypted = key_id is not None
    data = record_body if plain is None else memoryview(plain)
    count = inner_count(record.properties)
    spans = locate_messages(data, count)
    if plain is not None:  # brokers do not verify encrypted or compressed contents
        check_messages(plain, spans)
    skipped = max(first_offset - record.queue_offset, 0)
    if skipped >= count:
        return None
    indexes = range(skipped, count)
    batch = InnerBatch(record, data, spans.starting_at(skipped), indexes, queue, None if each_encrypted else key_id)
    return _decrypt_messages(batch, keys) if each_encrypted else batch


def _decrypt_messages(batch: InnerBatch, keys: EncryptionKeys | None) -> DecodedMessages:
    """Decrypt the messages of a batch that were encrypted one by one."""
    messages = list(batch)
    for message in messages:
        if names.ENCRYPTION_KEY_ID in message.properties:
            message.body = decrypt(message.body, keys)
    return DecodedMessages(messages)
