"""Retry policy of one send: timeout of each attempt, number of attempts, and pauses. No I/O.

One deadline covers all attempts. Each attempt except the last gets half of the remaining time, so that an unresponsive
broker leaves time for the next one. A send survives the restart of its broker if its timeout is long enough::

    refused, broken, silent    further attempts, as many as `retries`
    no broker reached          one at each other broker, and one whenever a broker can be reached again, until the
                               deadline; none without retries

See also: `producer.sender` and `producer.queue_batches` send, `cluster.reconnector` waits for brokers. Source: RocketMQ
counts all attempts (`DefaultMQProducerImpl`); Kafka's ``delivery.timeout.ms`` ends them by time and not by number.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.transport.timing import Backoff

_BACKOFF = Backoff(0.05, 0.5)


class Attempts:
    """Remaining attempts of one send.

    Args:
        retries: maximum number of retries.
        deadline: in seconds of `clock`.
        is_awaited: returns whether the caller still waits for the outcome; None if the caller cancels the send instead.
    """

    __slots__ = ("_clock", "_is_awaited", "_pauses", "_retries_left", "_waits", "deadline", "tried")

    def __init__(
        self, retries: int, deadline: float, clock: Callable[[], float], is_awaited: Callable[[], bool] | None = None
    ) -> None:
        self._retries_left = retries
        self._waits = retries > 0
        self.deadline = deadline
        """Loop time in seconds."""
        self._clock = clock
        self._is_awaited = is_awaited
        self._pauses = 0
        self.tried: set[str] = set()
        """Brokers that have failed since the last wait for a broker."""

    @property
    def may_be_cancelled(self) -> bool:
        """Whether the caller may stop waiting without a cancellation of the send."""
        return self._is_awaited is not None

    def is_awaited(self) -> bool:
        """Return whether the caller waits for the outcome."""
        return self._is_awaited is None or self._is_awaited()

    def attempt_timeout(self) -> float:
        """Return the seconds that the next attempt may take."""
        left = self.deadline - self._clock()
        return left / 2 if self._retries_left else left

    def may_wait(self) -> bool:
        """Return whether another attempt may follow one that reached no broker, which is not counted."""
        return self._waits and self.deadline > self._clock() and self.is_awaited()

    def next_pause(self, *, other_broker: bool = False) -> float | None:
        """Count a failed attempt. Return the pause in seconds before the next attempt; None if there is no further
        attempt.

        An attempt at another broker needs no pause.
        """
        if not self._retries_left:
            return None
        self._retries_left -= 1
        pause = 0.0
        if not other_broker:
            pause = _BACKOFF.pause(self._pauses)
            self._pauses += 1
        return pause if self.deadline - self._clock() > pause else None
