"""Looks up single messages: by log offset, or by a key for which the index has returned log offsets.

Messages of a batch that is stored whole are found like others: by the offsets that
:mod:`~raptormq.storage.read.batch_unpacker` assigns, by their own keys as far as the index has them, and by the unique
key of the batch, which all of them share. A wrapper is returned only to callers that unpack batches, and only if the
batch is encrypted or the query is for its own unique key. Messages of deleted topics are returned only on request.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from raptormq.errors import BatchEncrypted, RecordError
from raptormq.protocol.copied_properties import fit_properties
from raptormq.protocol.inner_batch import inner_count
from raptormq.protocol.inner_ids import unpack_ids
from raptormq.protocol.properties import (
    MAX_PROPERTIES_BYTES,
    PAIR_SEPARATOR,
    UNIQUE_KEY,
    decode_properties,
    find_property,
    has_key,
)
from raptormq.protocol.record import (
    BLANK_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    StoredMessage,
    decode_record,
    encode_record,
)
from raptormq.storage.fs import Buffer
from raptormq.storage.log import CommitLog
from raptormq.storage.queue import QueueTable
from raptormq.storage.read.batch_unpacker import (
    MAX_DISTANCE,
    MAX_INLINE_BYTES,
    BatchUnpacker,
    encrypted_batch_error,
    is_encrypted,
    is_wrapper,
)
from raptormq.storage.read.known_damage import KnownDamage
from raptormq.storage.records import peek, peek_physical_offset, peek_store_timestamp

_MAGIC_AT = 4
_MAGICS = [magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2)]


class KeyQuery(NamedTuple):
    """Parameters of a query by key."""

    topic: str
    key: str
    """A unique key, or a word of KEYS."""
    begin: int
    end: int
    """``begin`` and ``end`` are store times in ms, both inclusive."""
    whole_batches: bool = False
    """Whether a batch is returned as it is stored if it is encrypted or has the key as its own unique key. Otherwise
    BatchEncrypted is raised for an encrypted batch, and the messages of a batch with that unique key get the key in
    place of their own.
    """


class MessageLookup:
    """Looks up messages in ``log``. ``queues`` has the tombstones of deleted topics. If ``wait`` is false, methods
    raise PagesMissing instead of blocking on the disk.
    """

    def __init__(self, log: CommitLog, queues: QueueTable, unpacker: BatchUnpacker, damage: KnownDamage) -> None:
        self._log = log
        self._damage = damage
        self._queues = queues
        self._unpacker = unpacker

    def message_at(
        self,
        physical: int,
        unique_key: str | None = None,
        *,
        allow_encrypted: bool = False,
        include_deleted: bool = False,
        whole: bool = False,
        wait: bool,
    ) -> Buffer | None:
        """Return the record of the message at a log offset; None if there is none.

        For the offset of a wrapper the result is the message with ``unique_key``, or the first message if no key is
        given. With ``allow_encrypted`` an encrypted batch is returned whole for each of its messages, with ``whole``
        any batch. Messages of deleted topics are returned with ``include_deleted`` only.

        Raises:
            BatchEncrypted: the message is in an encrypted batch.
            RecordsDamaged: the record is known to be damaged, and another copy of the log may repair it.
        """
        record = self._record_at(physical, wait)
        if record is None:
            return self._message_in_batch(
                physical, wait, allow_encrypted=allow_encrypted, include_deleted=include_deleted, whole=whole
            )
        if not include_deleted and self._is_tombstoned(record, physical):
            return None
        if whole or not is_wrapper(record) or (allow_encrypted and is_encrypted(record)):
            return record
        if (wrapper := _encrypted_wrapper(record)) is not None:
            raise _encrypted_error(wrapper)
        messages = self._unpacker.unpack(record, physical, wait=wait).messages
        if unique_key is not None and len(messages) > 1:
            messages = [each for each in messages if find_property(each.properties, UNIQUE_KEY) == unique_key]
        return encode_record(messages[0]) if messages else None

    def _record_at(self, physical: int, wait: bool) -> Buffer | None:
        log = self._log
        if not log.min_offset <= physical <= log.end_offset - MIN_RECORD_BYTES:
            return None
        self._damage.check(physical, 1)
        size, magic = peek(log.read(physical, BLANK_BYTES, wait=wait), 0)
        budget = self._readable_end(physical) - physical
        if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_RECORD_BYTES <= size <= budget:
            return None
        record = log.read(physical, size, wait=wait)
        return record if peek_physical_offset(record) == physical else None

    def _readable_end(self, physical: int) -> int:
        """Return the end of the segment of ``physical``, or the end of the log if that is earlier."""
        size = self._log.segment_size
        return min(self._log.end_offset, physical - physical % size + size)

    def _is_tombstoned(self, record: Buffer, place: int) -> bool:
        """Return whether the record belongs to a topic that was deleted when the log was longer than ``place``."""
        topic_tombstones = self._queues.topic_tombstones
        if any(place < end for end in topic_tombstones.values()):  # deleted topics are rare
            with suppress(RecordError):  # damaged: the caller that decodes it gets the error
                return place < topic_tombstones.get(decode_record(record, check_crc=False).topic, 0)
        return False

    def _message_in_batch(
        self, physical: int, wait: bool, *, allow_encrypted: bool, include_deleted: bool, whole: bool
    ) -> Buffer | None:
        """Return the message at ``physical`` inside a wrapper that begins up to :data:`MAX_DISTANCE` before it."""
        log = self._log
        begin = max(log.min_offset, physical - physical % log.segment_size, physical - MAX_DISTANCE)
        if not begin < physical < log.end_offset:
            return None
        end = min(physical + _MAGIC_AT + 3, self._readable_end(physical))
        window = bytes(log.read(begin, end - begin, wait=wait))
        at = len(window)
        while (at := max(window.rfind(magic, 0, at) for magic in _MAGICS)) >= _MAGIC_AT:
            start = begin + at - _MAGIC_AT
            record = self._record_at(start, wait)
            if record is not None:
                if not is_wrapper(record) or start + len(record) <= physical:
                    return None
                if not include_deleted and self._is_tombstoned(record, start):
                    return None
                if whole:
                    return record
                if (wrapper := _encrypted_wrapper(record, physical - start)) is not None:
                    if allow_encrypted:
                        return record
                    raise _encrypted_error(wrapper)
                messages = self._unpacker.unpack(record, start, wait=wait).messages
                index = physical - start - 1
                return encode_record(messages[index]) if index < len(messages) else None
            at += _MAGIC_AT - 1
        return None

    def find_by_key(self, offsets: Iterable[int], query: KeyQuery, limit: int, *, wait: bool) -> list[Buffer]:
        """Return up to ``limit`` of the messages at ``offsets`` that have the key, each once.

        Raises:
            BatchEncrypted: only encrypted batches have the key.
        """
        found: list[Buffer] = []
        refused: BatchEncrypted | None = None
        seen: set[int] = set()
        key, tombstone = query.key, self._queues.topic_tombstones.get(query.topic, 0)
        budget = MAX_INLINE_BYTES
        for offset in offsets:
            if len(found) >= limit:
                break
            if offset < tombstone or offset in seen or (data := self._record_at(offset, wait)) is None:
                continue
            seen.add(offset)
            try:
                message = decode_record(data, check_crc=False)
            except RecordError:
                continue
            if message.topic == query.topic and query.begin <= message.store_timestamp <= query.end:
                if is_encrypted(data):
                    if not (has_key(message.properties, key) or _contains_unique_key(message, key)):
                        continue
                    if query.whole_batches:
                        found.append(data)
                        continue
                    with suppress(RecordError):
                        refused = _encrypted_error(message)
                elif is_wrapper(data):
                    batch = self._unpacker.unpack(data, offset, wait=wait, budget=budget)
                    budget -= batch.unpacked_bytes
                    found += _in_batch(data, message, batch.messages, query)
                elif has_key(message.properties, key):
                    found.append(data)
        if refused is not None and not found:
            raise refused
        return found[:limit]

    def store_timestamp_at(self, physical: int, size: int | None = None, *, wait: bool) -> int | None:
        """Return the store time (ms) of the record at a log offset, message or batch. None if there is no record of
        ``size`` bytes, as for the values of a damaged queue item.
        """
        record = self._record_at(physical, wait)
        return None if record is None or size not in (None, len(record)) else peek_store_timestamp(record)


def _encrypted_wrapper(wrapper: Buffer, place: int = 0) -> StoredMessage | None:
    """Return the decoded wrapper when it is encrypted and has a message number ``place``; None otherwise."""
    if is_encrypted(wrapper):
        with suppress(RecordError):  # damaged: unpacking reports it
            message = decode_record(wrapper, check_crc=False)
            if place <= inner_count(message.properties):
                return message
    return None


def _encrypted_error(wrapper: StoredMessage) -> BatchEncrypted:
    return encrypted_batch_error(wrapper.body, wrapper.queue_offset, inner_count(wrapper.properties))


def _contains_unique_key(wrapper: StoredMessage, key: str) -> bool:
    """Return whether the properties of an encrypted batch list ``key`` as the unique key of one of its messages."""
    return key in unpack_ids(wrapper.properties)


def _in_batch(data: Buffer, wrapper: StoredMessage, messages: list[StoredMessage], query: KeyQuery) -> list[Buffer]:
    """Return the records of a batch that match the query: the messages with the key, or all messages when the batch
    itself has the key.
    """
    key = query.key
    found = [message for message in messages if has_key(message.properties, key)]
    if not found and has_key(wrapper.properties, key):
        found = messages
        if key == find_property(wrapper.properties, UNIQUE_KEY):
            if messages and query.whole_batches:
                return [data]
            found = [_with_key(message, key) for message in messages]
    return list(map(encode_record, found))


def _with_key(message: StoredMessage, key: str) -> StoredMessage:
    """Return the message with the unique key of its batch appended, because clients drop messages without the requested
    key. If the properties become too long, some are removed as in ``copied_properties``.
    """
    text = message.properties
    between = PAIR_SEPARATOR if text and text[-1] != PAIR_SEPARATOR else ""
    longer = f"{text}{between}{UNIQUE_KEY}\x01{key}\x02"
    if len(longer.encode()) > MAX_PROPERTIES_BYTES:
        longer = fit_properties(decode_properties(text), {UNIQUE_KEY: key}).text
    return replace(message, properties=longer)
