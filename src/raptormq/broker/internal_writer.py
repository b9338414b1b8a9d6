"""Messages that the broker itself writes: retries, due delayed messages, halves of transactions, checkpoints of POP.

:class:`InternalWriter` appends them. They take the same way as a producer's (one append, then dispatch in the same turn
of the loop) and count as received messages (``BrokerController.getEscapeBridge``, ``MessageStore.putMessage`` in Apache
RocketMQ).

:func:`record_copy` makes a message of the log into what is written again, when it is retried, due, asked about, or
popped and not acknowledged.
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
    """Return ``message`` for another place, with other properties (text form) and so many more reconsume times; body,
    flags and birth stay. A copy that is to be made ``once`` names its origin; else that of ``message`` is forgotten.
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
        """Append a group; it becomes visible in this turn of the loop, or once it is confirmed.

        Raises:
            StorageError: nothing of the group is stored (a full disk, a failed one, a record that fits no segment).
        """
        result = self._store.append(records)
        self._counters.stored(result)
        self._reput.schedule()
        return result

    async def write_confirmed(self, records: Sequence[PendingRecord]) -> AppendResult:
        """Append a group and wait until it is confirmed.

        Raises:
            StorageError: as :meth:`write`, or the group never will be confirmed.
        """
        result = self.write(records)
        await self.wait_confirmed(result)
        return result

    async def wait_confirmed(self, written: AppendResult) -> None:
        """Wait until a group is confirmed: it survives what the configuration says that it survives.

        Raises:
            StorageError: it never will be.
        """
        await self._store.wait_confirmed(written.end_offset)
