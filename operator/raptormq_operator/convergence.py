"""What became of the applies of one cluster's objects, so that no difference is applied for ever. Pure.

An apply after which an object has the resourceVersion from before has changed nothing: the API server writes what is
wanted in its own way, and the differences are *accepted*. One that did change the object, and whose differences are
there again, is *contested*: someone else writes the same fields. It is applied again later and later.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from raptormq_operator.differences import Difference
from raptormq_operator.manifests.metadata import Manifest, digest
from raptormq_operator.plan import Key
from raptormq_operator.retries import Retries

AGAIN_FIRST_S = 2.0
AGAIN_MAX_S = 300.0


class Convergence:
    """Of one BrokerCluster."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, vary: Callable[[], float] = random.random
    ) -> None:
        self._accepted: dict[Key, frozenset[Difference]] = {}
        self._applied: dict[Key, frozenset[Difference]] = {}
        self._retries: Retries[Key] = Retries(AGAIN_FIRST_S, AGAIN_MAX_S, clock=clock, vary=vary)

    def applied(self, key: Key, found: frozenset[Difference], before: Manifest, after: Manifest) -> bool:
        """An object that was there with these differences has been applied; returns whether that changed it."""
        if after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]:
            self._accepted[key] = self._accepted.get(key, frozenset()) | found
            return False
        self._applied[key] = found
        self._retries.failed(key, digest(sorted(found)))
        return True

    @property
    def accepted(self) -> Mapping[Key, frozenset[Difference]]:
        """What is only written another way."""
        return self._accepted

    def contested(self) -> dict[Key, frozenset[Difference]]:
        """What was applied lately: where it is there again, someone else has written it."""
        return {key: found for key, found in self._applied.items() if not self._retries.is_due(key)}

    def converged(self, keys: set[Key]) -> None:
        """These objects are as they are wanted. One that stays so until it would be applied again is no longer
        contested."""
        for key in keys & self._applied.keys():
            if self._retries.is_due(key):
                self._retries.succeeded(key)
                del self._applied[key]
