"""Every watch of this process, and whether it sees its objects.

A watch that ended runs again by itself (`kube.reflector`, `kopf_watch`), so nothing is decided here but what follows:

    one fails for `LASTS_S`                    the process is not ready, in words: someone has to look
    none shows our resources for `BLIND_S`     the lease is given up: another process may see more
    one neither shows anything nor fails       the process is not alive: a restart is the cure
    for `HANGS_S`

Pure but for `Watches.run` and `until_blind`, which wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from raptormq_operator.kube.reflector import WatchState

LASTS_S = 15.0
BLIND_S = 20.0
BEGINS_S = 60.0
"""The same as `BLIND_S` for watches that have not shown anything yet."""
HANGS_S = 240.0
LOOK_S = 1.0


class Watch(Protocol):
    """What `KopfWatch` and `Reflector` have in common."""

    state: WatchState

    def run(self) -> Coroutine[Any, Any, None]:
        """Runs until cancelled."""


class Watches:
    """`own` are those of our two resources, `children` those of the objects that a cluster has."""

    def __init__(self, own: Sequence[Watch], children: Sequence[Watch], clock: Callable[[], float]) -> None:
        self._own = own
        self._children = children
        self._clock = clock
        self._began = clock()

    async def run(self) -> None:
        """Runs all of them until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in (*self._own, *self._children):
                group.create_task(watch.run(), name=watch.state.name)

    async def until_blind(self) -> None:
        """Returns when this process no longer sees its objects."""
        while not self.blind():  # noqa: ASYNC110 - it is time that makes it so
            await asyncio.sleep(LOOK_S)

    def blind(self) -> bool:
        """Whether no watch of our own resources has shown anything for too long."""
        return all(self._is_blind(watch.state) for watch in self._own)

    def faults(self) -> list[str]:
        """What has failed for so long that someone has to look."""
        now = self._clock()
        return [
            f"watch of {state.name}: {state.fault}"
            for state in self._states()
            if state.failing_since is not None and now - state.failing_since >= LASTS_S
        ]

    def hung(self) -> list[str]:
        """Watches that neither show anything nor fail."""
        now = self._clock()
        return [f"watch of {state.name} hangs" for state in self._states() if now - state.moved_at >= HANGS_S]

    def _states(self) -> list[WatchState]:
        return [watch.state for watch in (*self._own, *self._children)]

    def _is_blind(self, state: WatchState) -> bool:
        now = self._clock()
        if not state.synced:
            return now - self._began >= BEGINS_S
        return state.failing_since is not None and now - state.failing_since >= BLIND_S
