"""Keeps a master with an empty store from beginning a second history while another copy has the log.

When the disk of a master is lost, its slaves still have the messages. A master that began with an empty store would
assign the offsets of the log and of the queues again. Its slaves could not follow it, consumers would be sent back to
offset 0, and what it accepts could never be merged. Apache RocketMQ has no protection against this.

Such a master therefore asks a name server for the other brokers of its name, and these where their logs end, before it
registers. While one of them has messages, or a slave does not respond, the master neither registers nor serves clients,
and asks again. The check is not complete: slaves that are not registered at the start of the master are not found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from raptormq.broker.replication import LEADER_ONLY, MASTER_ID, OFFSET_QUERIES
from raptormq.broker.service import cancel_and_wait
from raptormq.errors import NotLeader, RaptorMQError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.router import Answer, Taken, failure

logger = get_logger(__name__)

RECHECK_S = 3.0
_REFUSED = LEADER_ONLY | OFFSET_QUERIES | {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
"""Requests of clients that know the address of this master from before."""


class EmptyMasterGuard:
    """Decides whether a master with an empty store may serve."""

    def __init__(
        self,
        members: Callable[[], Awaitable[Mapping[int, str]]],
        log_end: Callable[[str], Awaitable[int]],
        own_address: str,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        """Create the guard.

        Args:
            members: returns broker id -> address of the brokers of this name that a name server has.
            log_end: returns where the log of the broker at an address ends. Raises RaptorMQError without an answer.
            own_address: address of this broker for clients.
            close: closes the connections of ``log_end``.
        """
        self._members = members
        self._log_end = log_end
        self._own_address = own_address
        self._close = close
        self._task: asyncio.Task[None] | None = None
        self.reason = ""
        """Why this master does not serve; empty while it does."""

    async def check(self) -> bool:
        """Ask the other brokers of this name, and return whether this master may serve."""
        for broker_id, address in sorted((await self._members()).items()):
            if address != self._own_address and (found := await self._ask(broker_id, address)):
                self.reason = (
                    f"this master has an empty store, and {found}: promote that broker and start this one as its slave,"
                    " or, to give up its messages, start this one with haMasterMayStartEmpty=true"
                )
                return False
        self.reason = ""
        return True

    async def _ask(self, broker_id: int, address: str) -> str:
        """Return why the broker at ``address`` is in the way; empty if it is not."""
        name = f"the slave at {address}" if broker_id != MASTER_ID else f"another master at {address}"
        try:
            end = await self._log_end(address)
        except TransportError as error:
            # The name server forgets a broker that is gone. A master that is gone was this one at another address.
            return f"{name}, which may have messages, does not respond ({error})" if broker_id != MASTER_ID else ""
        except RaptorMQError as error:
            return f"{name} does not say whether it has messages ({error})"
        return f"the log of {name} ends at {end}" if end else ""

    def begin(self, serve: Callable[[], None]) -> None:
        """Ask again and again, and call ``serve`` when this master may serve."""
        logger.error("not serving: %s", self.reason)
        self._task = asyncio.get_running_loop().create_task(self._run(serve))

    async def _run(self, serve: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            before = self.reason
            if await self.check():
                logger.warning("serving with an empty store: no other broker of this name has messages")
                serve()
                return
            if self.reason != before:
                logger.error("not serving: %s", self.reason)

    async def stop(self) -> None:
        """Stop asking."""
        if self._task is not None:
            await cancel_and_wait(self._task)
        await self._close()

    def refusal(self, _connection: Connection, request: RemotingCommand) -> Answer | Taken:
        """Refuse the requests of clients while this master does not serve (a guard of the router)."""
        if self.reason and request.code in _REFUSED:
            return failure(request, NotLeader(self.reason))
        return None
