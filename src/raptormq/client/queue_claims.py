"""By which a member of a group knows that another one is not done yet with a queue that is going to be its own.

A member claims each queue at the queue's broker before it reads it, and gives the claim back once its progress is
stored for the last time. So the next member that gets the claim finds the right progress. A claim is a queue lock:

    LOCK_BATCH_MQ (41)     group %RETRY%<group>, queues -> those that are ours now; kept alive every 20 s, ends after 60
    UNLOCK_BATCH_MQ (42)

A broker that restarts has forgotten them, so they are claimed again as soon as there is a connection to it. What
another member has got meanwhile is its own, with progress beyond ours: who slept, or was cut off, learns of it so.

Not under the name of the group itself: of one with locks Apache RocketMQ takes that it consumes in order, and moves its
retries to the dead letters. This name needs the same permission. Members that know nothing of claims, Java ones, never
have any, and a broker that refuses them or does not answer is taken for one without: reading never depends on them.
Neighbour: `hand_over` claims and gives back. Source: RocketMQ `RebalanceImpl.lock`, for another purpose.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from raptormq.client.answers import require_success
from raptormq.client.background import background, cancel_all
from raptormq.client.heartbeats import PATIENCE_S
from raptormq.client.instance import ClientInstance
from raptormq.errors import RaptorMQError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.queues import QueueLockRequest, decode_locked_queues
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import retry_topic
from raptormq.transport.event_wait import set_within

log = get_logger(__name__)

_RENEWAL_S = 20.0
_AT_ONCE = 250
"""Queues of one request: 10,000 would keep the broker from everything else for 70 ms."""


class QueueClaims:
    """The claims of one member of a group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._name = retry_topic(group)
        self._claimed: set[MessageQueue] = set()
        self._refused: set[MessageQueue] = set()
        """What another member had when it was asked for last."""
        self._owed: set[MessageQueue] = set()
        """What is claimed no more, and was not given back yet: its broker has not answered."""
        self._late: dict[asyncio.Task[list[MessageQueue]], str] = {}
        """What is waited for in the background, with the address."""
        self._held_late: set[MessageQueue] = set()
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
        for claiming in self._late:
            claiming.cancel()
        if self._renewals is not None:
            await cancel_all([self._renewals])

    async def claim(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Claim queues and return those that no other member has, as far as their brokers say; takes a second at most.

        Of a broker that does not answer none are returned before `ClientConfig.request_timeout` is used up, all then.
        """
        self._claimed |= set(queues)
        self._owed -= set(queues)
        held = await asyncio.gather(*(self._claim_soon(*each) for each in self._by_master(queues).items()))
        return set[MessageQueue]().union(*held)

    async def release(self, queues: Collection[MessageQueue], unreached: Collection[str] = ()) -> set[str]:
        """Give claims back, those too that were asked for and not got.

        Where a broker does not answer, or is among those that are `unreached`, by name, that is done as soon as there
        is a connection, or with the next renewal.

        Returns the names of the brokers that did not answer.
        """
        for kept in (self._claimed, self._refused, self._held_late):
            kept.difference_update(queues)
        self._owed |= set(queues)
        at_once = [queue for queue in queues if queue.broker_name not in unreached]
        more = await asyncio.gather(*(self._release_at(*each) for each in self._by_master(at_once).items()))
        return set[str]().union(*more)

    def _by_master(self, queues: Iterable[MessageQueue]) -> dict[str | None, list[MessageQueue]]:
        by_master: dict[str | None, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            route = self._instance.routes.known(queue.topic)
            by_master[route.master(queue.broker_name) if route is not None else None].append(queue)
        return by_master

    async def _claim_soon(self, address: str | None, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Claim within a second; where the broker does not answer, nothing is ours before it is given up."""
        if address is None:
            return queues
        held = self._held_late.intersection(queues)
        self._held_late -= held
        asked = [queue for queue in queues if queue not in held]
        if not asked or address in self._late.values():
            return list(held)
        claiming = asyncio.create_task(self._claim_at(address, asked))
        try:
            await asyncio.wait([claiming], timeout=PATIENCE_S)
        except asyncio.CancelledError:
            claiming.cancel()
            raise
        if claiming.done():
            return [*held, *claiming.result()]
        self._late[claiming] = address
        claiming.add_done_callback(self._came_late)
        return list(held)

    def _came_late(self, claiming: asyncio.Task[list[MessageQueue]]) -> None:
        del self._late[claiming]
        if not claiming.cancelled():
            self._held_late |= self._claimed.intersection(claiming.result())  # the rest was given back meanwhile

    async def _claim_at(self, address: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        held: list[MessageQueue] = []
        try:
            for first in range(0, len(queues), _AT_ONCE):
                # What was given back since the renewal began must not be claimed again.
                part = [queue for queue in queues[first : first + _AT_ONCE] if queue in self._claimed]
                if part:
                    answer = await self._ask(address, RequestCode.LOCK_BATCH_MQ, part)
                    held += decode_locked_queues(answer.body)
        except RaptorMQError as error:
            log.info("group %s reads without claims at broker %s: %s", self._group, address, error)
            return [queue for queue in queues if queue not in self._refused]
        self._refused.difference_update(held)
        self._refused.update(self._claimed.intersection(queues).difference(held))
        self._held_late -= self._refused
        return held

    async def _release_at(self, address: str | None, queues: list[MessageQueue]) -> set[str]:
        if address is None:  # nobody knows the broker any more
            self._owed.difference_update(queues)
            return set()
        if self._instance.pool.open_connection(address) is None:
            return set()  # a consumer that stops has waited for that broker long enough; claims end by themselves
        try:
            for first in range(0, len(queues), _AT_ONCE):
                # What was claimed again meanwhile must not be given back.
                part = [queue for queue in queues[first : first + _AT_ONCE] if queue in self._owed]
                if part:
                    await self._ask(address, RequestCode.UNLOCK_BATCH_MQ, part)
                    self._owed.difference_update(part)
        except TransportError as error:
            log.info("group %s gives claims back later at broker %s: %s", self._group, address, error)
            return {queue.broker_name for queue in queues}
        except RaptorMQError as error:
            log.info("group %s did not give claims back at broker %s: %s", self._group, address, error)
            self._owed.difference_update(queues)
        return set()

    async def _ask(self, address: str, code: RequestCode, queues: list[MessageQueue]) -> RemotingCommand:
        body = QueueLockRequest(self._name, self._instance.client_id, queues).to_json()
        timeout = self._instance.config.request_timeout
        return require_success(await self._instance.pool.request(address, request(code, body=body), timeout), address)

    async def _renew(self, refused: Callable[[Collection[MessageQueue]], None]) -> None:
        while True:
            await set_within(self._wanted, _RENEWAL_S)
            self._wanted.clear()
            claimed, owed = self._by_master(self._claimed).items(), self._by_master(self._owed).items()
            await asyncio.gather(
                *(self._claim_at(address, queues) for address, queues in claimed if address is not None),
                *(self._release_at(*each) for each in owed),
            )
            if self._refused:
                refused(self._refused)
