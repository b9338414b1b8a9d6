"""Waits for unreachable brokers. All sends that wait for the same broker share one probe.

After the failure of a broker, a hundred thousand sends may wait for it. If each of them repeated its attempt, the
attempts would take more time than the timeouts of the sends permit. Instead, one task per topic and broker refreshes
the route and opens the connection, with a backoff, and wakes the sends when an attempt may succeed::

    wait -- a broker is connected ------> its name
        |-- the route has changed ------> None
        `-- deadline -------------------> TimeoutError

See also: `producer.sender` waits, `transport.shared_task` wakes many callers without blocking the event loop. Source:
"wait for ready" of gRPC; the producer of Kafka keeps its batches until the connection to their broker is ready.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from raptormq.client.cluster.routes import RouteTable
from raptormq.client.cluster.topic_route import TopicQueues
from raptormq.errors import ClientClosed, RaptorMQError
from raptormq.logs import get_logger
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.shared_task import SharedTask
from raptormq.transport.timing import Backoff

log = get_logger(__name__)

_BACKOFF = Backoff(0.05, 0.5)
_STEP_S = 0.5
"""How many seconds a probe waits for a name server, and then for a connection. Slower responses and connections are
used by the next probe.
"""


class Reconnector:
    """Waits for the unreachable brokers of one client."""

    def __init__(self, pool: ConnectionPool, routes: RouteTable) -> None:
        self._pool = pool
        self._routes = routes
        self._waits: dict[tuple[str, str | None], SharedTask[str | None]] = {}
        self._is_closed = False

    async def wait(
        self, topic: str, failed: TopicQueues | None, broker_name: str | None, deadline: float
    ) -> str | None:
        """Wait until a broker can be reached. Return its name, or None if the caller must look at the route again.

        Args:
            topic: the topic.
            failed: the route by which no broker was reached. If another route is cached by now, the call returns None
                at once. None stands for the cached route.
            broker_name: the broker to wait for; None waits for any broker with writable queues of the topic.
            deadline: a loop time in seconds, with a resolution of about 0.1 s.

        Raises:
            TimeoutError: the deadline has passed.
        """
        cached = self._routes.cached(topic)
        if self._is_closed or cached is None or (failed is not None and failed != cached):
            return None  # the next attempt reports a closed client
        key = topic, broker_name
        shared = self._waits.get(key)
        if shared is None:
            work = self._probe_until_reached(cached, broker_name)
            shared = self._waits[key] = SharedTask(work, f"connection to a broker of {topic}", "the client is closed")
            shared.task.add_done_callback(lambda _: self._waits.pop(key))
        try:
            return await shared.wait(deadline)
        except ClientClosed:
            return None  # the next attempt reports it

    def close(self) -> None:
        """End all waits, also those that begin later."""
        self._is_closed = True
        for shared in self._waits.values():
            shared.task.cancel()

    async def _probe_until_reached(self, failed: TopicQueues, broker_name: str | None) -> str | None:
        topic, probes = failed.topic, 0
        shared = self._waits[topic, broker_name]
        while shared.is_awaited:
            await asyncio.sleep(_BACKOFF.pause(probes))
            probes += 1
            try:
                await self._routes.refresh(topic, self._next_step())
            except (RaptorMQError, TimeoutError) as error:
                log.info("the cached route of topic %s is used for sending: %s", topic, error)
            if self._routes.cached(topic) != failed:
                return None
            names = failed.writable_brokers if broker_name is None else {broker_name}
            addresses = {name: address for name in names if (address := failed.master(name)) is not None}
            if failed.write_queues and (reached := await self._connect_any(addresses)) is not None:
                return reached
        return None

    async def _connect_any(self, addresses: dict[str, str]) -> str | None:
        """Return the name of the first broker that is connected; None if there is none within a step."""
        until = self._next_step()

        async def connect(name: str, address: str) -> str | None:
            with suppress(RaptorMQError, TimeoutError):
                await self._pool.connection(address, until)
                return name
            return None

        attempts = [asyncio.create_task(connect(name, address)) for name, address in addresses.items()]
        try:
            for attempt in asyncio.as_completed(attempts):
                if (name := await attempt) is not None:
                    return name
        finally:
            for pending in attempts:
                pending.cancel()
        return None

    def _next_step(self) -> float:
        return asyncio.get_running_loop().time() + _STEP_S
