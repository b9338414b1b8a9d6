"""Heartbeats: who a client is, told to every broker of its routes.

Each broker has a turn of its own: of many calls at the same time one speaks for all that came before it began, and one
that does not answer keeps no other from hearing.
Neighbours: `cluster.client_instance` says what they tell and when. Source: RocketMQ
`MQClientInstance.sendHeartbeatToAllBroker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from weakref import WeakValueDictionary

from raptormq.client.cluster.metadata import require_success
from raptormq.errors import RaptorMQError, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.timing import Backoff, set_within

log = get_logger(__name__)

_BACKOFF = Backoff(0.5, 30.0)
GRACE_S = 1.0
"""A broker that is there has answered by then; one that is gone can neither be pulled from nor ask anything."""


class _BrokerTurn:
    """Heartbeats to one broker, one after the other."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.started = 0
        self.accepted = False
        """Whether the broker took the last one that has begun."""


class Heartbeats:
    """Tells brokers who a client is.

    Args:
        pool: the connections.
        timeout: seconds that a broker has for its answer.
        interval: seconds between two heartbeats to all brokers.
        addresses: of all brokers that have to know, at the moment.
        describe: the client at the moment.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        timeout: float,
        interval: float,
        addresses: Callable[[], Collection[str]],
        describe: Callable[[], HeartbeatData],
    ) -> None:
        self._pool = pool
        self._timeout = timeout
        self._interval = interval
        self._addresses = addresses
        self._describe = describe
        self._wanted = asyncio.Event()
        self._by_broker: WeakValueDictionary[str, _BrokerTurn] = WeakValueDictionary()
        """By address, while somebody waits for it."""
        self._refusals: dict[str, str] = {}
        """By address, what is in the log of brokers that refuse."""

    def send_soon(self) -> None:
        """Tell all brokers in the background now instead of at the next turn."""
        self._wanted.set()

    async def run(self) -> None:
        """Tell all brokers again and again: soon, while one does not take it."""
        failures, pause = 0, self._interval
        while True:
            await set_within(self._wanted, pause)
            self._wanted.clear()
            if await self._send_all():
                failures, pause = 0, self._interval
            else:
                pause = min(_BACKOFF.pause(failures), self._interval)
                failures += 1

    async def send_all(self) -> None:
        """Tell all brokers now and wait for their answers, for those that are slow a second only: they are told in the
        background. Failures are logged.
        """
        try:
            async with asyncio.timeout(GRACE_S):
                await self._send_all()
        except TimeoutError:
            self.send_soon()

    async def _send_all(self) -> bool:
        return all(await asyncio.gather(*map(self.send, sorted(self._addresses()))))

    async def send(self, address: str) -> bool:
        """Tell one broker; false when it does not take that, which is logged."""
        turn = self._by_broker.setdefault(address, _BrokerTurn())
        started = turn.started
        async with turn.lock:
            if started == turn.started:
                turn.started, turn.accepted = started + 1, False
                turn.accepted = await self._send(address)
            return turn.accepted

    async def _send(self, address: str) -> bool:
        try:
            connection = await self._pool.connection(address)
            # Only now: who has left its group meanwhile did not tell this broker, and must not be said to be in it.
            if not (data := self._describe()).producer_groups and not data.consumers:
                return True
            command = request(RequestCode.HEART_BEAT, body=data.to_json())
            require_success(await connection.request(command, self._timeout), address)
        except ServerError as error:
            if self._refusals.get(address) != str(error):
                self._refusals[address] = str(error)
                log.warning("broker %s does not take this client, whose groups get nothing there: %s", address, error)
            return False
        except RaptorMQError as error:
            log.info("broker %s did not take the heartbeat: %s", address, error)
            return False
        self._refusals.pop(address, None)
        return True
