"""Retry policy of one send: timeout of each attempt, number of attempts, and pauses. No I/O.

One deadline covers all attempts. Each attempt except the last gets half of the remaining time, so that an unresponsive
broker leaves time for the next one. A send survives the restart of its broker if its timeout is long enough::

    refused, broken, silent    further attempts, as many as `retries`
    no broker reached          attempts until the deadline, but none without retries

See also: `producer.sender` and `producer.queue_batches` send. Source: RocketMQ counts all attempts
(`DefaultMQProducerImpl`); Kafka's ``delivery.timeout.ms`` ends them by time and not by number.
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
    """

    __slots__ = ("_clock", "_deadline", "_pauses", "_retries_left", "_waits")

    def __init__(self, retries: int, deadline: float, clock: Callable[[], float]) -> None:
        self._retries_left = retries
        self._waits = retries > 0
        self._deadline = deadline
        self._clock = clock
        self._pauses = 0

    def attempt_timeout(self) -> float:
        """Return the seconds that the next attempt may take."""
        left = self._deadline - self._clock()
        return left / 2 if self._retries_left else left

    def next_pause(self, *, no_broker_reached: bool, other_broker: bool = False) -> float | None:
        """Count a failed attempt. Return the pause in seconds before the next attempt; None if there is no further
        attempt.

        An attempt at another broker needs no pause.
        """
        if not (self._waits if no_broker_reached else self._retries_left):
            return None
        if not no_broker_reached:
            self._retries_left -= 1
        pause = 0.0
        if not other_broker:
            pause = _BACKOFF.pause(self._pauses)
            self._pauses += 1
        return pause if self._deadline - self._clock() > pause else None
