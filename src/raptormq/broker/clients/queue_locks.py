"""Queue locks of orderly consumption (``RebalanceLockManager``).

A lock gives one client id of a group the exclusive right to consume a queue. It expires 60 s
(``rocketmq.broker.rebalance.lockMaxLiveTime``) after its last renewal, even if its owner is still connected. Java
clients renew a lock every 20 s. A disconnected owner keeps its lock until the lock expires, unless the caller of
:meth:`lock` passes ``is_gone``. As in RocketMQ, locks are in memory only. After a restart the first request gets the
lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from raptormq.broker.config import QUEUE_LOCK_MS
from raptormq.protocol.message import MessageQueue

MAX_LOCKS = 1_000_000
"""Maximum number of locks, including expired ones. Beyond this number no lock is granted."""


@dataclass(slots=True)
class _Lock:
    owner: str
    until_ms: int
    """Last millisecond in which the lock is valid, on the clock of ``now_ms``."""


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
        """Acquire or renew locks. Return the elements of ``queues`` that ``client_id`` has locked.

        ``is_gone`` returns whether the owner of a lock has disconnected. The lock of such an owner is ignored.
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
        """Release the locks on ``queues`` that ``client_id`` owns."""
        for queue in queues:
            lock = self._locks.get((group, queue))
            if lock is not None and lock.owner == client_id:
                del self._locks[group, queue]

    def expire(self, now_ms: int) -> None:
        """Remove expired locks, so that inactive groups do not exhaust the limit."""
        for key in [key for key, lock in self._locks.items() if lock.until_ms < now_ms]:
            del self._locks[key]

    def clear(self) -> None:
        """Release all locks, because another member of the Dledger group grants them from now on."""
        self._locks.clear()

    def __len__(self) -> int:
        return len(self._locks)
