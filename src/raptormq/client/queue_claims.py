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
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from raptormq.client.answers import require_success
from raptormq.client.background import background, cancel_all
from raptormq.client.instance import ClientInstance
from raptormq.errors import RaptorMQError, TransportError
from raptormq.protocol.bodies.queues import QueueLockRequest, decode_locked_queues
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import retry_topic
from raptormq.transport.event_wait import set_within

log = logging.getLogger(__name__)

_RENEWAL_S = 20.0
_SILENCE_S = 10.0
"""A broker that was asked in vain is not asked so long, unless a connection is made: every look would wait for it."""
_PATIENCE_S = 1.0
"""A look at which queues are to be read waits no longer for any broker."""
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
        self._silent_until: dict[str, float] = {}
        """By address, in the time of the loop."""
        self._late: dict[asyncio.Task[list[MessageQueue]], str] = {}
        """What is waited for in the background, with the address."""
        self._wanted = asyncio.Event()
        self._renewals: asyncio.Task[None] | None = None

    def start(self, refused: Callable[[Collection[MessageQueue]], None]) -> None:
        """Keep claims alive; `refused` gets those that another member has."""
        self._renewals = background(self._renew(refused), f"claims of {self._group}")

    def renew_soon(self) -> None:
        """Claim everything again now: there is a connection."""
        self._silent_until.clear()
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
        held = await asyncio.gather(*(self._claim_soon(*each) for each in self._by_master(queues).items()))
        return set[MessageQueue]().union(*held)

    async def release(self, queues: Collection[MessageQueue]) -> set[str]:
        """Give claims back, those too that were asked for and not got.

        Returns the names of the brokers that did not answer.
        """
        self._claimed -= set(queues)
        self._refused -= set(queues)
        unreached = await asyncio.gather(*(self._release_at(*each) for each in self._by_master(queues).items()))
        return set[str]().union(*unreached)

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
        if asyncio.get_running_loop().time() < self._silent_until.get(address, 0.0):
            return self._not_refused(queues)
        if address in self._late.values():
            return []
        claiming = asyncio.create_task(self._claim_at(address, queues))
        try:
            await asyncio.wait([claiming], timeout=_PATIENCE_S)
        except asyncio.CancelledError:
            claiming.cancel()
            raise
        if claiming.done():
            return claiming.result()
        self._late[claiming] = address
        claiming.add_done_callback(self._late.pop)
        return []

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
            if isinstance(error, TransportError):
                self._silent_until[address] = asyncio.get_running_loop().time() + _SILENCE_S
            return self._not_refused(queues)
        self._silent_until.pop(address, None)
        self._refused.difference_update(held)
        self._refused.update(self._claimed.intersection(queues).difference(held))
        return held

    def _not_refused(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [queue for queue in queues if queue not in self._refused]

    async def _release_at(self, address: str | None, queues: list[MessageQueue]) -> set[str]:
        if address is None or self._instance.pool.open_connection(address) is None:
            return set()  # a consumer that stops has waited for that broker long enough; claims end by themselves
        try:
            for first in range(0, len(queues), _AT_ONCE):
                await self._ask(address, RequestCode.UNLOCK_BATCH_MQ, queues[first : first + _AT_ONCE])
        except RaptorMQError as error:
            log.info("group %s did not give claims back at broker %s: %s", self._group, address, error)
            return {queue.broker_name for queue in queues} if isinstance(error, TransportError) else set()
        return set()

    async def _ask(self, address: str, code: RequestCode, queues: list[MessageQueue]) -> RemotingCommand:
        body = QueueLockRequest(self._name, self._instance.client_id, queues).to_json()
        timeout = self._instance.config.request_timeout
        return require_success(await self._instance.pool.request(address, request(code, body=body), timeout), address)

    async def _renew(self, refused: Callable[[Collection[MessageQueue]], None]) -> None:
        while True:
            await set_within(self._wanted, _RENEWAL_S)
            self._wanted.clear()
            masters = self._by_master(self._claimed).items()
            await asyncio.gather(
                *(self._claim_at(address, queues) for address, queues in masters if address is not None)
            )
            if self._refused:
                refused(self._refused)
