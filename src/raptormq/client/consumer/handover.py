"""Handover of queues between the members of a group, without duplicate consumption.

    revoke     pulling stops, cached messages are dropped, running listener calls end      the old owner
    commit     the offset is committed
    unlock     the queue lock is released
    acquire    the lock is taken, the committed offset is queried, reading begins          the new owner

`Handover` runs both sides. A running listener call delays its queue for `timeout` at most; after that, messages may be
delivered twice. The new owner waits while another member holds the lock, because that member may not have been notified
yet. A RaptorMQ broker releases the locks of a client that leaves the group; an Apache RocketMQ broker after 60 s. A
queue without a lock may belong to a client without queue locks, which commits when it is notified of the change, so the
new owner waits briefly. A queue whose owner has left the group is acquired immediately, or after `timeout` and one
second if its lock has not expired.

`QueueLocks` locks queues at their brokers. A member locks a queue before it reads it, and unlocks it after the last
commit, so the next owner finds the right offset::

    LOCK_BATCH_MQ (41)     group %RETRY%<group>, queues -> queues that are locked now; renewed every 20 s, ends after 60
    UNLOCK_BATCH_MQ (42)

A restarted broker has lost the locks, so they are requested again as soon as it is connected. A queue that another
member has locked in the meantime belongs to that member. A member that was suspended or disconnected detects in this
way that it has lost the queue.

The lock does not use the name of the group, because Apache RocketMQ treats a group with locks as an ordered one and
moves its retries to the dead letter queue. The name with %RETRY% needs the same permission. Java clients that consume
concurrently use no locks. If a broker rejects locks or does not respond, members read without locks.

Ordered members require the locks, and use the name of the group, like ordered Java clients, so that both can be members
of one group. An ordered member reads only queues that it has locked. It unlocks a queue when its running calls have
ended, without a time limit. A lock is valid for 30 s after its last confirmation, half of its lifetime at the broker.
After this time no call starts before the lock is confirmed again. A queue whose lock may have expired at the broker is
acquired again::

    locked -- 20 s: renewed -- 30 s without: no call begins -- 55 s without: given up, acquired anew

See also: `consumer.rebalance` decides which queues are revoked and acquired. Source: Kafka's cooperative rebalancing
for the order (revoke, commit, assign); RocketMQ `RebalanceImpl.lock` for the locks, which RocketMQ uses only for
ordered consumption.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from logging import WARNING

from raptormq.client.background import background, cancel_all
from raptormq.client.cluster import GRACE_S, ClientInstance, require_success
from raptormq.client.consumer.offset_commits import OffsetCommitter
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.rebalance_calls import RebalanceCalls
from raptormq.errors import RaptorMQError, TransportError
from raptormq.log_throttle import LogThrottle
from raptormq.logs import get_logger
from raptormq.protocol.bodies.queues import QueueLockRequest, decode_locked_queues
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import retry_topic
from raptormq.transport.timing import wait_event

log = get_logger(__name__)


_RENEWAL_S = 20.0
_RENEWAL_AFTER_FAILURE_S = 2.0
_CONFIRMED_S = 30.0
"""Seconds for which an exclusive lock is valid after its confirmation. At brokers it expires after 60 s."""
_EXPIRED_S = 55.0
"""Time without confirmation after which another member may have locked the queue."""
_MAX_QUEUES_PER_REQUEST = 250
"""Maximum number of queues per lock request. Locking 10,000 queues blocks a broker for 70 ms."""


class QueueLocks:
    """Queue locks of one member of a group.

    Args:
        exclusive: True for an ordered member, which may read queues only while they are locked.
    """

    def __init__(self, instance: ClientInstance, group: str, *, exclusive: bool = False) -> None:
        self._instance = instance
        self._group = group
        self.exclusive = exclusive
        self._lock_group = group if exclusive else retry_topic(group)
        self._confirmed_at: dict[MessageQueue, float] = {}
        """Loop time of the last successful request for each exclusive lock."""
        self._failures: LogThrottle[str] = LogThrottle()
        self._has_failed = False
        """True if a broker did not respond to the last request for exclusive locks."""
        self._confirmed: Callable[[Collection[MessageQueue]], None] = lambda _: None
        self._requested: set[MessageQueue] = set()
        self._lost: set[MessageQueue] = set()
        """Queues locked by another member at the last request."""
        self._to_unlock: set[MessageQueue] = set()
        """Queues with a pending unlock request."""
        self._late_requests: dict[asyncio.Task[list[MessageQueue]], str] = {}
        """Pending lock requests in the background, with the address of the broker."""
        self._late_locks: set[MessageQueue] = set()
        """Queues locked by a request in the background, which the next call of `lock` returns."""
        self._wanted = asyncio.Event()
        self._renewals: asyncio.Task[None] | None = None

    def start(
        self,
        refused: Callable[[Collection[MessageQueue]], None],
        confirmed: Callable[[Collection[MessageQueue]], None] = lambda _: None,
    ) -> None:
        """Renew the locks in the background. `refused` is called with queues that another member has locked,
        `confirmed` with queues whose exclusive lock was renewed.
        """
        self._confirmed = confirmed
        self._renewals = background(self._renew(refused), f"queue locks of {self._group}")

    def locked_until(self, queue: MessageQueue) -> float:
        """Return the loop time until which a queue may be read; infinity if locks are not exclusive."""
        return self._confirmed_at.get(queue, -math.inf) + _CONFIRMED_S if self.exclusive else math.inf

    def confirmed_at(self, queue: MessageQueue) -> float | None:
        """Return the loop time of the request that last confirmed the exclusive lock of a queue; None without one."""
        return self._confirmed_at.get(queue)

    def renew_soon(self) -> None:
        """Renew all locks, and repeat pending unlocks, now."""
        self._wanted.set()

    async def stop(self) -> None:
        """Stop renewing the locks, and cancel pending lock requests."""
        for locking in self._late_requests:
            locking.cancel()
        if self._renewals is not None:
            await cancel_all([self._renewals])

    async def lock(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Lock queues. Return, within about a second, the queues that no other member has locked.

        While a broker does not respond, none of its queues are returned. After `ClientConfig.request_timeout` all of
        them are returned, because members then read without locks; exclusive locks are still not returned.
        """
        self._requested |= set(queues)
        self._to_unlock -= set(queues)
        locked = await asyncio.gather(*(self._lock_within_grace(*each) for each in self._by_master(queues).items()))
        return set[MessageQueue]().union(*locked)

    async def unlock(self, queues: Collection[MessageQueue], unreached: Collection[str] = ()) -> set[str]:
        """Unlock queues, including those with a pending lock request.

        If a broker does not respond, or its name is in `unreached`, its queues are unlocked when the broker is
        connected again, or with the next renewal.

        Returns the names of the unresponsive brokers.
        """
        for kept in (self._requested, self._lost, self._late_locks):
            kept.difference_update(queues)
        for queue in queues:
            self._confirmed_at.pop(queue, None)
        self._to_unlock |= set(queues)
        at_once = [queue for queue in queues if queue.broker_name not in unreached]
        more = await asyncio.gather(*(self._unlock_at(*each) for each in self._by_master(at_once).items()))
        return set[str]().union(*more)

    def _by_master(self, queues: Iterable[MessageQueue]) -> dict[str | None, list[MessageQueue]]:
        by_master: dict[str | None, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            route = self._instance.routes.cached(queue.topic)
            by_master[route.master(queue.broker_name) if route is not None else None].append(queue)
        return by_master

    async def _lock_within_grace(self, address: str | None, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Lock queues at one broker and wait for one second. A later response is used by the next call."""
        if address is None:
            return [] if self.exclusive else queues
        locked = self._late_locks.intersection(queues)
        self._late_locks -= locked
        asked = [queue for queue in queues if queue not in locked]
        if not asked or address in self._late_requests.values():
            return list(locked)
        locking = asyncio.create_task(self._lock_at(address, asked))
        try:
            await asyncio.wait([locking], timeout=GRACE_S)
        except asyncio.CancelledError:
            locking.cancel()
            raise
        if locking.done():
            return [*locked, *locking.result()]
        self._late_requests[locking] = address
        locking.add_done_callback(self._on_late_response)
        return list(locked)

    def _on_late_response(self, locking: asyncio.Task[list[MessageQueue]]) -> None:
        del self._late_requests[locking]
        if not locking.cancelled():
            self._late_locks |= self._requested.intersection(locking.result())  # not the queues unlocked since

    async def _lock_at(self, address: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        locked: list[MessageQueue] = []
        asked_at = asyncio.get_running_loop().time()
        try:
            for first in range(0, len(queues), _MAX_QUEUES_PER_REQUEST):
                # A queue that was unlocked during the renewal must not be locked again.
                part = [queue for queue in queues[first : first + _MAX_QUEUES_PER_REQUEST] if queue in self._requested]
                if part:
                    response = await self._ask(address, RequestCode.LOCK_BATCH_MQ, part)
                    locked += decode_locked_queues(response.body)
        except RaptorMQError as error:
            if self.exclusive:
                text = "group %s cannot lock queues at broker %s; retrying: %s"
                self._failures.log(log, WARNING, address, text, self._group, address, error)
                self._has_failed = True
                return []
            log.info("group %s reads without queue locks at broker %s: %s", self._group, address, error)
            return [queue for queue in queues if queue not in self._lost]
        self._lost.difference_update(locked)
        self._lost.update(self._requested.intersection(queues).difference(locked))
        self._late_locks -= self._lost
        if self.exclusive:
            self._confirmed_at.update(dict.fromkeys(self._requested.intersection(locked), asked_at))
            self._confirmed(locked)
        return locked

    async def _unlock_at(self, address: str | None, queues: list[MessageQueue]) -> set[str]:
        if address is None:  # the broker no longer has a route
            self._to_unlock.difference_update(queues)
            return set()
        if self._instance.pool.open_connection(address) is None:
            return set()  # a stopping consumer does not retry; the locks expire
        try:
            for first in range(0, len(queues), _MAX_QUEUES_PER_REQUEST):
                # A queue that was locked again in the meantime must not be unlocked.
                part = [queue for queue in queues[first : first + _MAX_QUEUES_PER_REQUEST] if queue in self._to_unlock]
                if part:
                    await self._ask(address, RequestCode.UNLOCK_BATCH_MQ, part)
                    self._to_unlock.difference_update(part)
        except TransportError as error:
            log.info(
                "group %s could not unlock queues at broker %s; retrying when it is connected: %s",
                self._group,
                address,
                error,
            )
            return {queue.broker_name for queue in queues}
        except RaptorMQError as error:
            log.info("group %s could not unlock queues at broker %s: %s", self._group, address, error)
            self._to_unlock.difference_update(queues)
        return set()

    async def _ask(self, address: str, code: RequestCode, queues: list[MessageQueue]) -> RemotingCommand:
        body = QueueLockRequest(self._lock_group, self._instance.client_id, queues).to_json()
        timeout = self._instance.config.request_timeout
        return require_success(await self._instance.pool.request(address, request(code, body=body), timeout), address)

    async def _renew(self, refused: Callable[[Collection[MessageQueue]], None]) -> None:
        while True:
            await wait_event(self._wanted, _RENEWAL_AFTER_FAILURE_S if self._has_failed else _RENEWAL_S)
            self._wanted.clear()
            self._has_failed = False
            if expired := self._expired():
                refused(expired)
            requested, to_unlock = self._by_master(self._requested).items(), self._by_master(self._to_unlock).items()
            await asyncio.gather(
                *(self._lock_at(address, queues) for address, queues in requested if address is not None),
                *(self._unlock_at(*each) for each in to_unlock),
            )
            if self._lost:
                refused(self._lost)

    def _expired(self) -> list[MessageQueue]:
        """Remove and return the queues that another member may have read since the last confirmation."""
        latest = asyncio.get_running_loop().time() - _EXPIRED_S
        expired = [queue for queue, confirmed_at in self._confirmed_at.items() if confirmed_at <= latest]
        for queue in expired:
            del self._confirmed_at[queue]
        return expired


_UNLOCKED_WAIT_S = 0.2
_COMMIT_MARGIN_S = 1.0
"""Time allowed for the last commit and for pending requests."""
_UNLOCK_CHUNK = 100
"""Number of queues whose offsets are committed together before their locks are released."""


class Handover:
    """Revokes and acquires the queues of one member.

    Args:
        locks: the queue locks of the group; None if every member reads all queues.
        commits: commits offsets.
        timeout: time limit in seconds for running listener calls, unless the locks are exclusive.
        calls: notifies the application of revoked queues.
    """

    def __init__(
        self, locks: QueueLocks | None, commits: OffsetCommitter, timeout: float, calls: RebalanceCalls
    ) -> None:
        self._calls = calls
        self._locks = locks
        self._commits = commits
        self._timeout = timeout
        self._exclusive = locks is not None and locks.exclusive
        self._revoking: dict[MessageQueue, QueueReader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending: dict[str, dict[MessageQueue, float]] = {}
        """By topic, the loop time at which the wait for each queue ends; infinite while another member holds its
        lock."""
        self._unlocked: set[MessageQueue] = set()
        """Pending queues that had no lock at the first request."""

    @property
    def pending_topics(self) -> set[str]:
        """Topics with queues that are not acquired yet."""
        return {topic for topic, queues in self._pending.items() if queues}

    @property
    def revoking(self) -> Collection[QueueReader]:
        """The readers of queues that are revoked and not released yet."""
        return self._revoking.values()

    def revoke(self, readers: Iterable[QueueReader]) -> None:
        """Revoke queues in the background."""
        readers = list(readers)
        for reader in readers:
            reader.revoke()
            self._revoking[reader.queue] = reader
        # Queues with running listener calls must not delay the others.
        busy = [[reader] for reader in readers if reader.is_busy]
        for group in ([reader for reader in readers if not reader.is_busy], *busy):
            if group:
                task = background(self._revoke_all(group), f"handover of {len(group)} queues from {group[0].queue}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until all revoked queues are released."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _revoke_all(self, readers: Sequence[QueueReader]) -> None:
        unreached: set[str] = set()
        for first in range(0, len(readers), _UNLOCK_CHUNK):  # release the first queues without waiting for the last
            await self._revoke_batch(readers[first : first + _UNLOCK_CHUNK], unreached)

    async def _revoke_batch(self, readers: Sequence[QueueReader], unreached: set[str]) -> None:
        """Release queues. Unreachable brokers are added to `unreached` and not contacted again."""

        def reachable() -> list[QueueReader]:
            return [reader for reader in readers if reader.queue.broker_name not in unreached]

        waits_for_end = self._exclusive
        await asyncio.gather(*(reader.wait_for_calls(self._timeout, until_end=waits_for_end) for reader in readers))
        await self._calls.revoked(reader.queue for reader in readers)
        unreached |= await self._commits.commit(reachable())
        # The next member must not start while a call ignores its cancellation. In this case the lock is left to expire.
        unlocked = [reader.queue for reader in readers if not (self._exclusive and reader.is_abandoned)]
        for reader in readers:
            reader.drop()
            self._commits.forget(reader.queue)
        if self._locks is not None:
            unreached |= await self._locks.unlock(unlocked, unreached)
        for reader in readers:
            del self._revoking[reader.queue]

    def locked_until(self, queue: MessageQueue) -> float:
        """Return the loop time until which calls for a queue may start."""
        return self._locks.locked_until(queue) if self._locks is not None else math.inf

    async def acquire(
        self, topic: str, queues: Sequence[MessageQueue], unowned: set[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock queues. Return those that can be read now; the caller must call again soon for the others.

        Args:
            topic: the topic of the queues.
            queues: all queues that this member has to read and does not read yet.
            unowned: queues of the topic whose owner has left the group.
        """
        wanted, pending = set(queues), self._pending.setdefault(topic, {})
        await self._cancel_pending(pending, [queue for queue in pending if queue not in wanted])
        here = [queue for queue in queues if queue not in self._revoking]
        free = await self._locks.lock(here) if self._locks is not None else set(here)
        now = asyncio.get_running_loop().time()
        if self._exclusive:
            pending.update(dict.fromkeys(wanted, math.inf))
            acquired = [queue for queue in here if queue in free]
            self._forget(pending, acquired)
            if not pending:
                del self._pending[topic]
            return acquired
        for queue in wanted - pending.keys():
            pending[queue] = now + _UNLOCKED_WAIT_S if queue in free else math.inf
            if queue in free:
                self._unlocked.add(queue)
        for queue in wanted & unowned:
            pending[queue] = min(pending[queue], now + self._timeout + _COMMIT_MARGIN_S)
        at_once = free & unowned | (free - self._unlocked)
        acquire = [queue for queue in here if queue in at_once or pending[queue] <= now]
        self._forget(pending, acquire)
        if not pending:
            del self._pending[topic]
        return acquire

    def _forget(self, pending: dict[MessageQueue, float], queues: Sequence[MessageQueue]) -> None:
        for queue in queues:
            del pending[queue]
            self._unlocked.discard(queue)

    async def _cancel_pending(self, pending: dict[MessageQueue, float], queues: Sequence[MessageQueue]) -> None:
        self._forget(pending, queues)
        if queues and self._locks is not None:
            await self._locks.unlock(queues)
