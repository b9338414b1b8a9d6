"""Results of server-side applies of one cluster's objects, so that no difference is applied endlessly. No I/O.

When an apply does not change the resourceVersion, the API server only represents the wanted values in another form;
the differences are *accepted*. When an apply changes the object and the differences reappear, they are *contested*:
another controller writes the same fields. Contested differences are applied again with exponential backoff.
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
    """Apply results of one BrokerCluster."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, vary: Callable[[], float] = random.random
    ) -> None:
        self._accepted: dict[Key, frozenset[Difference]] = {}
        self._applied: dict[Key, frozenset[Difference]] = {}
        self._retries: Retries[Key] = Retries(AGAIN_FIRST_S, AGAIN_MAX_S, clock=clock, vary=vary)

    def applied(self, key: Key, found: frozenset[Difference], before: Manifest, after: Manifest) -> bool:
        """Record the apply of an existing object with the differences `found`. Return whether it changed the object."""
        if after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]:
            self._accepted[key] = self._accepted.get(key, frozenset()) | found
            return False
        self._applied[key] = found
        self._retries.failed(key, digest(sorted(found)))
        return True

    @property
    def accepted(self) -> Mapping[Key, frozenset[Difference]]:
        """Differences in representation only, by object."""
        return self._accepted

    def contested(self) -> dict[Key, frozenset[Difference]]:
        """Return the differences that were applied recently and must not be applied again yet."""
        return {key: found for key, found in self._applied.items() if not self._retries.is_due(key)}

    def converged(self, keys: set[Key]) -> None:
        """Record that these objects match. An object that still matches when its backoff expires is no longer
        contested."""
        for key in keys & self._applied.keys():
            if self._retries.is_due(key):
                self._retries.succeeded(key)
                del self._applied[key]
