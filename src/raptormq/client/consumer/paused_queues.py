"""Queues paused by the application. No I/O.

`consumer.group_consumer` keeps a pause across rebalances and restarts of a consumer. Kafka's `Consumer.pause`, in
contrast, loses a pause when the queue is revoked.
"""

from __future__ import annotations

from collections.abc import Iterable

from raptormq.protocol.message import MessageQueue


class PausedQueues:
    """A set of queues, or the complement of a set."""

    def __init__(self) -> None:
        self._all = False
        self._queues: set[MessageQueue] = set()
        """Paused queues; with `_all`, the exceptions that were resumed."""

    def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Pause some queues, or with `None` all of them."""
        if queues is None:
            self._all, self._queues = True, set()
        elif self._all:
            self._queues.difference_update(queues)
        else:
            self._queues.update(queues)

    def resume(self, queues: Iterable[MessageQueue] | None) -> None:
        """Resume some queues, or with `None` all of them."""
        if queues is None:
            self._all, self._queues = False, set()
        elif self._all:
            self._queues.update(queues)
        else:
            self._queues.difference_update(queues)

    def __contains__(self, queue: MessageQueue) -> bool:
        return (queue in self._queues) is not self._all
