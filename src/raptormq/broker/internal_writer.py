"""Writes messages that the broker creates: retries, due delayed messages, half messages, POP checkpoints
(``BrokerController.getEscapeBridge``, ``MessageStore.putMessage``).

:class:`InternalWriter` appends them like messages of a producer: one append, then a dispatch in the same iteration of
the event loop. They are included in the count of received messages.

:func:`record_copy` creates the copy of a message for a retry, a delivery, a transaction check or a revival.
"""

from __future__ import annotations

from collections.abc import Sequence

from raptormq.broker.copy_properties import CopyProperties
from raptormq.broker.delivered.origin import origin_field
from raptormq.broker.metrics import Counters
from raptormq.broker.reput import ReputService
from raptormq.broker.tag_code import tag_code
from raptormq.protocol.record import StoredMessage
from raptormq.storage.queue import AppendResult, PendingRecord
from raptormq.storage.store import MessageStore


def record_copy(
    message: StoredMessage, topic: str, queue_id: int, properties: str, retries: int = 0, *, once: bool = False
) -> PendingRecord:
    """Return a copy of ``message`` for another queue.

    Body, flags, born timestamp and born host are unchanged.

    Args:
        message: original message.
        topic: topic of the copy.
        queue_id: queue of the copy.
        properties: all properties of the copy, in text form.
        retries: number added to the reconsume times.
        once: whether the copy records its origin, so that a start after a crash can find the copy.
    """
    text = properties.encode()
    return PendingRecord(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        properties=text,
        tag_code=tag_code(text),
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times + retries,
        prepared_transaction_offset=origin_field(message.physical_offset) if once else 0,
    )


class InternalWriter:
    """Appends records that the broker creates."""

    def __init__(self, store: MessageStore, reput: ReputService, counters: Counters) -> None:
        self._store = store
        self._reput = reput
        self._counters = counters
        self.properties = CopyProperties(counters)
        """Fits the properties of copies into the size limit."""

    def write(self, records: Sequence[PendingRecord]) -> AppendResult:
        """Append ``records`` with one write. Consumers can read them as soon as they are dispatched and confirmed.

        Raises:
            StorageError: nothing was stored: the disk is full or has failed, or a record is larger than a segment.
        """
        result = self._store.append(records)
        self._counters.stored(result)
        self._reput.schedule()
        return result

    async def write_confirmed(self, records: Sequence[PendingRecord]) -> AppendResult:
        """Append ``records`` and wait until they are confirmed.

        Raises:
            StorageError: see :meth:`write` and :meth:`wait_confirmed`.
        """
        result = self.write(records)
        await self.wait_confirmed(result)
        return result

    async def wait_confirmed(self, written: AppendResult) -> None:
        """Wait until an append is confirmed: flushed under SYNC_FLUSH, stored by a majority of a replication group.

        Raises:
            StorageError: the confirmation has become impossible.
        """
        await self._store.wait_confirmed(written.end_offset)
