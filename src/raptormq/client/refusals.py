"""Which brokers do not know a request: believed for a while, since a newer one may take their place.

Neighbours: `shipping` for requests for several queues, `queue_kinds` for batches. Source: none, RocketMQ's clients do
not ask again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

ASK_AGAIN_S = 600.0
"""How long a broker that does not know a request is believed to stay so."""

_NOBODY: frozenset[str] = frozenset()


class Refusals:
    """Names of the brokers that have refused lately; `clock` gives seconds that no change of the time of day moves."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def note(self, broker_name: str) -> None:
        """Learn that a broker does not know the request."""
        self._until[broker_name] = self._clock() + ASK_AGAIN_S

    def names(self) -> frozenset[str]:
        """Return who is not to be asked now."""
        if not self._until:
            return _NOBODY
        now = self._clock()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return frozenset(self._until)

    def __contains__(self, broker_name: str) -> bool:
        until = self._until.get(broker_name)
        return until is not None and until > self._clock()
