"""Our own requests that wait for their answers: a consumer of 10,000 queues has one for each of them.

A request sits in a bucket of time, which its opaque leads to: an answer finds it at once, and when its time is over it
is found with its bucket. Nothing is ever scanned. The times are those of the loop, in seconds.
"""

from __future__ import annotations

import asyncio

from raptormq.protocol.command import RemotingCommand

BUCKET_S = 0.1
"""Width of a bucket: a request is given up at most so much later than its time-out says."""

Answer = asyncio.Future[RemotingCommand]
_Bucket = dict[int, Answer]


class PendingRequests:
    """The futures of the requests of one connection, by opaque and by deadline."""

    __slots__ = ("_bucket_of", "_buckets")

    def __init__(self) -> None:
        self._bucket_of: dict[int, _Bucket] = {}
        self._buckets: dict[int, _Bucket] = {}

    def add(self, opaque: int, future: Answer, deadline: float) -> float:
        """Keep ``future`` until it is taken; returns the time from which ``take_overdue`` hands it out."""
        number = int(deadline / BUCKET_S) + 1
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
        bucket[opaque] = future
        self._bucket_of[opaque] = bucket
        return number * BUCKET_S

    def take(self, opaque: int) -> Answer | None:
        """Take out the request that an answer belongs to; None when nobody waits for it."""
        bucket = self._bucket_of.pop(opaque, None)
        return None if bucket is None else bucket.pop(opaque)

    def take_overdue(self, now: float) -> list[Answer]:
        """Take out the requests whose buckets are over."""
        overdue: list[Answer] = []
        for number in [number for number in self._buckets if number * BUCKET_S <= now]:
            bucket = self._buckets.pop(number)
            overdue += bucket.values()
            for opaque in bucket:
                del self._bucket_of[opaque]
        return overdue

    def take_all(self) -> list[Answer]:
        """Take out every request."""
        everything = [future for bucket in self._buckets.values() for future in bucket.values()]
        self._buckets.clear()
        self._bucket_of.clear()
        return everything

    @property
    def next_due(self) -> float | None:
        """When to look for overdue ones again; None when there is nothing to look for."""
        return min(self._buckets) * BUCKET_S if self._buckets else None
