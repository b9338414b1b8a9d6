"""Takes the wrapper of an inner batch apart into records, for readers that do not do so themselves.

What comes out are stored records (:mod:`raptormq.protocol.record`) like any other. No log has them, but each has a
PHYSICALOFFSET, so that message ids lead back to it: the one that :mod:`raptormq.protocol.inner_batch` says.

Some KiB can grow a thousandfold, and inflating 14 MiB takes 60 ms. So the event loop unpacks what has up to
:data:`AT_ONCE_BYTES`; the rest is for a thread, and kept for the call that comes again.
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
AT_ONCE_BYTES = 1 << 20
"""What the event loop unpacks for one read: some milliseconds."""
_LOOKED_AT = 8
"""Bytes of a body that tell whether it is encrypted."""
_KEPT_BYTES = 64 << 20
_KEPT = 64


def is_wrapper(record: Buffer) -> bool:
    """True for the stored record of an inner batch."""
    return is_inner_batch(int.from_bytes(record[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big"))


def is_encrypted(record: Buffer) -> bool:
    """True for the stored record of an inner batch that was encrypted as a whole, which no broker takes apart.

    Asked for each batch that goes to the official Java client: it takes 0.3 us, however long the body is.
    """
    body_at = peek_body_at(record)
    return is_encrypted_body(record[body_at : body_at + _LOOKED_AT]) and is_wrapper(record)


def refusal(body: bytes, first: int, count: int) -> BatchEncrypted:
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


class Apart(NamedTuple):
    """What has become of a batch that was to be taken apart."""

    messages: list[StoredMessage]
    """With their places, not to be changed; none when it is damaged or too large."""
    unpacked: int
    """Bytes that have been unpacked for it now."""
    is_too_large: bool = False
    """It grows beyond :data:`MAX_UNPACKED_BYTES`, and may be in order."""


class BatchUnpacker:
    """Takes batches apart and keeps the last ones, to which readers with small pulls come back."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, Apart] = OrderedDict()
        """By the place of the wrapper, the last one at the end."""
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def take_apart(self, record: Buffer, physical: int, *, wait: bool, room: int = AT_ONCE_BYTES) -> Apart:
        """Take the wrapper ``record`` at ``physical`` apart, with a line in the log when that cannot be done.

        Raises:
            PagesMissing: without ``wait``, when that takes more than ``room`` bytes.
        """
        kept = self._kept.get(physical)
        if kept is not None:
            return kept._replace(unpacked=0)
        if wait:
            return self._keep(physical, _apart(record))
        if len(record) <= room:
            with suppress(BodyTooLarge):
                return self._keep(physical, _apart(record, room))
        raise PagesMissing([], [partial(self._unpack, bytes(record), physical)])

    def _unpack(self, record: bytes, physical: int) -> None:
        """In a thread: take a large batch apart."""
        self._keep(physical, _apart(record))

    def _keep(self, physical: int, apart: Apart) -> Apart:
        kept = self._kept
        with self._lock:
            if physical not in kept:
                kept[physical] = apart
                self._kept_bytes += apart.unpacked
            while len(kept) > 1 and (len(kept) > _KEPT or self._kept_bytes > _KEPT_BYTES):
                self._kept_bytes -= kept.popitem(last=False)[1].unpacked
        return apart


def _apart(record: Buffer, max_bytes: int = MAX_UNPACKED_BYTES) -> Apart:
    """As :func:`_unpacked`, but nothing for a batch that cannot be taken apart.

    Raises:
        BodyTooLarge: it has more than ``max_bytes``, and somebody else may take it.
    """
    try:
        return _unpacked(record, max_bytes)
    except RecordError as error:
        is_too_large = isinstance(error, BodyTooLarge)
        if is_too_large and max_bytes < MAX_UNPACKED_BYTES:
            raise
        logger.warning("a batch cannot be taken apart: %s", error)
        return Apart([], 0, is_too_large)


def _unpacked(record: Buffer, max_bytes: int) -> Apart:
    """Take a wrapper apart.

    Raises:
        RecordError: it cannot be taken apart, or has more than ``max_bytes``.
    """
    messages = unwrap(decode_record(record, check_crc=False), max_bytes)
    size, length = 0, len(record)
    for number, message in enumerate(messages):
        message.physical_offset = inner_message_offset(message.physical_offset, length, number)
        size += len(message.body) + len(message.properties)
    return Apart(messages, size)
