"""Queue selection: round-robin that avoids failed and slow brokers, or by key. No I/O; the time is passed in.

The cost of a pull hardly depends on its size. With few queues a pull returns several batches of a busy producer; with
thousands of queues it would return one. If there are many queues, consecutive batches of AutoBatch are therefore sent
to the same queue for a short time, as in Kafka's sticky partitioner and Pulsar's producers.

`producer.sender` selects a queue per attempt and reports failures. Source: RocketMQ
`TopicPublishInfo.selectOneMessageQueue`, `SelectMessageQueueByHash`, `MQFaultStrategy`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from raptormq.protocol.message import MessageQueue
from raptormq.protocol.tags import java_hash

MANY_QUEUES = 64
"""Minimum number of queues for sticky selection."""
STICKY_S = 0.004
"""Duration of sticky selection. At 250 MB/s this is 1 MB, the size of one pull. It has no effect below 250 batches per
second.
"""


LATENCIES_S = 0.55, 1.8, 3.0, 5.0, 15.0
AVOIDED_S = 2.0, 5.0, 6.0, 10.0, 30.0
"""Seconds for which a broker is avoided after a response that took at least the latency at the same index of
`LATENCIES_S`, as in Java.
"""


def avoided_for(latency: float) -> float:
    """Return for how many seconds a broker is avoided after a response time of `latency` seconds; 0 if it was fast."""
    index = bisect_right(LATENCIES_S, latency)
    return AVOIDED_S[index - 1] if index else 0.0


class BrokerHealth:
    """Brokers that are avoided because they failed or responded slowly.

    Args:
        avoid_seconds: how long a broker is avoided after a failure.
    """

    def __init__(self, avoid_seconds: float) -> None:
        self._avoid_seconds = avoid_seconds
        self._avoided_until: dict[str, float] = {}
        self._latencies: dict[str, float] = {}
        """Latency in seconds of the last response of each broker."""

    def responded(self, broker_name: str, latency: float, now: float) -> None:
        """Record the latency of a response, and avoid the broker if it was slow."""
        self._latencies[broker_name] = latency
        if (seconds := avoided_for(latency)) > 0:
            self._avoided_until[broker_name] = now + seconds
        else:
            self._avoided_until.pop(broker_name, None)

    def latency(self, broker_name: str) -> float | None:
        """Return the latency of the last response of a broker; None if none was recorded."""
        return self._latencies.get(broker_name)

    @property
    def any_avoided(self) -> bool:
        """True if any broker failed or was slow recently."""
        return bool(self._avoided_until)

    def failed(self, broker_name: str, now: float) -> None:
        """Avoid the broker from `now` (seconds of a monotonic clock)."""
        self._avoided_until[broker_name] = now + self._avoid_seconds

    def succeeded(self, broker_name: str) -> None:
        """Stop avoiding the broker."""
        self._avoided_until.pop(broker_name, None)

    def avoided_seconds(self, broker_name: str, now: float) -> float:
        """Return for how many more seconds a broker is avoided; 0 if it is not."""
        return max(self._avoided_until.get(broker_name, -math.inf) - now, 0.0)

    def avoided(self, now: float) -> frozenset[str]:
        """Return the brokers to avoid at `now`."""
        self._avoided_until = {name: until for name, until in self._avoided_until.items() if until > now}
        return frozenset(self._avoided_until)


class RoundRobin:
    """Round-robin selection of the queues of one topic."""

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
        """Return the queue for a batch at `now` (monotonic seconds). With many queues it is the previous queue for up
        to `STICKY_S`, otherwise the next queue.

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
    """Return the queue of `key`. The result is deterministic for a list of queues and equals that of Java producers.

    Java's remainder has the sign of the dividend and the client drops it, hence the absolute value before the modulo.

    Raises:
        IndexError: `queues` is empty.
    """
    return queues[abs(java_hash(key)) % len(queues)] if queues else queues[0]
