"""Prevents a master from appending to a log that lacks messages of another copy.

The disk of a master may be lost, or replaced by an older copy. After a power failure with ASYNC_FLUSH its log may end
before those of its slaves. After the promotion of a slave, the old master may be started as a master again. In all
these cases another broker of the same name has acknowledged messages that this broker lacks. If the master continued,
it would assign the same offsets to other messages: its slaves could not follow, the offsets of consumers would be
reset, and the new messages could never be merged. Apache RocketMQ has no protection against this.

Before a master registers, it therefore requests the other brokers of its name from a name server, and the ends of their
logs from these brokers. While one of them has a longer log, or is a serving master, this master neither registers nor
serves clients, and repeats the check. A master with an empty store also waits for slaves that do not respond, because
each of them may have messages.

This check does not find a slave that is down or not registered when the master starts. Therefore the master repeats the
check while it serves. If a broker of its name has a longer log, the master unregisters and refuses the requests of
clients from then on. The messages that it has accepted stay in its store, and no further ones are added.

A master may also go on after its slave was promoted, because it was only frozen or cut off. Then both serve, each with
the name server's last registration, and the longer log proves nothing. The broker with the later promotion has the
history that continues: the other one stops serving when a name server lists the promoted broker, which reports its
promotion (``haPromotedAt``). It may have displaced the promoted broker from the list, so that none is listed when it
has unregistered. Therefore it does not serve again before its next start, and the promoted one registers again when it
is not listed.

A slave never has more than its master, because the end of its log is requested first and the log of the master only
grows. The check differs for a promoted master, because the promotion has discarded the messages of the old master after
the offset of the promotion (:mod:`~raptormq.broker.ha.promotion_record`). A longer log counts only if it has the same
record at this offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from raptormq.broker.ha.master_client import MasterClient
from raptormq.broker.ha.promotion_record import PromotionRecord
from raptormq.broker.requests import codes_with
from raptormq.broker.service import cancel_and_wait
from raptormq.errors import NotLeader, RaptorMQError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.command import RemotingCommand
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Answer, Taken, failure
from raptormq.transport.timing import wait_event

logger = get_logger(__name__)

RECHECK_S = 3.0
"""Interval in seconds of checks of a master that does not serve, and minimum interval while the master serves."""
WATCH_S = 10.0
"""Interval in seconds of checks of a master that serves. The master also checks when a slave with a longer log
connects.
"""
_REFUSED = codes_with(lambda request: request.answered_by.is_withheld)
"""Requests that a master which does not serve refuses. Clients with an earlier route still send them to it."""


class HistoryGuard:
    """Decides whether a master may serve."""

    def __init__(
        self,
        members: Callable[[], Awaitable[Mapping[int, str] | None]],
        client: MasterClient,
        store: MessageStore,
        promotion: PromotionRecord,
        broker_name: str,
        own_address: str,
        register: Callable[[], None],
    ) -> None:
        """Create the guard.

        Args:
            members: returns broker id -> address of the brokers of this name that a name server lists; None if no name
                server responds.
            client: sends requests to them; closed with this guard.
            store: the store of this broker.
            promotion: the record of the promotion of this broker.
            broker_name: name of this broker.
            own_address: address of this broker for clients.
            register: registers this master again, which serves and is not listed.
        """
        self._members = members
        self._client = client
        self._store = store
        self._promotion = promotion
        self._broker_name = broker_name
        self._own_address = own_address
        self._register = register
        self._began_empty = not store.end_offset
        self._has_served = False
        self._is_serving = False
        self._is_superseded = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.reason = ""
        """Reason why this master does not serve; empty while it does."""

    @property
    def promoted_at(self) -> int:
        """End of the log of this master at its promotion; 0 if it was never promoted."""
        return self._promotion.offset

    async def check(self) -> None:
        """Check the other brokers of this name, and set :attr:`reason` to the result. Without a name server the
        previous result remains, and so does the one that another broker was promoted since this master served.
        """
        if self._is_superseded:
            return
        if self._promotion.is_slave:
            await self._promotion.promoted(self._store.end_offset)
        if (members := await self._members()) is None:
            return
        for broker_id, address in sorted(members.items()):
            if address != self._own_address and (found := await self._ask(broker_id, address)):
                promote = "" if broker_id == MASTER_ID else "promote that broker, "
                self.reason = (
                    f"{found}: stop this master, {promote}and start this one as its slave; or, to give up the messages"
                    " that this one lacks, start it with haMasterMayStartBehind=true"
                )
                return
        self.reason = ""
        if self._is_serving and self._own_address not in members.values():
            self._register()

    async def _ask(self, broker_id: int, address: str) -> str:
        """Return why the broker at ``address`` prevents this master from serving; empty if it does not."""
        name = f"the slave at {address}" if broker_id != MASTER_ID else f"another master at {address}"
        must_know = self._began_empty and not self._has_served
        self._client.found(address, "")
        try:
            if broker_id == MASTER_ID and await self._client.broker_name() == self._broker_name:
                if not self._has_served:
                    return f"{name} serves under the name of this one"
                if (offset := await self._client.promoted_at()) > self._promotion.offset:
                    self._is_superseded = True
                    return f"{name} was promoted at offset {offset} of the log"
            end = (await self._client.log_bounds())[1]
            own = self._store.end_offset
            if end <= own or await self._is_given_up():
                return ""
        except TransportError as error:
            # Name servers remove a stopped broker. A stopped master in the list is an earlier address of this broker.
            is_awaited = must_know and broker_id != MASTER_ID
            return f"{name}, which may have messages, does not respond ({error})" if is_awaited else ""
        except RaptorMQError as error:
            return f"{name} does not say whether it has messages ({error})" if must_know else ""
        return f"the log of {name} ends at {end}, beyond that of this master, which ends at {own}"

    async def _is_given_up(self) -> bool:
        """Return whether the log of the last checked broker is the discarded log of the old master: it lacks the first
        record that this broker has accepted since its promotion.
        """
        if not self._promotion.offset:
            return False
        begin, size = max(self._promotion.offset, self._store.start_offset), self._store.config.segment_size
        for offset in (begin, begin - begin % size + size):
            record = await self._store.message_at(offset, whole=True, include_deleted=True)
            if record is not None:  # otherwise the rest of the segment has no record
                return not await self._client.has_record(offset, bytes(record))
        return True

    def begin(self, serve: Callable[[], None], withdraw: Callable[[], Awaitable[None]]) -> None:
        """Begin periodic checks. Call ``serve`` when this master may serve, which is now if the last check has passed.
        Call ``withdraw`` when the master must stop serving.
        """
        if self.reason:
            logger.error("not serving: %s", self.reason)
        else:
            serve()
            self._is_serving = True
        self._begin_checks(serve, withdraw)

    def watch(self, serve: Callable[[], None], withdraw: Callable[[], Awaitable[None]]) -> None:
        """Begin periodic checks of a broker that was promoted and serves. The callbacks are those of :meth:`begin`."""
        self._is_serving = True
        self._begin_checks(serve, withdraw)

    def _begin_checks(self, serve: Callable[[], None], withdraw: Callable[[], Awaitable[None]]) -> None:
        self._has_served = self._is_serving
        self._task = asyncio.get_running_loop().create_task(self._run(serve, withdraw))

    def check_soon(self) -> None:
        """Check again soon, because a slave that this master has refused may have a longer log."""
        self._wake.set()

    async def _run(self, serve: Callable[[], None], withdraw: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            if self._is_serving:
                await wait_event(self._wake, WATCH_S - RECHECK_S)
            self._wake.clear()
            before = self.reason
            await self.check()
            if self.reason and self.reason != before:
                logger.error("not serving: %s", self.reason)
            if self.reason and self._is_serving:
                self._is_serving = False
                await withdraw()
            elif not self.reason and not self._is_serving:
                logger.warning("serving: no other broker of this name has messages that this one lacks")
                self._has_served = self._is_serving = True
                serve()

    async def stop(self) -> None:
        """Stop the checks."""
        if self._task is not None:
            await cancel_and_wait(self._task)
        await self._client.close()

    def refusal(self, _connection: Connection, request: RemotingCommand) -> Answer | Taken:
        """Refuse the requests of clients while this master does not serve (a guard of the router)."""
        if self.reason and request.code in _REFUSED:
            return failure(request, NotLeader(self.reason))
        return None
