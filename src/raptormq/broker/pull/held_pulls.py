"""Long polling: pulls that wait for a message in their queue (``PullRequestHoldService``).

A held pull is indexed by queue for arrivals, by time bucket for expiry, and by connection. An arrival in a queue
without held pulls takes one dictionary lookup, or none if there are no held pulls. A pull is removed in constant
time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

BUCKET_MS = 100
"""Width of a time bucket in ms: the maximum delay of a response after the timeout of a pull."""
MAX_WAIT_MS = 300_000
"""Maximum time for which a pull is held."""
LONG_POLL_MS = 10_000
_LONG_STEP = 50
"""Number of buckets after which long pulls (``LONG_POLL_MS`` or more) expire together, every 5 s as in RocketMQ. With
thousands of idle consumers, this takes less time than separate wake-ups.
"""

Payload = TypeVar("Payload")
Arrival = tuple[str, int, int, int]
"""Topic, queue id, next offset and tag hash of a message that has become visible."""


@dataclass(slots=True, eq=False)
class HeldPull(Generic[Payload]):
    """One held pull.

    A ``tag_filter`` of None accepts every message. ``owner`` is the connection.
    """

    topic: str
    queue_id: int
    offset: int
    tag_filter: frozenset[int] | None
    owner: Hashable
    payload: Payload
    bucket: int = field(default=0, init=False)


class HeldPulls(Generic[Payload]):
    """All held pulls of a broker, at most ``max_held``."""

    def __init__(self, max_held: int) -> None:
        self._max_held = max_held
        self._by_queue: dict[tuple[str, int], dict[HeldPull[Payload], None]] = {}
        self._by_bucket: dict[int, dict[HeldPull[Payload], None]] = {}
        self._by_owner: dict[Hashable, dict[HeldPull[Payload], None]] = {}
        self._count = 0
        self._swept = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, pull: HeldPull[Payload], now_ms: int, timeout_ms: int) -> bool:
        """Hold ``pull`` until a message arrives, at most ``timeout_ms``. Return False if the limit is reached."""
        if self._count >= self._max_held:
            return False
        if not self._count:
            self._swept = now_ms // BUCKET_MS
        pull.bucket = max((now_ms + timeout_ms) // BUCKET_MS, self._swept) + 1
        if timeout_ms >= LONG_POLL_MS:
            pull.bucket += -pull.bucket % _LONG_STEP
        _enter(self._by_bucket, pull.bucket, pull)
        _enter(self._by_queue, (pull.topic, pull.queue_id), pull)
        _enter(self._by_owner, pull.owner, pull)
        self._count += 1
        return True

    def take_arrived(self, arrivals: Iterable[Arrival]) -> list[HeldPull[Payload]]:
        """Remove and return the pulls whose message has arrived."""
        if not self._count:
            return []
        woken: list[HeldPull[Payload]] = []
        for topic, queue_id, next_offset, tag_hash in arrivals:
            waiting = self._by_queue.get((topic, queue_id))
            if waiting is None:
                continue
            for pull in list(waiting):
                if next_offset > pull.offset and (pull.tag_filter is None or tag_hash in pull.tag_filter):
                    self._remove(pull)
                    woken.append(pull)
        return woken

    def take_expired(self, now_ms: int, limit: int) -> list[HeldPull[Payload]]:
        """Remove and return up to ``limit`` expired pulls. If ``limit`` pulls are returned, more pulls may have
        expired.
        """
        expired: list[HeldPull[Payload]] = []
        until = now_ms // BUCKET_MS
        if until - self._swept > len(self._by_bucket):  # after a long pause most buckets do not exist
            due: Iterable[int] = sorted(bucket for bucket in self._by_bucket if bucket <= until)
        else:
            due = range(self._swept + 1, until + 1)
        for bucket in due:
            expired += islice(self._by_bucket.get(bucket, ()), limit - len(expired))
            if len(expired) == limit:
                until = bucket - 1
                break
        for pull in expired:
            self._remove(pull)
        self._swept = max(self._swept, until)
        return expired

    def take_topic(self, topic: str, chosen: Callable[[Payload], bool] = lambda _: True) -> list[HeldPull[Payload]]:
        """Remove and return the pulls of a topic for which ``chosen`` returns true."""
        queues = [waiting for (held_topic, _), waiting in self._by_queue.items() if held_topic == topic]
        pulls = [pull for waiting in queues for pull in waiting if chosen(pull.payload)]
        for pull in pulls:
            self._remove(pull)
        return pulls

    def take_all(self) -> list[HeldPull[Payload]]:
        """Remove and return all pulls."""
        pulls = [pull for waiting in self._by_owner.values() for pull in waiting]
        for pull in pulls:
            self._remove(pull)
        return pulls

    def drop_owner(self, owner: Hashable) -> None:
        """Remove the pulls of a closed connection."""
        for pull in list(self._by_owner.get(owner, ())):
            self._remove(pull)

    def _remove(self, pull: HeldPull[Payload]) -> None:
        _discard(self._by_queue, (pull.topic, pull.queue_id), pull)
        _discard(self._by_bucket, pull.bucket, pull)
        _discard(self._by_owner, pull.owner, pull)
        self._count -= 1


Key = TypeVar("Key")


def _enter(table: dict[Key, dict[HeldPull[Payload], None]], key: Key, pull: HeldPull[Payload]) -> None:
    pulls = table.get(key)
    if pulls is None:
        table[key] = {pull: None}
    else:
        pulls[pull] = None


def _discard(table: dict[Key, dict[HeldPull[Payload], None]], key: Key, pull: HeldPull[Payload]) -> None:
    pulls = table[key]
    if len(pulls) == 1:
        del table[key]
    else:
        del pulls[pull]
