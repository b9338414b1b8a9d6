"""Coalesces the responses to pulls while the log grows fast.

A consumer without lag pulls again immediately after a response and receives one new batch. Each batch then costs one
request and one response. A Kafka consumer can request a minimum size (``fetch.min.bytes``). RocketMQ's protocol has no
such field, so the broker uses the growth of the log. While the log grows by ``BUSY_BYTES_PER_MS`` or more, the broker
answers waiting pulls together every ``COALESCE_MS``. Below this rate no pull is delayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from raptormq.storage.queue import Arrival

COALESCE_MS = 25
"""Length of a window in ms."""
BUSY_BYTES_PER_MS = 32 * 1024
"""32 MB/s. At this rate a message waits in the client for longer than ``COALESCE_MS``."""

Pull = TypeVar("Pull")


class Timer(Protocol):
    """The method ``call_later`` of an event loop."""

    def __call__(self, delay_s: float, callback: Callable[[], None], /) -> object:
        """Call ``callback`` once after ``delay_s``."""


class PullCoalescer(Generic[Pull]):
    """Collects arrivals and pulls until the next flush."""

    def __init__(
        self,
        clock: Callable[[], int],
        timer: Timer,
        log_end: Callable[[], int],
        answer: Callable[[list[Arrival], list[Pull]], None],
    ) -> None:
        """Create a coalescer.

        Args:
            clock: returns the time in ms.
            timer: schedules the flush.
            log_end: returns the end offset of the log.
            answer: called at each flush with the deferred arrivals and pulls.
        """
        self._clock, self._timer, self._log_end, self._answer = clock, timer, log_end, answer
        self._window_start_ms, self._window_start_offset = clock(), log_end()
        self._is_busy = self._is_timer_set = False
        self._arrivals: list[Arrival] = []
        self._pulls: list[Pull] = []

    def defer_arrivals(self, arrivals: Iterable[Arrival]) -> bool:
        """Defer the pulls that wait for these messages. Return False if the caller must wake them now."""
        if takes := self._should_defer():
            self._arrivals += arrivals
        return takes

    def defer(self, pull: Pull) -> bool:
        """Defer ``pull``, which has messages. Return False if the caller must answer it now."""
        if takes := self._should_defer():
            self._pulls.append(pull)
        return takes

    def flush(self) -> None:
        """Answer the deferred pulls and start a new window."""
        self._start_window(self._clock())
        arrivals, self._arrivals = self._arrivals, []
        pulls, self._pulls = self._pulls, []
        self._answer(arrivals, pulls)

    def _should_defer(self) -> bool:
        """Return whether to defer to the end of the current window, and set the timer if so."""
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
