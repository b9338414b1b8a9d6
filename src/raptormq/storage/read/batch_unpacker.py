"""Unpacks the wrapper of an inner batch into records, for readers that cannot unpack it themselves.

The results are stored records (:mod:`raptormq.protocol.record`) like any other. They are not in the log, but each has a
PHYSICALOFFSET, defined by :mod:`raptormq.protocol.inner_batch`, so that message ids lead back to it.

A few KiB can grow a thousandfold, and inflating 14 MiB takes 60 ms. The event loop therefore unpacks at most
:data:`MAX_INLINE_BYTES` per read. A thread unpacks larger batches, and the result is cached for the repeated call.
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
"""Largest distance between the offset of a message and the offset of its wrapper."""
MAX_UNPACKED_BYTES = 14 << 20
"""Maximum size of an unpacked batch in bytes. A message of a larger batch might not fit in a response."""
MAX_INLINE_BYTES = 1 << 20
"""Maximum bytes that the event loop unpacks for one read, which takes some milliseconds."""
_MAGIC_BYTES = 8
"""Number of bytes at the start of a body that identify an encrypted body."""
_CACHE_BYTES = 64 << 20
_CACHE_BATCHES = 64


def is_wrapper(record: Buffer) -> bool:
    """Return whether the stored record is an inner batch."""
    return is_inner_batch(int.from_bytes(record[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big"))


def is_encrypted(record: Buffer) -> bool:
    """Return whether the stored record is an inner batch that was encrypted as a whole. No broker can unpack it.

    Called for each batch sent to the official Java client; takes 0.3 us for a body of any length.
    """
    body_at = peek_body_at(record)
    return is_encrypted_body(record[body_at : body_at + _MAGIC_BYTES]) and is_wrapper(record)


def encrypted_batch_error(body: bytes, first: int, count: int) -> BatchEncrypted:
    """Return the error for readers that want a message of an encrypted batch. ``body`` is the body of the batch, which
    has ``count`` messages from queue offset ``first`` on.
    """
    try:
        key = f" with the key {key_id_of(body)!r}"
    except RecordError:  # truncated; a reader with the keys reports it
        key = ""
    return BatchEncrypted(
        f"messages {first} to {first + count - 1} of the queue are encrypted as one{key}: only RaptorMQ's clients that "
        "have the key can read them, the broker can neither filter nor unpack them"
    )


class UnpackedBatch(NamedTuple):
    """Result of unpacking one batch."""

    messages: list[StoredMessage]
    """Stored records with their log offsets, read-only. Empty if the batch is damaged or too large."""
    unpacked_bytes: int
    """Number of bytes that this call has unpacked; 0 for a cached result."""
    is_too_large: bool = False
    """Whether the unpacked batch exceeds :data:`MAX_UNPACKED_BYTES`. It may be intact."""


class BatchUnpacker:
    """Unpacks batches and caches the latest ones, because readers with small pulls request the same batch
    repeatedly."""

    def __init__(self) -> None:
        self._cache: OrderedDict[int, UnpackedBatch] = OrderedDict()
        """Cached batches by log offset of the wrapper, the latest one last."""
        self._cached_bytes = 0
        self._lock = threading.Lock()

    def unpack(self, record: Buffer, physical: int, *, wait: bool, budget: int = MAX_INLINE_BYTES) -> UnpackedBatch:
        """Unpack the wrapper ``record`` at log offset ``physical``. A failure is logged.

        Raises:
            PagesMissing: ``wait`` is false and the batch has more than ``budget`` bytes; a thread has to unpack it.
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
        """Unpack a large batch, in a thread."""
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
    """As :func:`_unpack_record`, with an empty result for a batch that cannot be unpacked.

    Raises:
        BodyTooLarge: the batch has more than ``max_bytes``, but a call with a higher limit may unpack it.
    """
    try:
        return _unpack_record(record, max_bytes)
    except RecordError as error:
        is_too_large = isinstance(error, BodyTooLarge)
        if is_too_large and max_bytes < MAX_UNPACKED_BYTES:
            raise
        logger.warning("cannot unpack a batch: %s", error)
        return UnpackedBatch([], 0, is_too_large)


def _unpack_record(record: Buffer, max_bytes: int) -> UnpackedBatch:
    """Unpack a wrapper.

    Raises:
        RecordError: the batch is damaged, or has more than ``max_bytes``.
    """
    messages = unwrap(decode_record(record, check_crc=False), max_bytes)
    size, length = 0, len(record)
    for number, message in enumerate(messages):
        message.physical_offset = inner_message_offset(message.physical_offset, length, number)
        size += len(message.body) + len(message.properties)
    return UnpackedBatch(messages, size)
