"""Requests to "the" name server: any of several, the next one when one does not answer.

Name servers do not talk to each other and know the same, but for one that was started just now, or that some of the
brokers cannot reach: what one of them lacks the others are asked for. A client stays with the one that answered last.
Neighbours: `routes`, `admin`. Source: RocketMQ `NettyRemotingClient.getAndCreateNameserverChannel`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from raptormq.errors import TransportError
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.pool import ConnectionPool

_OPINION_S = 0.5
"""For each of the others once one has said that it lacks something: nothing may be wrong at all."""


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

    async def request(
        self,
        command: RemotingCommand,
        timeout: float | None = None,
        *,
        lacks: Callable[[RemotingCommand], bool] = lambda _answer: False,
    ) -> RemotingCommand:
        """Return the answer, whatever its code, of the first name server that answers; one that `lacks` something only
        when those of the others do, too.

        A silent one is given up after its share of the time, so that the others still have theirs.

        Raises:
            TransportError: none answered; the text is that of the last attempt.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + (timeout or self._timeout)
        count, first = len(self._addresses), self._current
        poor: RemotingCommand | None = None
        for attempt in range(count):
            index = (first + attempt) % count
            share = max((deadline - clock()) / (count - attempt), 0.001)
            try:
                answer = await self._pool.request(
                    self._addresses[index], command, share if poor is None else min(share, _OPINION_S)
                )
            except TransportError:
                if attempt == count - 1 and poor is None:
                    raise
                continue
            if not lacks(answer):
                self._current = index
                return answer
            if poor is None:
                self._current, poor = index, answer
        assert poor is not None
        return poor
