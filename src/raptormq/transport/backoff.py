"""How long to pause before another attempt: twice as long each time, up to a limit. Pure.

Neighbour: :mod:`~raptormq.transport.pool` pauses; so do the client's loops. Source: none.
"""

from __future__ import annotations

from typing import NamedTuple

_MAX_DOUBLINGS = 32
"""Beyond any limit; attempts go on for as long as they are wanted, and 2.0 ** 1024 is no float."""


class Backoff(NamedTuple):
    """Both ends in seconds."""

    first: float
    longest: float

    def pause(self, earlier: int) -> float:
        """Return the seconds to wait after `earlier` pauses for the same reason."""
        return min(self.first * 2.0 ** min(earlier, _MAX_DOUBLINGS), self.longest)
