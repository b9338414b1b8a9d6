"""Takes the wrapper of an inner batch apart into records, for readers that do not do so themselves.

What comes out are stored records (:mod:`raptormq.protocol.record`) like any other. No log has them, but each has a
PHYSICALOFFSET, so that message ids lead back to it: the one that :mod:`raptormq.protocol.inner_batch` says.

Some KiB can grow a thousandfold, and inflating 14 MiB takes 60 ms. So the event loop unpacks what has up to
:data:`MAX_INLINE_BYTES`; the rest is for a thread, and kept for the call that comes again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from raptormq.errors import BatchEncrypted, BodyTooLarge, RecordError
from raptormq.logs import get_logger
from raptormq.protocol.batch import MAX_BATCH_RECORDS
from raptormq.protocol.encryption import is_encrypted_body, key_id_of
from raptormq.protocol.inner_batch import inner_message_offset, is_inner_batch, unwrap
from raptormq.protocol.record import SYS_FLAG_AT, StoredMessage, decode_record
from raptormq.storage.fs import Buffer, PagesMissing
from raptormq.storage.records import peek_body_at

logger = get_logger(__name__)

MAX_DISTANCE = MAX_BATCH_RECORDS
"""The place of a message is at most so many bytes behind its wrapper's."""
MAX_UNPACKED_BYTES = 14 << 20
"""A batch that grows beyond this is not taken apart: one of its messages might not fit an answer."""
MAX_INLINE_BYTES = 1 << 20
"""What the event loop unpacks for one read: some milliseconds."""
_MAGIC_BYTES = 8
"""Bytes of a body that tell whether it is encrypted."""
_CACHE_BYTES = 64 << 20
_CACHE_BATCHES = 64


def is_wrapper(record: Buffer) -> bool:
    """True for the stored record of an inner batch."""
    return is_inner_batch(int.from_bytes(record[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big"))


def is_encrypted(record: Buffer) -> bool:
    """True for the stored record of an inner batch that was encrypted as a whole, which no broker takes apart.

    Asked for each batch that goes to the official Java client: it takes 0.3 us, however long the body is.
    """
    body_at = peek_body_at(record)
    return is_encrypted_body(record[body_at : body_at + _MAGIC_BYTES]) and is_wrapper(record)


def encrypted_batch_error(body: bytes, first: int, count: int) -> BatchEncrypted:
    """Return what readers are told who want a message of a batch of ``count``, from the queue offset ``first`` on, that
    is encrypted to this body.
    """
    try:
        key = f" with the key {key_id_of(body)!r}"
    except RecordError:  # cut; who has the keys will say so
        key = ""
    return BatchEncrypted(
        f"messages {first} to {first + count - 1} of the queue are encrypted as one{key}: only RaptorMQ's clients that "
        "have the key can read them, the broker can neither filter them nor take them apart"
    )


class UnpackedBatch(NamedTuple):
    """What has become of a batch that was to be taken apart."""

    messages: list[StoredMessage]
    """With their places, not to be changed; none when it is damaged or too large."""
    unpacked_bytes: int
    """Bytes that have been unpacked for it now."""
    is_too_large: bool = False
    """It grows beyond :data:`MAX_UNPACKED_BYTES`, and may be in order."""


class BatchUnpacker:
    """Takes batches apart and keeps the last ones, to which readers with small pulls come back."""

    def __init__(self) -> None:
        self._cache: OrderedDict[int, UnpackedBatch] = OrderedDict()
        """By the place of the wrapper, the last one at the end."""
        self._cached_bytes = 0
        self._lock = threading.Lock()

    def unpack(self, record: Buffer, physical: int, *, wait: bool, budget: int = MAX_INLINE_BYTES) -> UnpackedBatch:
        """Take the wrapper ``record`` at ``physical`` apart, with a line in the log when that cannot be done.

        Raises:
            PagesMissing: without ``wait``, when that takes more than ``room`` bytes.
        """
        cached = self._cache.get(physical)
        if cached is not None:
            return cached._replace(unpacked_bytes=0)
        if wait:
            return self._add_to_cache(physical, _try_unpack_record(record))
        if len(record) <= budget:
            with suppress(BodyTooLarge):
                return self._add_to_cache(physical, _try_unpack_record(record, budget))
        raise PagesMissing([], [partial(self._unpack_in_thread, bytes(record), physical)])

    def _unpack_in_thread(self, record: bytes, physical: int) -> None:
        """In a thread: take a large batch apart."""
        self._add_to_cache(physical, _try_unpack_record(record))

    def _add_to_cache(self, physical: int, batch: UnpackedBatch) -> UnpackedBatch:
        cached = self._cache
        with self._lock:
            if physical not in cached:
                cached[physical] = batch
                self._cached_bytes += batch.unpacked_bytes
            while len(cached) > 1 and (len(cached) > _CACHE_BATCHES or self._cached_bytes > _CACHE_BYTES):
                self._cached_bytes -= cached.popitem(last=False)[1].unpacked_bytes
        return batch


def _try_unpack_record(record: Buffer, max_bytes: int = MAX_UNPACKED_BYTES) -> UnpackedBatch:
    """As :func:`_unpacked`, but nothing for a batch that cannot be taken apart.

    Raises:
        BodyTooLarge: it has more than ``max_bytes``, and somebody else may take it.
    """
    try:
        return _unpack_record(record, max_bytes)
    except RecordError as error:
        is_too_large = isinstance(error, BodyTooLarge)
        if is_too_large and max_bytes < MAX_UNPACKED_BYTES:
            raise
        logger.warning("a batch cannot be taken apart: %s", error)
        return UnpackedBatch([], 0, is_too_large)


def _unpack_record(record: Buffer, max_bytes: int) -> UnpackedBatch:
    """Take a wrapper apart.

    Raises:
        RecordError: it cannot be taken apart, or has more than ``max_bytes``.
    """
    messages = unwrap(decode_record(record, check_crc=False), max_bytes)
    size, length = 0, len(record)
    for number, message in enumerate(messages):
        message.physical_offset = inner_message_offset(message.physical_offset, length, number)
        size += len(message.body) + len(message.properties)
    return UnpackedBatch(messages, size)
