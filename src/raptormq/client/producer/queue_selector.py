"""Selects the queue of a message: round robin that avoids failed brokers, or by key. Pure; time is passed in.

A pull costs the same whatever it returns. With few queues a reader finds several batches of a busy producer per pull;
with thousands of queues it would find one. Therefore batches of AutoBatch that follow each other closely go to the same
queue if there are many (like Kafka's sticky partitioner and Pulsar's producers).

Neighbour: `producer.sender` asks once per attempt and reports failures. Source: RocketMQ
`TopicPublishInfo.selectOneMessageQueue`, `SelectMessageQueueByHash`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from raptormq.protocol.message import MessageQueue
from raptormq.protocol.tags import java_hash

MANY_QUEUES = 64
"""With at least this many queues, batches stay with one queue for a while."""
STICKY_S = 0.004
"""How long batches stay: at 250 MB/s 1 MB, which is the result of one pull. A producer with fewer than 250 batches a
second never stays.
"""


class BrokerHealth:
    """Brokers that failed lately; other messages avoid them.

    Args:
        avoid_seconds: how long a broker is avoided after a failure.
    """

    def __init__(self, avoid_seconds: float) -> None:
        self._avoid_seconds = avoid_seconds
        self._avoided_until: dict[str, float] = {}

    @property
    def any_avoided(self) -> bool:
        """False while no broker has failed lately, which is the usual case."""
        return bool(self._avoided_until)

    def failed(self, broker_name: str, now: float) -> None:
        """Avoid the broker from `now` (seconds of a monotonic clock)."""
        self._avoided_until[broker_name] = now + self._avoid_seconds

    def succeeded(self, broker_name: str) -> None:
        """Use the broker again."""
        self._avoided_until.pop(broker_name, None)

    def avoided(self, now: float) -> frozenset[str]:
        """Return the brokers to avoid at `now`."""
        self._avoided_until = {name: until for name, until in self._avoided_until.items() if until > now}
        return frozenset(self._avoided_until)


class RoundRobin:
    """Selects the queues of one topic in turn."""

    __slots__ = ("_next", "_sticky_index", "_sticky_until")

    def __init__(self, start: int = 0) -> None:
        self._next = start
        self._sticky_index, self._sticky_until = 0, -math.inf

    def pick(self, queues: Sequence[MessageQueue], avoid: frozenset[str] = frozenset()) -> MessageQueue:
        """Return the next queue whose broker is not in `avoid`, or the next one if all are.

        Raises:
            IndexError: `queues` is empty.
        """
        count = len(queues)
        for _ in range(count if avoid else 0):
            queue = queues[self._next % count]
            self._next += 1
            if queue.broker_name not in avoid:
                return queue
        queue = queues[self._next % count] if count else queues[0]
        self._next += 1
        return queue

    def pick_for_batch(self, queues: Sequence[MessageQueue], now: float) -> MessageQueue:
        """Return the queue for a batch at `now` (seconds of a monotonic clock). With many queues it is the queue of the
        batch before, for up to `STICKY_S`; otherwise the next one.

        Raises:
            IndexError: `queues` is empty.
        """
        count = len(queues)
        if count >= MANY_QUEUES:
            if now >= self._sticky_until:
                self._sticky_index, self._sticky_until = self._next, now + STICKY_S
                self._next += 1
            return queues[self._sticky_index % count]
        return self.pick(queues)


def pick_by_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Return the queue of `key`: always the same for the same list of queues, also for Java producers.

    Java's remainder has the sign of the dividend and the client drops it, hence the absolute value before the modulo.

    Raises:
        IndexError: `queues` is empty.
    """
    return queues[abs(java_hash(key)) % len(queues)] if queues else queues[0]
