"""Open batches of several queues of one broker that will leave as one request.

With a queue of its own for every few messages, a batch per queue is too small to be worth a request. So batches that
belong to a queue share the age of the oldest message among them; what fills up before leaves by itself.
Neighbours: `accumulator` decides when one leaves, `shipping` sends it.
"""

from __future__ import annotations

import asyncio

from raptormq.client.open_batch import OpenBatch

MAX_BATCHES = 1024
"""Batches of one request at most: it keeps the broker from everything else for some milliseconds."""
BATCHES_WORTH = 16
"""Bytes of one request at most, in full batches."""
MAX_SHIPMENT_BYTES = 4 * 1024 * 1024
"""And however large these are. One message more, keys named twice and what encryption adds fit a frame even so."""

ShipmentKey = tuple[str, bool]
"""Broker and wait flag: who does not wait for the disk is not held up by those who do."""


class Shipment:
    """Batches for one broker, at most one of each key, in the order of their first messages."""

    __slots__ = ("batches", "key", "size", "timer")

    def __init__(self, key: ShipmentKey, timer: asyncio.TimerHandle) -> None:
        self.key = key
        self.timer = timer
        self.batches: dict[OpenBatch, None] = {}
        self.size = 0
        """Bytes of all their messages."""
