"""Sends heartbeats to every broker of the routes: which groups this client belongs to.

Heartbeats to one broker are sent one after the other. Concurrent calls share the next heartbeat, and an unresponsive
broker does not delay those to the others.
Neighbours: `cluster.client_instance` provides the data and triggers heartbeats. Source: RocketMQ
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
from raptormq.transport.timing import Backoff, wait_event

log = get_logger(__name__)

_BACKOFF = Backoff(0.5, 30.0)
GRACE_S = 1.0
"""A broker that is up has answered by then; one that is down can neither be pulled from nor ask anything."""


class _BrokerTurn:
    """The state of the heartbeats to one broker."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.started = 0
        self.accepted = False
        """Whether the broker has accepted the last heartbeat that was started."""


class Heartbeats:
    """Sends the heartbeats of a client.

    Args:
        pool: the connections.
        timeout: seconds that a broker has to answer.
        interval: seconds between two heartbeats to all brokers.
        addresses: returns the addresses of all brokers to send to.
        describe: returns the current data of the client.
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
        """By address, while a call waits for it."""
        self._refusals: dict[str, str] = {}
        """By address, the refusal that was logged last."""

    def send_soon(self) -> None:
        """Send to all brokers in the background now, instead of after the interval."""
        self._wanted.set()

    async def run(self) -> None:
        """Send to all brokers periodically, and sooner while one does not accept."""
        failures, pause = 0, self._interval
        while True:
            await wait_event(self._wanted, pause)
            self._wanted.clear()
            if await self._send_all():
                failures, pause = 0, self._interval
            else:
                pause = min(_BACKOFF.pause(failures), self._interval)
                failures += 1

    async def send_all(self) -> None:
        """Send to all brokers now and wait for their responses, a second at most: slow brokers get the heartbeat in the
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
        """Send to one broker; false when it does not accept the heartbeat, which is logged."""
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
            # Only after connecting: a group that was left meanwhile was not unregistered here and must not be sent.
            if not (data := self._describe()).producer_groups and not data.consumers:
                return True
            command = request(RequestCode.HEART_BEAT, body=data.to_json())
            require_success(await connection.request(command, self._timeout), address)
        except ServerError as error:
            if self._refusals.get(address) != str(error):
                self._refusals[address] = str(error)
                log.warning(
                    "broker %s refuses the heartbeat of this client, whose groups receive nothing there: %s",
                    address,
                    error,
                )
            return False
        except RaptorMQError as error:
            log.info("broker %s did not accept the heartbeat: %s", address, error)
            return False
        self._refusals.pop(address, None)
        return True
