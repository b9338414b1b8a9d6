"""Keys to reconcile: each is worked on by one worker at a time, several keys at once, failures again after a while.

`add` may be called as often as anything happens. A key that is added while it is worked on runs once more afterwards,
so that no change is missed; a key that is added while it waits for a later time runs now. What a run returns is when
to look again; an exception means a time that doubles from `BACKOFF_FIRST_S` to `BACKOFF_MAX_S`. Both times vary by a
fifth, so that a thousand objects that were met at the same moment do not stay in step.

    idle -> ready -> running -> idle        due at a later time: a timer that calls add
               ^        | added meanwhile
               `--------'
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq_operator.metrics import QUEUE_DEPTH, RUN_SECONDS, RUNS

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 60.0
WORKERS = 8

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """An object to reconcile."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


Reconcile = Callable[[Key], Awaitable[float | None]]
"""Brings one object closer to its spec; returns the seconds until the next look, None when a change will tell."""

CallLater = Callable[[float, Callable[[Key], None], Key], asyncio.Handle]
"""Calls the function with the key after so many seconds, unless what it returns is cancelled."""


def _call_later(delay: float, function: Callable[[Key], None], key: Key) -> asyncio.Handle:
    return asyncio.get_running_loop().call_later(delay, function, key)


class WorkQueue:
    """`add` from anywhere on the loop; `await run()` works until it is cancelled."""

    def __init__(
        self,
        reconcile: Reconcile,
        *,
        workers: int = WORKERS,
        vary: Callable[[], float] = random.random,
        call_later: CallLater = _call_later,
    ) -> None:
        self._reconcile = reconcile
        self._workers = workers
        self._vary = vary
        self._call_later = call_later
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: dict[Key, float] = {}
        self._running: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.Handle] = {}

    def add(self, key: Key) -> None:
        """The object may have changed."""
        self._cancel_timer(key)
        if key in self._running:
            self._again.add(key)
        elif key not in self._queued:
            self._queued[key] = asyncio.get_running_loop().time()
            self._ready.put_nowait(key)
        QUEUE_DEPTH.set(len(self._queued))

    async def run(self) -> None:
        """Works until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            for key in list(self._timers):
                self._cancel_timer(key)

    @property
    def idle(self) -> bool:
        """Nothing is ready and nothing runs; timers may be set."""
        return not self._queued and not self._running

    def waiting_seconds(self) -> float:
        """For how long the oldest key has waited for a worker; 0 when none waits."""
        oldest = next(iter(self._queued.values()), None)
        return 0.0 if oldest is None else asyncio.get_running_loop().time() - oldest

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            del self._queued[key]
            self._running.add(key)
            delay = await self._attempt(key)
            self._running.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            elif delay is not None:
                self._later(key, delay)

    async def _attempt(self, key: Key) -> float | None:
        with RUN_SECONDS.labels(key.kind).time():
            try:
                delay = await self._reconcile(key)
            except RaptorMQError as error:
                log.warning("%s: %s", key, error)
            except Exception:  # a bug in one object's reconciliation must not stop the others
                log.exception("%s: unexpected error", key)
            else:
                self._failures.pop(key, None)
                RUNS.labels(key.kind, "ok").inc()
                return delay
        RUNS.labels(key.kind, "failed").inc()
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures, 16))

    def _later(self, key: Key, delay: float) -> None:
        self._cancel_timer(key)
        varied = delay * (0.9 + 0.2 * self._vary())
        self._timers[key] = self._call_later(varied, self.add, key)

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
