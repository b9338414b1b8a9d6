"""Requests to "the" name server: any of several, the next one when one does not answer.

Name servers do not talk to each other and know the same, but for one that was started just now, or that some of the
brokers cannot reach: `cluster.metadata` asks all of them. A client stays with the one that answered last.
Neighbours: `cluster.metadata`, `admin.client`. Source: RocketMQ `NettyRemotingClient.getAndCreateNameserverChannel`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from raptormq.errors import TransportError
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.pool import ConnectionPool

_OTHERS_TIMEOUT_S = 0.5
"""For the answers of others: nothing may be wrong at all."""
_SKIP_UNRESPONSIVE_S = 10.0
"""So long is another one that did not answer not asked again."""


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
        self._skipped_until: dict[str, float] = {}

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
        """Ask all at the same time, and return the answers by address: the first is what `request` returns, then come
        those of the others, as far as they answer within 0.5 s.

        `command()` returns the request, a new one for each. Asked `patiently` they have as long as `request` has, also
        those that did not answer lately: for who must not miss what one of them alone knows.

        Raises:
            TransportError: none answered; the text is that of the last attempt.
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
                responses.setdefault(address, response)  # the one that `request` has moved on to was asked twice
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
            # Whoever asks for a thousand topics would wait for a frozen one, or look up a name that is gone, as often.
            self._skipped_until[address] = clock() + _SKIP_UNRESPONSIVE_S
            return address, None
