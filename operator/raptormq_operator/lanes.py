"""Work queue with one lane per key, so that a slow cluster does not delay the others.

A key is a cluster, all Topics of a cluster, or the leaders of its groups. A lane runs one reconciliation at a time and
is removed when it has no work. Lanes share only the event loop and the connection to the API server, and their use is
bounded: a run ends after `RUN_LIMIT_S`, requests wait in a FIFO queue (`kube.client`), and a lane sends a few requests
at a time (`bounded`). Lanes that wait for unresponsive brokers therefore do not affect the others.

`add` may be called for every event. A key that is added during its run is run once more; a key with a timer is run
immediately. A run returns the delay in seconds until its next run, or None to wait for an event. A run that raises is
retried with exponential backoff (`retries`).

    idle -> running -> idle             a delay was returned: timer
            |     ^ added meanwhile
            `-----'

Source: the workqueue of controller-runtime has the same semantics. It has one queue and several workers, so slow
objects of a controller delay its other objects.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq_operator.metrics import IN_PROGRESS_SINCE, LAST_LOOK, QUEUE_DEPTH, RUN_SECONDS, RUNS
from raptormq_operator.retries import Retries

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 60.0
RUN_LIMIT_S = 300.0
"""Time limit of one run in seconds, as a safeguard: each operation has its own timeout."""
CALLS_AT_ONCE = 8
"""Maximum number of concurrent API requests of one lane."""

T = TypeVar("T")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Key of a lane. `kind` is BrokerCluster or SparkPipeline for the resource `name`, Topics for all Topics of the
    cluster `name`, or Leaders for the leaders of its groups."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


Reconcile = Callable[[Key, bool], Awaitable[float | None]]
"""Reconciles a key. The second argument is True after an event and False after a timer. Returns the delay in seconds
until the next run, or None to wait for an event."""

CallLater = Callable[[float, Callable[[Key], None], Key], asyncio.Handle]
"""Calls the function with the key after a delay in seconds. The returned handle cancels the call."""


def _call_later(delay: float, function: Callable[[Key], None], key: Key) -> asyncio.Handle:
    return asyncio.get_running_loop().call_later(delay, function, key)


@dataclass(slots=True)
class _Lane:
    running: bool = False
    pending: bool = False
    changed: bool = False
    timer: asyncio.Handle | None = None


class Lanes:
    """The work queue. `add` and `look` must be called on the event loop; `run` processes keys until cancelled."""

    def __init__(
        self,
        reconcile: Reconcile,
        *,
        vary: Callable[[], float] = random.random,
        call_later: CallLater = _call_later,
        run_limit: float = RUN_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reconcile = reconcile
        self._vary = vary
        self._call_later = call_later
        self._run_limit = run_limit
        self._lanes: dict[Key, _Lane] = {}
        self._busy = 0
        self._retries: Retries[Key] = Retries(BACKOFF_FIRST_S, BACKOFF_MAX_S, clock=clock, vary=vary)
        self._group: asyncio.TaskGroup | None = None

    def add(self, key: Key) -> None:
        """Enqueue a key after an event."""
        lane = self._lanes.setdefault(key, _Lane())
        lane.changed = True
        self._ready(key, lane)

    def look(self, key: Key) -> None:
        """Enqueue a key without an event."""
        self._ready(key, self._lanes.setdefault(key, _Lane()))

    async def run(self) -> None:
        """Process keys until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for key, lane in list(self._lanes.items()):
                    self._start(key, lane)
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            QUEUE_DEPTH.set(0)
            LAST_LOOK.clear()
            for lane in self._lanes.values():
                _cancel_timer(lane)

    @property
    def idle(self) -> bool:
        """True while no key is queued or running. Timers may be pending."""
        return self._busy == 0

    def _ready(self, key: Key, lane: _Lane) -> None:
        _cancel_timer(lane)
        if not lane.pending:
            lane.pending = True
            if not lane.running:
                self._count(1)
                self._start(key, lane)

    def _start(self, key: Key, lane: _Lane) -> None:
        if self._group is not None and lane.pending and not lane.running:
            lane.running = True
            self._group.create_task(self._work(key, lane), name=str(key))

    async def _work(self, key: Key, lane: _Lane) -> None:
        delay: float | None = None
        while lane.pending:
            changed, lane.pending, lane.changed = lane.changed, False, False
            delay = await self._attempt(key, changed)
            await asyncio.sleep(0)  # let other lanes run
        lane.running = False
        self._count(-1)
        if delay is None:
            del self._lanes[key]
            LAST_LOOK.labels(*_labels(key))  # creates the series, as `remove` raises for a missing one
            LAST_LOOK.remove(*_labels(key))
        else:
            lane.timer = self._call_later(delay, self.look, key)

    async def _attempt(self, key: Key, changed: bool) -> float | None:
        with _in_progress(key), RUN_SECONDS.labels(key.kind).time():
            try:
                async with asyncio.timeout(self._run_limit):
                    delay = await self._reconcile(key, changed)
            except RaptorMQError as error:
                log.warning("%s: %s", key, error)
            except TimeoutError:
                log.error("%s: the reconciliation was cancelled after %.0f s", key, self._run_limit)
            except Exception:  # a bug in one reconciliation must not stop the other lanes
                log.exception("%s: unexpected error", key)
            else:
                self._retries.succeeded(key)
                RUNS.labels(key.kind, "ok").inc()
                return None if delay is None else delay * (0.9 + 0.2 * self._vary())
        RUNS.labels(key.kind, "failed").inc()
        self._lanes[key].changed |= changed  # the event has not been processed yet
        return self._retries.failed(key)

    def _count(self, change: int) -> None:
        self._busy += change
        QUEUE_DEPTH.set(self._busy)


async def bounded(calls: Iterable[Awaitable[T]], at_once: int = CALLS_AT_ONCE) -> list[T]:
    """Await all calls, at most `at_once` concurrently. Return the results in order. The first error cancels the
    rest."""
    waiting = enumerate(calls)
    results: dict[int, T] = {}

    async def work() -> None:
        for number, call in waiting:
            results[number] = await call

    workers = [asyncio.ensure_future(work()) for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        for _, call in waiting:
            if asyncio.iscoroutine(call):
                call.close()  # not started because of the first error
    return [results[number] for number in sorted(results)]


@contextmanager
def _in_progress(key: Key) -> Iterator[None]:
    IN_PROGRESS_SINCE.labels(*_labels(key)).set_to_current_time()
    try:
        yield
    finally:
        IN_PROGRESS_SINCE.remove(*_labels(key))
        LAST_LOOK.labels(*_labels(key)).set_to_current_time()


def _labels(key: Key) -> tuple[str, str, str]:
    return key.kind, key.namespace, key.name


def _cancel_timer(lane: _Lane) -> None:
    if lane.timer is not None:
        lane.timer.cancel()
        lane.timer = None
