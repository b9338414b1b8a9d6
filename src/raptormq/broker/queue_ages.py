"""When the first and last messages of a queue were stored, and whether a queue is young."""

from __future__ import annotations

import os

from raptormq.storage.store import MessageStore

NO_TIMESTAMP = -1
_IN_MEMORY_RATIO = 0.4
"""Share of the memory within which the end of the log counts as being in memory (``accessMessageInMemoryMaxRatio``)."""
_IN_MEMORY_BYTES = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _IN_MEMORY_RATIO)


async def stored_at(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """Return the store time (ms) of the message at a queue offset, -1 when there is none.

    It is in the record, batch or message: a read of the message would take its batch apart, in each of many queues.
    """
    items = await store.queue_items(topic, queue_id, offset, 1)
    if not items:
        return NO_TIMESTAMP
    physical, size, _ = items[0]
    stored = await store.stored_at_cold(physical, size)
    return NO_TIMESTAMP if stored is None else stored


async def first_stored_at(store: MessageStore, topic: str, queue_id: int) -> int:
    """Return the store time (ms) of the oldest message of a queue, -1 without one."""
    low, _ = await store.queue_bounds(topic, queue_id)
    return await stored_at(store, topic, queue_id, low)


async def last_stored_at(store: MessageStore, topic: str, queue_id: int) -> int:
    """Return the store time (ms) of the newest message of a queue, -1 without one."""
    return await stored_at(store, topic, queue_id, store.queue_end(topic, queue_id) - 1)


async def is_young(store: MessageStore, topic: str, queue_id: int) -> bool:
    """True when the queue still has its very first message, and that is so near to the end of the log that it might be
    in memory; whether it is there does not matter.
    """
    first = await store.queue_items(topic, queue_id, 0, 1)
    return bool(first) and store.end_offset - first[0][0] <= _IN_MEMORY_BYTES
