"""How queues go from this member of a group to others, without a message being consumed twice.

    kept for it     cached messages are dropped at once, listener calls end      this member: `give`
                    progress is stored
                    the claim is given back
                    the claim is got, progress is asked for, reading begins      the next member: `takable`

`Handover` has the queues that go and those that are to come. A listener that takes its time holds its queue up for
`timeout`; then messages come twice. The next member waits for the claim as long as another one has it: that one may not
have heard yet that it is to give the queue away. The claim of a member that is gone ends, at a RaptorMQ broker with its
membership, at Apache RocketMQ's after 60 s. A queue that nobody has claimed may be that of a client of another kind,
which stores its progress when it hears of the change: it gets a moment. What a member had that brokers do not know any
more is taken at once, or after `timeout` and a second where its claim has not ended.

`QueueLocks` asks brokers for the claims. By its claim a member knows that another one is not done yet with a queue
that is going to be its own. A member claims each queue at the queue's broker before it reads it, and gives the claim
back once its progress is stored for the last time. So the next member that gets the claim finds the right progress. A
claim is a queue lock:

    LOCK_BATCH_MQ (41)     group %RETRY%<group>, queues -> those that are ours now; kept alive every 20 s, ends after 60
    UNLOCK_BATCH_MQ (42)

A broker that restarts has forgotten the claims, so they are made again as soon as there is a connection to it. A queue
that another member has claimed meanwhile belongs to that member, with progress beyond ours: a member that slept, or was
cut off, learns of it so.

The lock is not taken under the name of the group itself: Apache RocketMQ takes a group with locks to consume in order,
and moves its retries to the dead letters. The name with %RETRY% needs the same permission. Members that know nothing of
claims, Java ones, never have any. A broker that refuses claims or does not answer is taken for one without: reading
never depends on them.

Neighbour: `consumer.rebalance` decides which queues go and come. Source: none for the order, which is that of Kafka's
cooperative rebalancing (revoke, commit, assign); RocketMQ `RebalanceImpl.lock` for claims, there for another purpose.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from raptormq.client.background import background, cancel_all
from raptormq.client.cluster import GRACE_S, ClientInstance, require_success
from raptormq.client.consumer.offset_commits import OffsetCommitter
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.errors import RaptorMQError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.queues import QueueLockRequest, decode_locked_queues
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import retry_topic
from raptormq.transport.timing import set_within

log = get_logger(__name__)


_RENEWAL_S = 20.0
_MAX_QUEUES_PER_REQUEST = 250
"""Queues of one request: 10,000 would keep the broker from everything else for 70 ms."""


class QueueLocks:
    """The claims of one member of a group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._lock_group = retry_topic(group)
        self._requested: set[MessageQueue] = set()
        self._lost: set[MessageQueue] = set()
        """What another member had when it was asked for last."""
        self._to_unlock: set[MessageQueue] = set()
        """What is claimed no more, and was not given back yet: its broker has not answered."""
        self._late_requests: dict[asyncio.Task[list[MessageQueue]], str] = {}
        """What is waited for in the background, with the address."""
        self._late_locks: set[MessageQueue] = set()
        """What turned out to be ours there, for who asks again."""
        self._wanted = asyncio.Event()
        self._renewals: asyncio.Task[None] | None = None

    def start(self, refused: Callable[[Collection[MessageQueue]], None]) -> None:
        """Keep claims alive; `refused` gets those that another member has."""
        self._renewals = background(self._renew(refused), f"claims of {self._group}")

    def renew_soon(self) -> None:
        """Claim, and give back, everything again now."""
        self._wanted.set()

    async def stop(self) -> None:
        """Keep them alive no more."""
        for locking in self._late_requests:
            locking.cancel()
        if self._renewals is not None:
            await cancel_all([self._renewals])

    async def lock(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Claim queues and return those that no other member has, as far as their brokers say; takes a second at most.

        Of a broker that does not answer none are returned before `ClientConfig.request_timeout` is used up, all then.
        """
        self._requested |= set(queues)
        self._to_unlock -= set(queues)
        locked = await asyncio.gather(*(self._lock_within_grace(*each) for each in self._by_master(queues).items()))
        return set[MessageQueue]().union(*locked)

    async def unlock(self, queues: Collection[MessageQueue], unreached: Collection[str] = ()) -> set[str]:
        """Give claims back, those too that were asked for and not got.

        Where a broker does not answer, or is among those that are `unreached`, by name, that is done as soon as there
        is a connection, or with the next renewal.

        Returns the names of the brokers that did not answer.
        """
        for kept in (self._requested, self._lost, self._late_locks):
            kept.difference_update(queues)
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
        """Claim within a second; where the broker does not answer, nothing is ours before it is given up."""
        if address is None:
            return queues
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
            self._late_locks |= self._requested.intersection(locking.result())  # the rest was given back meanwhile

    async def _lock_at(self, address: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        locked: list[MessageQueue] = []
        try:
            for first in range(0, len(queues), _MAX_QUEUES_PER_REQUEST):
                # What was given back since the renewal began must not be claimed again.
                part = [queue for queue in queues[first : first + _MAX_QUEUES_PER_REQUEST] if queue in self._requested]
                if part:
                    response = await self._ask(address, RequestCode.LOCK_BATCH_MQ, part)
                    locked += decode_locked_queues(response.body)
        except RaptorMQError as error:
            log.info("group %s reads without claims at broker %s: %s", self._group, address, error)
            return [queue for queue in queues if queue not in self._lost]
        self._lost.difference_update(locked)
        self._lost.update(self._requested.intersection(queues).difference(locked))
        self._late_locks -= self._lost
        return locked

    async def _unlock_at(self, address: str | None, queues: list[MessageQueue]) -> set[str]:
        if address is None:  # nobody knows the broker any more
            self._to_unlock.difference_update(queues)
            return set()
        if self._instance.pool.open_connection(address) is None:
            return set()  # a consumer that stops has waited for that broker long enough; claims end by themselves
        try:
            for first in range(0, len(queues), _MAX_QUEUES_PER_REQUEST):
                # What was claimed again meanwhile must not be given back.
                part = [queue for queue in queues[first : first + _MAX_QUEUES_PER_REQUEST] if queue in self._to_unlock]
                if part:
                    await self._ask(address, RequestCode.UNLOCK_BATCH_MQ, part)
                    self._to_unlock.difference_update(part)
        except TransportError as error:
            log.info("group %s gives claims back later at broker %s: %s", self._group, address, error)
            return {queue.broker_name for queue in queues}
        except RaptorMQError as error:
            log.info("group %s did not give claims back at broker %s: %s", self._group, address, error)
            self._to_unlock.difference_update(queues)
        return set()

    async def _ask(self, address: str, code: RequestCode, queues: list[MessageQueue]) -> RemotingCommand:
        body = QueueLockRequest(self._lock_group, self._instance.client_id, queues).to_json()
        timeout = self._instance.config.request_timeout
        return require_success(await self._instance.pool.request(address, request(code, body=body), timeout), address)

    async def _renew(self, refused: Callable[[Collection[MessageQueue]], None]) -> None:
        while True:
            await set_within(self._wanted, _RENEWAL_S)
            self._wanted.clear()
            requested, to_unlock = self._by_master(self._requested).items(), self._by_master(self._to_unlock).items()
            await asyncio.gather(
                *(self._lock_at(address, queues) for address, queues in requested if address is not None),
                *(self._unlock_at(*each) for each in to_unlock),
            )
            if self._lost:
                refused(self._lost)


_UNLOCKED_WAIT_S = 0.2
_COMMIT_MARGIN_S = 1.0
"""For storing progress and all that is under way."""
_UNLOCK_CHUNK = 100
"""Queues whose progress is stored before their claims are given back."""


class Handover:
    """The queues of one member that go, and those that are to come.

    Args:
        claims: what members know of each other's queues; `None` where every member reads all of them.
        commits: stores progress.
        timeout: seconds that listener calls get.
    """

    def __init__(self, locks: QueueLocks | None, commits: OffsetCommitter, timeout: float) -> None:
        self._locks = locks
        self._commits = commits
        self._timeout = timeout
        self._revoking: dict[MessageQueue, QueueReader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending: dict[str, dict[MessageQueue, float]] = {}
        """By topic, when waiting for a queue ends, in the time of the loop; never for one that a member has claimed."""
        self._unlocked: set[MessageQueue] = set()
        """Those of them that nobody had claimed when they were asked for first."""

    @property
    def pending_topics(self) -> set[str]:
        """The topics of which queues are to come."""
        return {topic for topic, queues in self._pending.items() if queues}

    def revoke(self, readers: Iterable[QueueReader]) -> None:
        """Let queues go, in the background."""
        readers = list(readers)
        for reader in readers:
            reader.revoke()
            self._revoking[reader.queue] = reader
        # Those that listeners have must not hold up the others.
        busy = [[reader] for reader in readers if reader.is_busy]
        for group in ([reader for reader in readers if not reader.is_busy], *busy):
            if group:
                task = background(self._revoke_all(group), f"hand-over of {len(group)} queues from {group[0].queue}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until all that was to go has gone."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _revoke_all(self, readers: Sequence[QueueReader]) -> None:
        unreached: set[str] = set()
        for first in range(0, len(readers), _UNLOCK_CHUNK):  # the first ones need not wait for the last
            await self._revoke_batch(readers[first : first + _UNLOCK_CHUNK], unreached)

    async def _revoke_batch(self, readers: Sequence[QueueReader], unreached: set[str]) -> None:
        """Let queues go; the brokers that are not reached are added to `unreached`, and not tried again."""

        def reachable() -> list[QueueReader]:
            return [reader for reader in readers if reader.queue.broker_name not in unreached]

        await asyncio.gather(*(reader.wait_for_calls(self._timeout) for reader in readers))
        unreached |= await self._commits.commit(reachable())
        for reader in readers:
            reader.drop()
            self._commits.forget(reader.queue)
        if self._locks is not None:
            unreached |= await self._locks.unlock([reader.queue for reader in readers], unreached)
        for reader in readers:
            del self._revoking[reader.queue]

    async def acquire(
        self, topic: str, queues: Sequence[MessageQueue], unowned: set[MessageQueue]
    ) -> list[MessageQueue]:
        """Claim queues and return those that can be read now; the others have to be asked for again soon.

        Args:
            topic: whose queues they are.
            queues: all that this member shall have of it, and has not.
            orphans: those of the topic whose member the brokers do not know any more.
        """
        wanted, pending = set(queues), self._pending.setdefault(topic, {})
        await self._cancel_pending(pending, [queue for queue in pending if queue not in wanted])
        here = [queue for queue in queues if queue not in self._revoking]
        free = await self._locks.lock(here) if self._locks is not None else set(here)
        now = asyncio.get_running_loop().time()
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
