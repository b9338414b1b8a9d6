"""Messages written by the broker itself: retries, due delayed messages, half messages, POP checkpoints.

:class:`InternalWriter` appends them. They are handled like a producer's messages: one append, then a dispatch in the
same iteration of the event loop. They count as received messages (``BrokerController.getEscapeBridge``,
``MessageStore.putMessage`` in Apache RocketMQ).

:func:`record_copy` creates the copy of a message that is retried, due, checked, or popped and not acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Return a copy of ``message`` for another queue, with new properties (text form) and ``retries`` added to its
    reconsume times. Body, flags, born time and born host are kept. With ``once`` the copy records its origin; otherwise
    the origin is cleared.
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
    """Appends records that no producer waits for."""

    def __init__(self, store: MessageStore, reput: ReputService, counters: Counters) -> None:
        self._store = store
        self._reput = reput
        self._counters = counters

    def write(self, records: Sequence[PendingRecord]) -> AppendResult:
        """Append a group. It becomes visible in this iteration of the event loop, or later, once it is confirmed.

        Raises:
            StorageError: nothing was stored (disk full or failed, or a record larger than a segment).
        """
        result = self._store.append(records)
        self._counters.stored(result)
        self._reput.schedule()
        return result

    async def write_confirmed(self, records: Sequence[PendingRecord]) -> AppendResult:
        """Append a group and wait until it is confirmed.

        Raises:
            StorageError: as :meth:`write`, or the group will never be confirmed.
        """
        result = self.write(records)
        await self.wait_confirmed(result)
        return result

    async def wait_confirmed(self, written: AppendResult) -> None:
        """Wait until a group is confirmed, as flush type and replication define it.

        Raises:
            StorageError: it will never be confirmed.
        """
        await self._store.wait_confirmed(written.end_offset)
