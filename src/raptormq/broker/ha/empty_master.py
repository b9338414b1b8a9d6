"""Keeps a master with an empty store from beginning a second history while another copy has the log.

When the disk of a master is lost, its slaves still have the messages. A master that began with an empty store would
assign the offsets of the log and of the queues again. Its slaves could not follow it, consumers would be sent back to
offset 0, and what it accepts could never be merged. Apache RocketMQ has no protection against this.

Such a master therefore asks a name server for the other brokers of its name, and these where their logs end, before it
registers. While one of them has messages, or a slave does not respond, the master neither registers nor serves clients,
and asks again.

A slave that was down, or not registered yet, at the start of the master is not found then. The master therefore goes on
asking while it serves, until it stops. If a broker of its name has a longer log, the master refuses the requests of
clients from then on. What it has accepted until then stays in its store, and nothing is added to it.
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
        members: Callable[[], Awaitable[Mapping[int, str] | None]],
        log_end: Callable[[str], Awaitable[int]],
        own_end: Callable[[], int],
        own_address: str,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        """Create the guard.

        Args:
            members: returns broker id -> address of the brokers of this name that a name server has; None if no name
                server responds.
            log_end: returns where the log of the broker at an address ends. Raises RaptorMQError without an answer.
            own_end: returns where the log of this broker ends.
            own_address: address of this broker for clients.
            close: closes the connections of ``log_end``.
        """
        self._members = members
        self._log_end = log_end
        self._own_end = own_end
        self._has_served = False
        self._own_address = own_address
        self._close = close
        self._task: asyncio.Task[None] | None = None
        self.reason = ""
        """Why this master does not serve; empty while it does."""

    async def check(self) -> bool:
        """Ask the other brokers of this name, and return whether this master may serve. Without a name server the
        previous answer stands.
        """
        if (members := await self._members()) is None:
            return not self.reason
        for broker_id, address in sorted(members.items()):
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
            is_awaited = broker_id != MASTER_ID and not self._has_served
            return f"{name}, which may have messages, does not respond ({error})" if is_awaited else ""
        except RaptorMQError as error:
            return "" if self._has_served else f"{name} does not say whether it has messages ({error})"
        own = self._own_end()
        if end <= own:  # a slave that follows this master is never ahead of it
            return ""
        since = f", beyond the {own} bytes that this one has accepted since its start" if own else ""
        return f"the log of {name} ends at {end}{since}"

    def begin(self, serve: Callable[[], None]) -> None:
        """Call ``serve`` when this master may serve, which is now if the last check has passed, and go on asking."""
        if self.reason:
            logger.error("not serving: %s", self.reason)
        else:
            self._has_served = True
            serve()
        self._task = asyncio.get_running_loop().create_task(self._run(serve))

    async def _run(self, serve: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            before = self.reason
            may_serve = await self.check()
            if self.reason and self.reason != before:
                logger.error("not serving: %s", self.reason)
            elif before and may_serve:
                logger.warning("serving: no other broker of this name has messages that this one lacks")
            if may_serve and not self._has_served:
                self._has_served = True
                serve()

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
