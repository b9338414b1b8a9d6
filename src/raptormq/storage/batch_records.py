"""Takes the wrapper of an inner batch apart into records, for readers that do not do so themselves.

What comes out are stored records (:mod:`raptormq.protocol.record`) like any other. No log has them, but each has a
PHYSICALOFFSET, so that message ids lead back to it: message ``i`` of a wrapper is "at" the ``i + 1``-th byte behind the
wrapper's first one. A wrapper is longer than that unless it is compressed; where it is not, the place is the wrapper's.
"""

from __future__ import annotations

import logging

from raptormq.errors import RecordError
from raptormq.protocol.batch import MAX_BATCH_RECORDS
from raptormq.protocol.encryption import is_sealed
from raptormq.protocol.inner_batch import is_inner_batch, unwrap
from raptormq.protocol.record import SYS_FLAG_AT, StoredMessage, decode_record
from raptormq.storage.filesystem import Buffer

logger = logging.getLogger(__name__)

MAX_DISTANCE = MAX_BATCH_RECORDS
"""The place of a message is at most so many bytes behind its wrapper's."""


def is_wrapper(record: Buffer) -> bool:
    """True for the stored record of an inner batch."""
    return is_inner_batch(int.from_bytes(record[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big"))


def is_encrypted(record: Buffer) -> bool:
    """True for the stored record of an inner batch that was encrypted as a whole, which no broker takes apart."""
    return is_sealed(decode_record(record, check_crc=False).body)


def messages_of(record: Buffer) -> list[StoredMessage]:
    """Return the messages of the wrapper ``record`` with their places; none, with a line in the log, when it cannot be
    taken apart.
    """
    try:
        wrapper = decode_record(record, check_crc=False)
        messages = unwrap(wrapper)
    except RecordError as error:
        logger.warning("a batch cannot be taken apart: %s", error)
        return []
    size = len(record)
    for place, message in enumerate(messages, 1):
        message.physical_offset += place if place < size else 0
    return messages
