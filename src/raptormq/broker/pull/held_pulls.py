"""Long polling: pulls that wait for their queue to grow (``PullRequestHoldService``).

A held pull is entered twice: under its queue, where an arrival finds it, and in a time bucket, where the sweep finds it
when it expires. An arrival in a queue without held pulls costs one dictionary lookup; without any held pull it costs
nothing. Removing a pull takes constant time, and nothing is ever scanned. The time (ms) is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

BUCKET_MS = 100
"""Width of a time bucket: an empty answer is at most this much late."""
MAX_WAIT_MS = 300_000
"""Longest time a pull is held, whatever it asks for."""
LONG_POLL_MS = 10_000
_LONG_STEP = 50
"""Pulls that wait for ``LONG_POLL_MS`` or longer expire together every 5 s, as in RocketMQ. Their clients then pull
again together, which costs a broker with thousands of idle consumers less than one wake-up each."""

Payload = TypeVar("Payload")
Arrival = tuple[str, int, int, int]
"""``(topic, queue id, next offset, tag hash)`` of a message that has become visible."""


@dataclass(slots=True, eq=False)
class HeldPull(Generic[Payload]):
    """One held pull.

    ``tag_filter`` None accepts every message. ``owner`` is the connection; when it closes, its pulls are dropped.
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
        """Hold ``pull`` until it is woken or ``timeout_ms`` has passed; False when too many are held."""
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
        """Remove and return the pulls that an arrival satisfies."""
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

    def take_expired(self, now_ms: int, at_most: int) -> list[HeldPull[Payload]]:
        """Remove and return at most ``at_most`` expired pulls; when that many are returned, there may be more."""
        expired: list[HeldPull[Payload]] = []
        until = now_ms // BUCKET_MS
        if until - self._swept > len(self._by_bucket):  # after a long pause there are fewer buckets than ticks
            due: Iterable[int] = sorted(bucket for bucket in self._by_bucket if bucket <= until)
        else:
            due = range(self._swept + 1, until + 1)
        for bucket in due:
            expired += islice(self._by_bucket.get(bucket, ()), at_most - len(expired))
            if len(expired) == at_most:
                until = bucket - 1
                break
        for pull in expired:
            self._remove(pull)
        self._swept = max(self._swept, until)
        return expired

    def take_topic(self, topic: str, chosen: Callable[[Payload], bool] = lambda _: True) -> list[HeldPull[Payload]]:
        """Remove and return the ``chosen`` pulls of a topic."""
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
        """Drop the pulls of a closed connection."""
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
