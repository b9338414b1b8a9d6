"""The attempts of one send: how long each may take, whether there is another one, and after which pause. Pure.

One deadline covers all of them. An attempt that is not the last gets half of the time that is left: a silent broker
must not use up what the next one needs. A send outlives the restart of its broker, if its time does:

    refused, broken, silent    further attempts, as many as there are retries
    nobody there               attempts until the time is over, but none without retries

Neighbours: `producer.sender` and `producer.batch_sender` send. Source: RocketMQ counts all of them
(`DefaultMQProducerImpl`); that time ends them and not their number is how Kafka's ``sender.timeout.ms`` has it.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.transport.timing import Backoff

_BACKOFF = Backoff(0.05, 0.5)


class Attempts:
    """Those that one send has left.

    Args:
        retries: further attempts after the first has failed.
        deadline: of `clock`, in seconds.
    """

    __slots__ = ("_clock", "_deadline", "_pauses", "_retries_left", "_waits")

    def __init__(self, retries: int, deadline: float, clock: Callable[[], float]) -> None:
        self._retries_left = retries
        self._waits = retries > 0
        self._deadline = deadline
        self._clock = clock
        self._pauses = 0

    def attempt_timeout(self) -> float:
        """Return how long the next one may take."""
        left = self._deadline - self._clock()
        return left / 2 if self._retries_left else left

    def next_pause(self, *, no_broker_reached: bool, other_broker: bool = False) -> float | None:
        """Count one that has failed and return the seconds to pause before the next, or None when there is no next.

        One that goes `elsewhere` needs no pause.
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
