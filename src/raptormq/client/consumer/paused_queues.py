"""The queues that an application has paused. Pure.

Neighbours: `consumer.push_consumer` keeps them across rebalances and restarts of a consumer. Source: Kafka's
`Consumer.pause`, which forgets a pause when the queue is revoked.
"""

from __future__ import annotations

from collections.abc import Iterable

from raptormq.protocol.message import MessageQueue


class PausedQueues:
    """All queues except some, or some queues."""

    def __init__(self) -> None:
        self._all = False
        self._queues: set[MessageQueue] = set()
        """The paused queues, or with `_all` the queues that were resumed since."""

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
