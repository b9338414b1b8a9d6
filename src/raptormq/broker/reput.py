"""Dispatches appended records: adds them to the queues, then notifies listeners (``ReputMessageService``,
``NotifyMessageArrivingListener``).

A send schedules a dispatch in the same iteration of the event loop, after the responses. One dispatch processes all
appends of the iteration. A message becomes visible within a millisecond. With SYNC_FLUSH or replication it becomes
visible when it is confirmed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from raptormq.logs import get_logger
from raptormq.storage.queue import Arrival
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)

REPEAT_S = 1.0
"""Minimum time in seconds before :meth:`ReputService.is_working` repeats a failed dispatch."""


class ReputService:
    """Runs the store's dispatch after appends."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._listeners: list[tuple[str | None, Callable[[Sequence[Arrival]], None]]] = []
        self._topic_listeners: list[Callable[[set[str]], None]] = []
        self._run_listeners: list[Callable[[], None]] = []
        self._scheduled = False
        self._failure = ""
        """Error of the last dispatch, empty if it succeeded."""
        self._failing_since = self._attempted_at = 0.0
        self._is_broken = False
        """Whether a repetition at least :data:`REPEAT_S` after the first failure has failed."""

    def listen_runs(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each dispatch. A listener must not raise."""
        self._run_listeners.append(listener)

    def listen_topics(self, listener: Callable[[set[str]], None]) -> None:
        """Call ``listener`` with the topics that have new messages. A listener must not raise and must not change the
        set.
        """
        self._topic_listeners.append(listener)

    def listen(self, listener: Callable[[Sequence[Arrival]], None], topic: str | None = None) -> None:
        """Call ``listener`` with the messages that become visible. With ``topic``, call it only if one of them belongs
        to this topic. A listener must not raise.
        """
        self._listeners.append((topic, listener))

    def schedule(self) -> None:
        """Schedule a dispatch in this iteration of the event loop."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def is_working(self) -> bool:
        """Return False if dispatches have failed for :data:`REPEAT_S`. One failure may be transient, and a leader
        would lose its leadership. A failed dispatch is scheduled again, because no message may arrive that would repeat
        it.
        """
        if self._failure and (now := time.monotonic()) >= self._attempted_at + REPEAT_S:
            self._attempted_at = now
            self.schedule()
        return not self._is_broken

    def _run(self) -> None:
        self._scheduled = False
        try:
            arrivals = self._store.dispatch()
        except Exception as error:
            # The records are in the log. The next dispatch or the recovery adds them to the queues.
            if self._failure != (failure := repr(error)):
                logger.exception("dispatch failed")
            self._attempted_at = time.monotonic()
            if not self._failure:
                self._failing_since = self._attempted_at
            elif self._attempted_at >= self._failing_since + REPEAT_S:
                self._is_broken = True
            self._failure = failure
            return
        self._failure, self._is_broken = "", False
        if arrivals:
            topics = {arrival[0] for arrival in arrivals}
            for count in self._topic_listeners:
                count(topics)
            for topic, listener in self._listeners:
                if topic is None or topic in topics:
                    listener(arrivals)
        for listener_of_runs in self._run_listeners:
            listener_of_runs()
