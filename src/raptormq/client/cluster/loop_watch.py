"""Warnings about event loops that are blocked, for example by a listener that waits without `await`.

While a loop is blocked, the client sends no heartbeats and handles no responses: requests time out, and brokers give
the queues of its consumers to other members. A thread therefore asks each loop with a client for an answer four times a
second. If a loop does not answer within a second, the thread logs the stack of the loop, whose last lines are the
blocking code::

    thread  --- ask ----->  loop: a listener calls time.sleep(5)
            ... 1 s: no answer; log the stack of the loop's thread
            <-- answer ---  loop: the next iteration

See also: `cluster.client_instance`, whose instances are watched. asyncio's debug mode logs slow callbacks too, but only
after their end, without the line of code, and it slows down the loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from weakref import WeakKeyDictionary, ref

from raptormq.log_throttle import LogThrottle
from raptormq.logs import get_logger

log = get_logger(__name__)

ASK_INTERVAL_S = 0.25
"""Interval between an answer and the next question, in seconds."""
BLOCKED_S = 1.0
"""Time without an answer after which a loop counts as blocked, in seconds."""
_GRACE_S = 0.1
"""Additional time, because the whole process may have been stopped."""
REPEAT_S = 60.0
"""Minimum interval in seconds between two warnings about the same line of code."""

Place = tuple[str, int]
"""File and line."""


class LoopWatch:
    """Watches one event loop until the last `release`, or until the loop is closed.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # The thread must not keep the loop alive.
        self._loop = ref(asyncio.get_running_loop())
        self._loop_thread = threading.get_ident()
        self._answered = threading.Event()
        self._ended = threading.Event()
        self._warnings: LogThrottle[Place] = LogThrottle(REPEAT_S, clock)
        self._users = 0
        threading.Thread(target=self._run, name="raptormq-loop-watch", daemon=True).start()

    @classmethod
    def acquire(cls) -> LoopWatch:
        """Return the watch of the running event loop; start it for the first user."""
        loop = asyncio.get_running_loop()
        watch = _watches.get(loop)
        if watch is None:
            watch = _watches[loop] = cls()
        watch._users += 1
        return watch

    def release(self) -> None:
        """Stop watching after the last user, in the event loop."""
        self._users -= 1
        if not self._users:
            del _watches[asyncio.get_running_loop()]
            self._ended.set()
            self._answered.set()  # the thread ends now, also when it waits for an answer

    def _run(self) -> None:
        while not self._ended.wait(ASK_INTERVAL_S):
            loop = self._loop()
            if loop is None or loop.is_closed():
                return
            self._answered.clear()
            try:
                loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # closed in the meantime
                return
            is_running = loop.is_running()
            del loop
            if not self._answers() and is_running:
                self._warn()
            while not self._answers():
                if self._ended.is_set() or (loop := self._loop()) is None or loop.is_closed():
                    return
                del loop

    def _answer(self) -> None:
        self._loop_thread = threading.get_ident()
        self._answered.set()

    def _answers(self) -> bool:
        return self._answered.wait(BLOCKED_S) or self._answered.wait(_GRACE_S)

    def _warn(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way to the stack of a thread
        if frame is None or self._ended.is_set() or not self._is_due(frame):
            return
        trace: TracebackType | None = None
        for each, line in traceback.walk_stack(frame):
            # The line of a running frame is None between two lines.
            trace = TracebackType(trace, each, each.f_lasti, line or each.f_code.co_firstlineno)
        log.warning(
            "the event loop has been blocked for %g s, and its clients can neither send nor receive: call what blocks "
            "in a thread, for example with asyncio.to_thread or in_executor",
            BLOCKED_S,
            exc_info=TimeoutError("the event loop does not answer").with_traceback(trace),
        )

    def _is_due(self, frame: FrameType) -> bool:
        """Return whether to warn about a line of code now. If so, the warning counts as logged."""
        return self._warnings.permits((frame.f_code.co_filename, frame.f_lineno))


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch] = WeakKeyDictionary()
