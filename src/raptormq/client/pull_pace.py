"""How long the readers of a consumer pause and wait, by how much they have to do together.

A batch listener's pause once the end of their queue was reached. A pull costs the same whatever it brings, so the
batches of busy queues come together: while the readers of a consumer pull more often than is worth it, all of them
pause longer, and it goes back as soon as less arrives::

    pause    5 ms while few pulls are made          <= 25 ms, whatever arrives
    next pause = this pause x pulls per second / wanted pulls per second

A queue whose pull has waited for `RARE_S` and longer brings one batch, whatever the pause, and is asked again at once.

Pulls of idle queues are held by the broker, and asked again when their time is up. Of thousands of queues that alone
would keep a consumer and its broker busy, so theirs are held longer::

    hold = pulls that wait / idle pulls per second    >= as configured, <= four times that

Neighbour: `queue_reader` pulls and pauses. Source: none; RocketMQ pulls at once (pullInterval).
"""

from __future__ import annotations

SHORTEST_S = 0.005
LONGEST_S = 0.025
WANTED_PER_S = 800.0
"""Pulls of all queues of a consumer: at 100 MB/s each brings 128 KiB."""
RARE_S = 10 * LONGEST_S
IDLE_PER_S = 200.0
"""Pulls of a consumer whose time may be up."""
LONGEST_HOLDS = 4
_WINDOW_S = 0.05


class PullPace:
    """The pause of all readers of one consumer, and the hold of their pulls; times are those of the loop, in s."""

    __slots__ = ("_began", "_pulls", "pause", "waiting")

    def __init__(self) -> None:
        self.pause = SHORTEST_S
        self.waiting = 0
        """Pulls under way."""
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

    def hold(self, configured: float) -> float:
        """How long the broker is to hold a pull that finds nothing."""
        return min(max(configured, self.waiting / IDLE_PER_S), LONGEST_HOLDS * configured)
