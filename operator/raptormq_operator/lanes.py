"""Lanes of work: each key has one of its own, so that what one cluster waits for costs no other anything.

A key is a cluster, or the Topic resources of one. Its lane works on one run at a time; a lane without work is not
there. Nothing is shared between lanes but the event loop and the connection to the API server, and both are bounded
where they are used: a run has `RUN_LIMIT_S`, an API call its place in a fair line (`kube.client`), a lane a few calls
at a time (`bounded`). So the number of lanes that wait for a silent broker does not matter to the others.

`add` may be called as often as anything happens. A key that is added while its lane works runs once more afterwards,
so that no change is missed; one that waits for a later time runs now. A run returns the seconds until the next look,
None when a change will tell; what it raises is tried again later and later (`retries`).

    nothing -> running -> nothing             due at a later time: a timer
               |     ^ added meanwhile
               `-----'

Source: controller-runtime's workqueue has the same promises for one queue with a number of workers; there one
reconciler's slow objects hold up its others.
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
"""Everything that a run waits for has a time limit of its own; this one is for what nobody has thought of."""
CALLS_AT_ONCE = 8
"""API calls of one lane at the same time."""

T = TypeVar("T")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What a lane is for. `kind` is BrokerCluster, or Topics for the Topic resources of the cluster `name`."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


Reconcile = Callable[[Key, bool], Awaitable[float | None]]
"""Brings what the key stands for closer to its spec. The second argument says whether something changed; otherwise it
was the time for a look. Returns the seconds until the next look, None when a change will tell."""

CallLater = Callable[[float, Callable[[Key], None], Key], asyncio.Handle]
"""Calls the function with the key after so many seconds, unless what it returns is cancelled."""


def _call_later(delay: float, function: Callable[[Key], None], key: Key) -> asyncio.Handle:
    return asyncio.get_running_loop().call_later(delay, function, key)


@dataclass(slots=True)
class _Lane:
    running: bool = False
    pending: bool = False
    changed: bool = False
    timer: asyncio.Handle | None = None


class Lanes:
    """`add` from anywhere on the loop; `await run()` works until it is cancelled."""

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
        """What the key stands for may have changed."""
        lane = self._lanes.setdefault(key, _Lane())
        lane.changed = True
        self._ready(key, lane)

    def look(self, key: Key) -> None:
        """Nothing is known to have changed; look now nevertheless."""
        self._ready(key, self._lanes.setdefault(key, _Lane()))

    async def run(self) -> None:
        """Works until cancelled."""
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
        """Nothing is ready and nothing runs; timers may be set."""
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
            await asyncio.sleep(0)  # a lane that always has work lets others go on
        lane.running = False
        self._count(-1)
        if delay is None:
            del self._lanes[key]
            LAST_LOOK.labels(*_labels(key))  # removing one that never was is an error
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
                log.error("%s: given up after %.0f s", key, self._run_limit)
            except Exception:  # a bug in one object's reconciliation must not stop the others
                log.exception("%s: unexpected error", key)
            else:
                self._retries.succeeded(key)
                RUNS.labels(key.kind, "ok").inc()
                return None if delay is None else delay * (0.9 + 0.2 * self._vary())
        RUNS.labels(key.kind, "failed").inc()
        self._lanes[key].changed |= changed  # it is still to be acted on
        return self._retries.failed(key)

    def _count(self, change: int) -> None:
        self._busy += change
        QUEUE_DEPTH.set(self._busy)


async def bounded(calls: Iterable[Awaitable[T]], at_once: int = CALLS_AT_ONCE) -> list[T]:
    """The results of all calls, in order, with a few of them under way at any time. The first error ends the rest."""
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
                call.close()  # never begun: the first error has ended the rest
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
