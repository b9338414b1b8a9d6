"""Requests to "the" name server: any of several, the next one when one does not answer.

Name servers do not talk to each other and know the same; a client stays with the one that answered last.
Neighbours: `routes`, `admin`. Source: RocketMQ `NettyRemotingClient.getAndCreateNameserverChannel`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from raptormq.errors import TransportError
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.pool import ConnectionPool


class NameServers:
    """The name servers of one installation.

    Args:
        pool: where connections come from; it stays the caller's.
        addresses: `host:port` of each, at least one.
        timeout: seconds for a request over all attempts when the call names none.
    """

    def __init__(self, pool: ConnectionPool, addresses: Sequence[str], timeout: float) -> None:
        self._pool = pool
        self._addresses = tuple(addresses)
        self._timeout = timeout
        self._current = 0

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of them, in the order given."""
        return self._addresses

    async def request(self, command: RemotingCommand, timeout: float | None = None) -> RemotingCommand:
        """Return the answer, whatever its code, of the first name server that answers.

        A silent one is given up after its share of the time, so that the others still have theirs.

        Raises:
            TransportError: none answered; the text is that of the last attempt.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + (timeout or self._timeout)
        count = len(self._addresses)
        first = self._current
        for attempt in range(count):
            index = (first + attempt) % count
            share = (deadline - clock()) / (count - attempt)
            try:
                answer = await self._pool.request(self._addresses[index], command, max(share, 0.001))
            except TransportError:
                if attempt == count - 1:
                    raise
            else:
                self._current = index
                return answer
        raise AssertionError("unreachable: the last attempt returns or raises")
