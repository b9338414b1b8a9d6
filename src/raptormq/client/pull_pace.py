"""How long the readers of a batch listener pause once the end of their queue was reached.

A pull costs the same whatever it brings, so the batches of busy queues come together: while the readers of a consumer
pull more often than is worth it, all of them pause longer, and it goes back as soon as less arrives::

    pause    5 ms while few pulls are made          <= 25 ms, whatever arrives
    next pause = this pause x pulls per second / wanted pulls per second

A queue whose pull has waited for `RARE_S` and longer brings one batch, whatever the pause, and is asked again at once.
Neighbour: `queue_reader` pulls and pauses. Source: none; RocketMQ pulls at once (pullInterval).
"""

from __future__ import annotations

SHORTEST_S = 0.005
LONGEST_S = 0.025
WANTED_PER_S = 800.0
"""Pulls of all queues of a consumer: at 100 MB/s each brings 128 KiB."""
RARE_S = 10 * LONGEST_S
_WINDOW_S = 0.05


class PullPace:
    """The pause of all readers of one consumer; times are those of the loop, in seconds."""

    __slots__ = ("_began", "_pulls", "pause")

    def __init__(self) -> None:
        self.pause = SHORTEST_S
        self._began = 0.0
        self._pulls = 0

    def pause_after(self, waited: float) -> float:
        """The pause after a pull that took `waited` seconds; 0 where it would bring nothing."""
        return self.pause if waited < RARE_S else 0.0

    def pulled(self, now: float) -> None:
        """Count a pull, and set the pause anew when enough were counted to know how often they are made."""
        self._pulls += 1
        seconds = now - self._began
        if seconds < _WINDOW_S:
            return
        wanted = self.pause * self._pulls / (seconds * WANTED_PER_S)
        self.pause = min(max(wanted, SHORTEST_S), LONGEST_S)
        self._began, self._pulls = now, 0
