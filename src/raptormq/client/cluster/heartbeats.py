"""Sends heartbeats, which announce the groups of this client, to every broker of the routes.

Heartbeats to a broker are sent sequentially. Concurrent calls share the next heartbeat. An unresponsive broker does not
delay heartbeats to the others. See also: `cluster.client_instance` provides the data and triggers heartbeats. Source:
RocketMQ `MQClientInstance.sendHeartbeatToAllBroker`.
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
"""Time to wait for responses. A broker that does not respond by then can be ignored, because it cannot serve pulls
either."""


class _BrokerTurn:
    """The state of the heartbeats to one broker."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.started = 0
        self.accepted = False
        """True if the broker has accepted the last started heartbeat."""


class Heartbeats:
    """Sends the heartbeats of a client.

    Args:
        pool: the connections.
        timeout: timeout of a heartbeat in seconds.
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
        """State of running heartbeats, by address."""
        self._refusals: dict[str, str] = {}
        """Last logged rejection, by address."""

    def send_soon(self) -> None:
        """Send to all brokers now, in the background."""
        self._wanted.set()

    async def run(self) -> None:
        """Send to all brokers periodically, and sooner while a broker does not accept the heartbeat."""
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
        """Send to all brokers now and wait up to one second for their responses. Slow requests continue in the
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
        """Send to one broker. Return False if it does not accept the heartbeat; this is logged."""
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
            # Create the data only after connecting, because it must not contain a group that was left in the meantime.
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
