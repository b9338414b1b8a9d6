"""Messages that the broker itself writes: retries, due delayed messages, halves of transactions, checkpoints of POP.

They take the same way as a producer's (one append, then dispatch in the same turn of the loop) and count as received
messages (``BrokerController.getEscapeBridge``, ``MessageStore.putMessage`` in Apache RocketMQ).
"""

from __future__ import annotations

from collections.abc import Sequence

from raptormq.broker.counters import Counters
from raptormq.broker.dispatching import Dispatcher
from raptormq.storage.log_batch import AppendResult, PendingRecord
from raptormq.storage.store import MessageStore


class InternalWriter:
    """Appends records that no producer waits for."""

    def __init__(self, store: MessageStore, dispatcher: Dispatcher, counters: Counters, *, sync_flush: bool) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._counters = counters
        self._sync_flush = sync_flush

    def write(self, records: Sequence[PendingRecord]) -> AppendResult:
        """Append a group; it becomes visible in this turn of the loop (under SYNC_FLUSH, once it is on disk).

        Raises:
            StorageError: nothing of the group is stored (a full disk, a failed one, a record that fits no segment).
        """
        result = self._store.append(records)
        self._counters.stored(result)
        self._dispatcher.schedule()
        return result

    async def stored(self, records: Sequence[PendingRecord]) -> AppendResult:
        """The same, and under SYNC_FLUSH wait until the group is on disk.

        Raises:
            StorageError: as :meth:`write`, or the flush failed.
        """
        result = self.write(records)
        await self.on_disk(result)
        return result

    async def on_disk(self, written: AppendResult) -> None:
        """Under SYNC_FLUSH wait until a group is on disk.

        Raises:
            StorageError: the flush failed.
        """
        if self._sync_flush:
            await self._store.durable(written.end_offset)
