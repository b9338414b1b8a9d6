"""When much arrives, pulls are answered together: fewer, larger answers.

Neighbour: :mod:`raptormq.broker.handlers.pull`. A consumer that keeps up with its producers pulls again as soon as it
has been answered, and gets the one batch that has come meanwhile; what an answer costs both sides is then paid for
every batch. Kafka's consumers may ask for more (``fetch.min.bytes``); RocketMQ's protocol has no such field, so the
broker looks at its log: while that grows by ``BUSY_BYTES_PER_MS`` and more, whoever waits for messages gets them in
waves, one every ``COALESCE_MS``. Below that rate nobody waits. The clock, in ms, and the timer are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from raptormq.storage.queue import Arrival

COALESCE_MS = 25
BUSY_BYTES_PER_MS = 32 * 1024
"""32 MB/s: at such a rate a message waits longer than a wave for its turn in clients."""

Pull = TypeVar("Pull")


class Timer(Protocol):
    """``call_later`` of an event loop."""

    def __call__(self, delay_s: float, callback: Callable[[], None], /) -> object:
        """Call ``callback`` once after a while."""


class PullCoalescer(Generic[Pull]):
    """Keeps what is answered with the next wave."""

    def __init__(
        self,
        clock: Callable[[], int],
        timer: Timer,
        log_end: Callable[[], int],
        answer: Callable[[list[Arrival], list[Pull]], None],
    ) -> None:
        """``log_end`` gives the end of the log in bytes; ``answer`` gets what came since the last wave."""
        self._clock, self._timer, self._log_end, self._answer = clock, timer, log_end, answer
        self._window_start_ms, self._window_start_offset = clock(), log_end()
        self._is_busy = self._is_timer_set = False
        self._arrivals: list[Arrival] = []
        self._pulls: list[Pull] = []

    def defer_arrivals(self, arrivals: Iterable[Arrival]) -> bool:
        """Whether the pulls that wait for these messages are answered later; False: now, by the caller."""
        if takes := self._should_defer():
            self._arrivals += arrivals
        return takes

    def defer(self, pull: Pull) -> bool:
        """Whether ``pull``, for which there is something, is answered later; False: now, by the caller."""
        if takes := self._should_defer():
            self._pulls.append(pull)
        return takes

    def flush(self) -> None:
        """The next wave comes now."""
        self._start_window(self._clock())
        arrivals, self._arrivals = self._arrivals, []
        pulls, self._pulls = self._pulls, []
        self._answer(arrivals, pulls)

    def _should_defer(self) -> bool:
        """Whether the next wave is to be waited for, which then will come."""
        now = self._clock()
        if now - self._window_start_ms >= COALESCE_MS:
            self._start_window(now)
            return False
        if self._is_busy and not self._is_timer_set:
            self._is_timer_set = True
            self._timer((self._window_start_ms + COALESCE_MS - now) / 1000, self._on_timer)
        return self._is_busy

    def _on_timer(self) -> None:
        self._is_timer_set = False
        self.flush()

    def _start_window(self, now: int) -> None:
        end, passed = self._log_end(), now - self._window_start_ms
        self._is_busy = end - self._window_start_offset >= BUSY_BYTES_PER_MS * max(passed, 1)
        self._window_start_ms, self._window_start_offset = now, end
