"""Forwards sends to the next leader after a planned transfer of leadership.

Clients refresh their routes periodically, the Java client every 30 s. Without forwarding, a client that knows only one
broker could not send for that long after a planned transfer. During the transfer this member holds sends for at most
:data:`HOLD_S`. When the next leader accepts messages, the held sends and those of the next :data:`FORWARD_S` are
forwarded unchanged, including their signatures. If the transfer is aborted, this member handles the held sends itself.
Responses have the message ids of the next leader.

If the connection to the next leader is lost, forwarded sends without a response are refused with NotLeader. They may
have been stored. The client retries them, as it does after every send without a response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from raptormq.broker.requests import codes_with
from raptormq.errors import NotLeader, RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.replication import ReplicationState
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import answer, failure
from raptormq.transport.tls import ClientTls

logger = get_logger(__name__)

FORWARD_S = 60.0
"""Time in seconds for which requests are forwarded to the next leader. Clients refresh their routes in this time."""
HOLD_S = 2.0
"""Maximum time in seconds for which requests are held until the next leader accepts messages."""
MAX_HELD_BYTES = 32 << 20
"""Maximum total size of the requests that are held or not yet answered by the next leader. Further ones are refused."""
_POLL_S = 0.005
_PROBE_S = 0.5
_ANSWER_S = 5.0
_OVERHEAD_BYTES = 1_000

_FORWARDED = codes_with(lambda request: request.is_forwarded)


class LeaderView(Protocol):
    """The state of this member that forwarding depends on."""

    @property
    def takes_messages(self) -> bool:
        """Whether this member leads and accepts messages now."""

    @property
    def leader(self) -> str:
        """Id of the leader, empty if none is known."""

    def not_leader(self) -> NotLeader:
        """Return the error for a request that only a leader handles."""


Describe = Callable[[str, str, float], Awaitable[ReplicationState]]
Handle = Callable[[Connection, list[RemotingCommand]], None]


class Forwarding:
    """Holds and forwards the requests that arrive during and after a transfer of leadership."""

    def __init__(self, member: LeaderView, describe: Describe, handle: Handle, tls: ClientTls | None) -> None:
        """Create the forwarding.

        Args:
            member: this member.
            describe: requests the status of another member.
            handle: handles requests on this member.
            tls: TLS settings of the connection to the next leader.

        Raises:
            ConfigError: a file of ``tls`` cannot be used.
        """
        self._member = member
        self._describe = describe
        self._handle = handle
        self._pool = ConnectionPool(None, None, _PROBE_S, tls)  # without credentials: requests keep their signatures
        self._held: list[tuple[Connection, RemotingCommand]] = []
        self._held_bytes = 0
        self._target = ""
        self._address = ""
        self._until = 0.0
        self._search: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def is_active(self) -> bool:
        """Whether requests are held for the next leader or forwarded to it."""
        return self._search is not None or self._is_forwarding()

    async def wait_answered(self) -> None:
        """Wait until the forwarded requests are answered or have failed."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=_ANSWER_S)

    def begin(self) -> None:
        """Begin to hold requests, because a transfer of leadership has begun."""
        self._target = self._address = ""
        if self._search is None:
            self._search = asyncio.get_running_loop().create_task(self._find_leader())

    def accept(self, connection: Connection, request: RemotingCommand) -> bool:
        """Hold or forward ``request`` and return True. Return False if the caller must handle it."""
        if request.code not in _FORWARDED or not self.is_active:
            return False
        size = len(request.body) + _OVERHEAD_BYTES
        if self._held_bytes + size > MAX_HELD_BYTES:
            return False
        self._held_bytes += size
        if self._search is not None:
            self._held.append((connection, request))
        else:
            self._send(connection, request)
        return True

    def _is_forwarding(self) -> bool:
        """Return whether requests are forwarded now. Forwarding ends early if the next leader has lost leadership."""
        if not self._target:
            return False
        if self._member.leader != self._target or asyncio.get_running_loop().time() >= self._until:
            self._target = ""
        return bool(self._target)

    async def _find_leader(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HOLD_S
        try:
            while loop.time() < deadline and not self._member.takes_messages:
                if await self._probe_leader():
                    logger.info("sends are forwarded to member %s for %g s", self._target, FORWARD_S)
                    self._until = loop.time() + FORWARD_S
                    break
                await asyncio.sleep(_POLL_S)
        finally:
            self._search = None
            self._release()

    async def _probe_leader(self) -> bool:
        leader = self._member.leader
        if not leader:
            return False
        with suppress(RaptorMQError, TimeoutError):
            state = await self._describe(leader, "", _PROBE_S)
            if state.role == "leader" and state.address and state.member == leader:
                await self._pool.connection(state.address, asyncio.get_running_loop().time() + _PROBE_S)
                self._target, self._address = leader, state.address
                return True
        return False

    def _release(self) -> None:
        """Forward, handle or refuse the held requests in their order."""
        held, self._held = self._held, []
        is_forwarding = self._is_forwarding()
        for connection, request in held:
            if is_forwarding:
                self._send(connection, request)
                continue
            self._held_bytes -= len(request.body) + _OVERHEAD_BYTES
            if self._member.takes_messages:
                self._handle(connection, [request])
            else:
                answer(connection, request, failure(request, self._member.not_leader()))

    def _send(self, connection: Connection, request: RemotingCommand) -> None:
        task = asyncio.get_running_loop().create_task(self._forward(connection, request))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _forward(self, connection: Connection, request: RemotingCommand) -> None:
        try:
            if request.is_oneway:
                await self._pool.oneway(self._address, replace(request))
                return
            answered = await self._pool.request(self._address, replace(request), _ANSWER_S)
            response = replace(answered, opaque=request.opaque, serialize_type=request.serialize_type)
        except RaptorMQError as error:
            logger.info("member %s did not answer a forwarded request: %s", self._target, error)
            response = failure(request, self._member.not_leader())
        finally:
            self._held_bytes -= len(request.body) + _OVERHEAD_BYTES
        answer(connection, request, response)

    async def stop(self) -> None:
        """Stop. Held requests are refused unless this member accepts messages."""
        tasks = [*self._sending, *filter(None, [self._search])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close(0.2)
