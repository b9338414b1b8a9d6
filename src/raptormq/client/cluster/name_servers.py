"""Requests to the name servers, with failover to the next one.

Name servers do not communicate with each other. They have the same brokers, except for a name server that has just
started or that some brokers cannot reach; `cluster.metadata` therefore queries all of them. A client continues to use
the name server that responded last. See also: `cluster.metadata`, `admin.client`. Source: RocketMQ
`NettyRemotingClient.getAndCreateNameserverChannel`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from raptormq.errors import TransportError
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.pool import ConnectionPool

_OTHERS_TIMEOUT_S = 0.5
"""Timeout in seconds of the requests to the name servers other than the current one."""
_SKIP_UNRESPONSIVE_S = 10.0
"""Seconds for which an unresponsive name server is skipped."""


class NameServers:
    """The name servers of one cluster.

    Args:
        pool: the connections; the caller closes them.
        addresses: `host:port` of each name server, at least one.
        timeout: seconds for a request over all attempts, unless the call has its own.
    """

    def __init__(self, pool: ConnectionPool, addresses: Sequence[str], timeout: float) -> None:
        self._pool = pool
        self._addresses = tuple(addresses)
        self._timeout = timeout
        self._current = 0
        self._skipped_until: dict[str, float] = {}

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, in the given order."""
        return self._addresses

    async def request(self, command: RemotingCommand, timeout: float | None = None) -> RemotingCommand:
        """Return the response of the first responding name server, with any response code.

        Each name server gets an equal share of the remaining time, so that an unresponsive one leaves time for the
        others.

        Raises:
            TransportError: no name server responded; the error is that of the last attempt.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + (timeout or self._timeout)
        count = len(self._addresses)
        first = self._current
        for attempt in range(count):
            index = (first + attempt) % count
            share = (deadline - clock()) / (count - attempt)
            try:
                response = await self._pool.request(self._addresses[index], command, max(share, 0.001))
            except TransportError:
                if attempt == count - 1:
                    raise
            else:
                self._current = index
                return response
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def ask_all(
        self, command: Callable[[], RemotingCommand], *, full_timeout: bool = False
    ) -> dict[str, RemotingCommand]:
        """Query all name servers concurrently. Return the responses by address: first that of `request`, then those of
        the others that respond within 0.5 s.

        `command()` returns a new request for each name server. `full_timeout` is for callers that need the data of all
        name servers: the others have the full timeout, and name servers that are currently skipped are queried, too.

        Raises:
            TransportError: no name server responded; the error is that of the last attempt.
        """

        async def first() -> tuple[str, RemotingCommand | None]:
            response = await self.request(command())
            return self._addresses[self._current], response

        others = [address for index, address in enumerate(self._addresses) if index != self._current]
        responses: dict[str, RemotingCommand] = {}
        for address, response in await asyncio.gather(
            first(), *(self._ask_other(each, command, full_timeout=full_timeout) for each in others)
        ):
            if response is not None:
                responses.setdefault(
                    address, response
                )  # the name server to which `request` has switched was queried twice
        return responses

    async def _ask_other(
        self, address: str, command: Callable[[], RemotingCommand], *, full_timeout: bool
    ) -> tuple[str, RemotingCommand | None]:
        clock = asyncio.get_running_loop().time
        if not full_timeout and clock() < self._skipped_until.get(address, 0.0):
            return address, None
        try:
            return address, await self._pool.request(
                address, command(), self._timeout if full_timeout else _OTHERS_TIMEOUT_S
            )
        except TransportError:
            # Otherwise a refresh of many topics would wait for this name server, or resolve its name, once per topic.
            self._skipped_until[address] = clock() + _SKIP_UNRESPONSIVE_S
            return address, None
