"""Runs all watches of this process and evaluates their state.

Watches restart on their own after an error (`kube.reflector`, `kopf_watch`). This module decides the consequences:

    a watch fails for `LASTS_S`                      the readiness probe fails, with an explanation
    every watch of our resources fails `BLIND_S`     the lease is released: another process may have access
    a watch delivers nothing and does not fail       the liveness probe fails: a restart resolves it
    for `HANGS_S`

Pure except for `Watches.run` and `Watches.until_blind`, which wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from raptormq_operator.kube.reflector import WatchState

LASTS_S = 15.0
BLIND_S = 20.0
BEGINS_S = 60.0
"""Time in seconds that replaces `BLIND_S` for watches that have not completed their first list."""
HANGS_S = 240.0
LOOK_S = 1.0


class Watch(Protocol):
    """Common interface of `KopfWatch` and `Reflector`."""

    state: WatchState

    def run(self) -> Coroutine[Any, Any, None]:
        """Run until cancelled."""


class Watches:
    """All watches. `own` watch BrokerClusters and Topics, `children` the child objects of clusters."""

    def __init__(self, own: Sequence[Watch], children: Sequence[Watch], clock: Callable[[], float]) -> None:
        self._own = own
        self._children = children
        self._clock = clock
        self._began = clock()

    async def run(self) -> None:
        """Run all watches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in (*self._own, *self._children):
                group.create_task(watch.run(), name=watch.state.name)

    async def until_blind(self) -> None:
        """Wait until all watches of our own resources have failed for too long."""
        while not self.blind():  # noqa: ASYNC110 - depends on elapsed time, no event signals it
            await asyncio.sleep(LOOK_S)

    def blind(self) -> bool:
        """Return whether all watches of our own resources have failed for `BLIND_S`."""
        return all(self._is_blind(watch.state) for watch in self._own)

    def faults(self) -> list[str]:
        """Return the errors of watches that have failed for `LASTS_S`."""
        now = self._clock()
        return [
            f"watch of {state.name}: {state.fault}"
            for state in self._states()
            if state.failing_since is not None and now - state.failing_since >= LASTS_S
        ]

    def hung(self) -> list[str]:
        """Return the watches that have delivered nothing and not failed for `HANGS_S`."""
        now = self._clock()
        return [f"watch of {state.name} hangs" for state in self._states() if now - state.moved_at >= HANGS_S]

    def _states(self) -> list[WatchState]:
        return [watch.state for watch in (*self._own, *self._children)]

    def _is_blind(self, state: WatchState) -> bool:
        now = self._clock()
        if not state.synced:
            return now - self._began >= BEGINS_S
        return state.failing_since is not None and now - state.failing_since >= BLIND_S
