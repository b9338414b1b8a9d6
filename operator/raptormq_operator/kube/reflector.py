"""List and watch of one kind of object in one namespace: client-go's reflector, for asyncio.

                 +-------------------------- 410: the version is too old
                 v                                   |
    list, page by page -- version --> watch from that version -- ended by the server, or timeout
         ^                                ^          |                       |
         | backoff                        |          | any other error       |
         +--------------------------------|----------+                       |
                                          +--------------- newest version ---+

A watch is restarted after every error; errors are recorded in `state` and never raised. Bookmarks advance the version
while no events arrive, so that a restarted watch needs no list. A known object that is missing from a list is reported
as deleted.

The label selector restricts the requests to the operator's own objects.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from raptormq.logs import get_logger
from raptormq_operator.kube.errors import Gone, KubeError
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.metrics import WATCH_RESTARTS
from raptormq_operator.retries import Retries

WATCH_S = 300
"""Duration of a watch in seconds, after which the API server ends it. Load balancers drop connections later."""
QUIET_S = 90.0
"""Read timeout of a watch in seconds. The API server sends a bookmark about every minute."""
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 30.0

log = get_logger(__name__)

ADDED, DELETED = "ADDED", "DELETED"

Handler = Callable[[str, Mapping[str, Any]], None]
"""Callback (ADDED, MODIFIED or DELETED, object). For a deletion detected by a list, the object has only the metadata
that the reflector keeps."""


class Source(Protocol):
    """The methods of `KubeClient` that a reflector uses."""

    async def page(
        self, kind: str, namespace: str | None, selector: str = "", limit: int = ..., after: str = ""
    ) -> Manifest:
        """See `KubeClient.page`."""

    def watch(
        self, kind: str, namespace: str | None, selector: str, version: str, *, seconds: int, quiet: float
    ) -> AsyncIterator[tuple[str, Manifest]]:
        """See `KubeClient.watch`."""


@dataclass(slots=True)
class WatchState:
    """State of a watch, for the probes."""

    name: str
    """Display name: `StatefulSet in shop`."""
    moved_at: float
    """Time of the last event or error in seconds of the monotonic clock. A watch that hangs does not advance it."""
    synced: bool = False
    """True after the first complete list."""
    fault: str | None = None
    """The error that interrupts the watch; None while it works."""
    failing_since: float | None = None

    def runs(self, now: float) -> None:
        """Record that the watch works."""
        self.moved_at = now
        self.fault = self.failing_since = None

    def fails(self, now: float, fault: str) -> None:
        """Record an error."""
        self.moved_at = now
        self.fault = fault
        if self.failing_since is None:
            self.failing_since = now


class Reflector:
    """Lists and watches the objects of one kind, and calls a handler for each event."""

    def __init__(
        self,
        source: Source,
        kind: str,
        namespace: str | None,
        selector: str,
        handler: Handler,
        *,
        clock: Callable[[], float] = time.monotonic,
        vary: Callable[[], float] = random.random,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._source = source
        self._kind = kind
        self._namespace = namespace
        self._selector = selector
        self._handler = handler
        self._clock = clock
        self._sleep = sleep
        self._retries: Retries[str] = Retries(BACKOFF_FIRST_S, BACKOFF_MAX_S, clock=clock, vary=vary)
        self._known: dict[tuple[str, str], Manifest] = {}
        self.state = WatchState(f"{kind} in {namespace or 'all namespaces'}", clock())

    async def run(self) -> None:
        """List and watch until cancelled."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                    self._well()
                version = await self._watch(version)
            except Gone as error:
                log.debug("%s: %s", self.state.name, error)
                version = ""
            except _Interrupted as interrupted:  # continue after the last delivered event
                version = interrupted.version
                await self._failed(interrupted.error)
            except KubeError as error:
                version = ""
                await self._failed(error)
            WATCH_RESTARTS.labels(self._kind).inc()

    async def _list(self) -> str:
        """Deliver all existing objects and the deletions since the last list. Return the list's resourceVersion."""
        seen: set[tuple[str, str]] = set()
        after = ""
        while True:
            page = await self._source.page(self._kind, self._namespace, self._selector, after=after)
            for item in page["items"]:
                seen.add(_place(item))
                self._show(ADDED, item)
            await asyncio.sleep(0)
            after = page["metadata"].get("continue", "")
            if not after:
                break
        for place in self._known.keys() - seen:
            self._handler(DELETED, self._known.pop(place))
        version: str = page["metadata"]["resourceVersion"]
        return version

    async def _watch(self, version: str) -> str:
        """Deliver events. Return the newest resourceVersion when the API server ends the watch."""
        began = self._clock()
        try:
            events = self._source.watch(
                self._kind, self._namespace, self._selector, version, seconds=WATCH_S, quiet=QUIET_S
            )
            async for what, body in events:
                version = body["metadata"]["resourceVersion"]
                self.state.runs(self._clock())
                if what != "BOOKMARK":
                    self._show(what, body)
        except Gone:
            raise
        except KubeError as error:
            if error.status == 0:
                raise _Interrupted(version, error) from error
            raise
        self._well()
        if self._clock() - began < BACKOFF_FIRST_S:  # do not flood a server that ends every watch immediately
            await self._sleep(BACKOFF_FIRST_S)
        return version

    def _show(self, what: str, body: Manifest) -> None:
        place = _place(body)
        if what == DELETED:
            self._known.pop(place, None)
        else:
            metadata = {key: value for key, value in body["metadata"].items() if key in _KEPT}
            self._known[place] = {"metadata": metadata}
        self._handler(what, body)

    def _well(self) -> None:
        self.state.synced = True
        self.state.runs(self._clock())
        self._retries.succeeded("")

    async def _failed(self, error: KubeError) -> None:
        if self.state.fault is None:
            log.warning("watch of %s ended: %s", self.state.name, error)
        self.state.fails(self._clock(), str(error))
        await self._sleep(self._retries.failed("", str(error.status)))


_KEPT = frozenset({"labels", "name", "namespace", "uid"})


class _Interrupted(Exception):
    """The connection of a watch ended. The next watch continues from `version`."""

    def __init__(self, version: str, error: KubeError) -> None:
        super().__init__(str(error))
        self.version = version
        self.error = error


def _place(body: Mapping[str, Any]) -> tuple[str, str]:
    return body["metadata"]["namespace"], body["metadata"]["name"]
