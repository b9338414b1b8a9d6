"""Queue locks of orderly consumption: which client of a group consumes a queue (``RebalanceLockManager``).

A lock belongs to a client id. It expires 60 s (``rocketmq.broker.rebalance.lockMaxLiveTime``) after its owner last
renewed it, even when the owner stays connected or disconnects earlier, unless the caller knows that the owner is gone.
Java clients renew every 20 s. Locks are in memory only: after a restart the first client that asks gets them, as in
RocketMQ. The time is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from raptormq.broker.config import QUEUE_LOCK_MS
from raptormq.protocol.message import MessageQueue

MAX_LOCKS = 1_000_000
"""Largest number of locks, including expired ones. Beyond it no lock is granted."""


@dataclass(slots=True)
class _Lock:
    owner: str
    until_ms: int
    """Last millisecond in which the lock is valid."""


class QueueLocks:
    """Queue locks of one broker, by group and queue."""

    def __init__(self, live_ms: int = QUEUE_LOCK_MS, max_locks: int = MAX_LOCKS) -> None:
        self._locks: dict[tuple[str, MessageQueue], _Lock] = {}
        self._live_ms = live_ms
        self._max_locks = max_locks

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        now_ms: int,
        is_gone: Callable[[str], bool] = lambda _owner: False,
    ) -> list[MessageQueue]:
        """Take or renew locks; return those of ``queues`` that ``client_id`` holds now.

        A lock whose owner ``is_gone`` is ignored.
        """
        held: list[MessageQueue] = []
        until_ms = now_ms + self._live_ms
        for queue in queues:
            lock = self._locks.get((group, queue))
            if lock is None:
                if len(self._locks) >= self._max_locks:
                    continue
                self._locks[group, queue] = _Lock(client_id, until_ms)
            elif lock.owner == client_id or lock.until_ms < now_ms or is_gone(lock.owner):
                lock.owner, lock.until_ms = client_id, until_ms
            else:
                continue
            held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the locks among ``queues`` that ``client_id`` holds."""
        for queue in queues:
            lock = self._locks.get((group, queue))
            if lock is not None and lock.owner == client_id:
                del self._locks[group, queue]

    def expire(self, now_ms: int) -> None:
        """Remove expired locks, so that inactive groups do not fill the table."""
        for key in [key for key, lock in self._locks.items() if lock.until_ms < now_ms]:
            del self._locks[key]

    def __len__(self) -> int:
        return len(self._locks)
