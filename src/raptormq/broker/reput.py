"""Makes appended records visible: log to queues, then held pulls (``ReputMessageService``,
``NotifyMessageArrivingListener``).

A send schedules a run for later in the same turn of the loop, after the answers have been written; however many
groups a turn brings, one run takes them all. A message is visible within a millisecond, unless the confirmed offset
(SYNC_FLUSH, later replication) holds it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from raptormq.logs import get_logger
from raptormq.storage.queue import Arrival
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)


class ReputService:
    """Runs the store's dispatch when there is something to do."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._listeners: list[tuple[str | None, Callable[[Sequence[Arrival]], None]]] = []
        self._topic_listeners: list[Callable[[set[str]], None]] = []
        self._scheduled = False

    def listen_topics(self, listener: Callable[[set[str]], None]) -> None:
        """Tell ``listener`` which topics have new messages; it must not raise and not change the set."""
        self._topic_listeners.append(listener)

    def listen(self, listener: Callable[[Sequence[Arrival]], None], topic: str | None = None) -> None:
        """Tell ``listener`` of the messages that become visible, with ``topic`` only when one of them is of that topic;
        it must not raise.
        """
        self._listeners.append((topic, listener))

    def schedule(self) -> None:
        """Dispatch once more in this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        try:
            arrivals = self._store.dispatch()
        except Exception:
            # The records are safe in the log; the next run, or the recovery of the next start, indexes them.
            logger.exception("dispatch failed")
            return
        if arrivals:
            topics = {arrival[0] for arrival in arrivals}
            for count in self._topic_listeners:
                count(topics)
            for topic, listener in self._listeners:
                if topic is None or topic in topics:
                    listener(arrivals)
