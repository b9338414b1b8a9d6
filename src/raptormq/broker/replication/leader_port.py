"""The port on which only the leader of a group serves clients, and the address of this port.

The address (``dLegerLeaderAddress``) does not change with the leader. It belongs to a Kubernetes Service or a load
balancer that forwards connections to ``dLegerLeaderPort`` of the leader. A client that connects to this port expects
the leader. The port is therefore open only on the leader, and its connections are closed when the leadership ends. A
change of the Service does not close them, and the client would continue to send to a member that refuses its requests.
The client reconnects to the next leader by the same address::

           leads                     handed over: sends go on to the next leader (forwarding)
    closed -----> open ----------------------------------------+
      ^             |                                          |
      |             | lost                                     | the address leads to the next leader, or
      |             v                                          v forwarding is over
      +---- connections are closed <---- forwarded sends are answered

A leader registers the address with the name servers as long as the address leads to itself. It checks this with a
request to the address. If the checks fail, the address remains registered for :data:`KEEP_S`, because it may come back.
A new leader keeps the address registered if its predecessor had registered it, and waits up to :data:`PATIENCE_S` for
the Service to change. Otherwise clients that query the route in this time, the Java client every 30 s, would stop using
the address and notice the next change late. All other members, and a leader without a working Service, register their
own address, which clients find by their route.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from raptormq.broker.config import ReplicationSettings
from raptormq.broker.replication.forwarding import Forwarding
from raptormq.errors import ConfigError, RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.replication import ReplicationState
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.replication import DescribeReplicationRequestHeader
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.timing import wait_event
from raptormq.transport.tls import ClientTls

logger = get_logger(__name__)

ASK_S = 0.3
"""Interval in seconds of checks while the address does not lead to the expected member."""
CONFIRM_S = 3.0
"""Interval in seconds of checks while the address leads to this leader."""
PATIENCE_S = 5.0
"""Time in seconds for which a new leader waits until the Service, which led to its predecessor, leads to itself."""
KEEP_S = 30.0
"""Time in seconds for which the address stays registered after the last check that reached the leader. A shorter
interruption changes no route.
"""
_WARN_MISSES = 30
"""Number of failed checks after which a leader logs a warning if the address has never led to it."""
ANSWER_S = 1.0
"""Timeout of one check in seconds."""
_AGAIN_S = 1.0


class Ports(Protocol):
    """The methods of the broker's server that open and close ports."""

    async def open_port(self, port: int) -> None:
        """Listen on one more port. Raises ConfigError if the port is in use."""

    async def close_port(self, port: int) -> int:
        """Stop listening on ``port`` and close its connections. Return the number of closed connections."""

    def connections_on(self, port: int) -> list[Connection]:
        """Return the connections that were accepted on a port."""


class Registrar(Protocol):
    """The registration with the name servers."""

    master_address: str

    def register_leader(self, address: str) -> None:
        """Register as the leader, under this address."""


class Leading(Protocol):
    """The member that the port belongs to."""

    id: str

    @property
    def leads(self) -> bool:
        """Whether this member leads."""


class Reach:
    """Decides whether the leader is registered under its shared address, from the results of requests to this address.
    Does no I/O.
    """

    def __init__(self) -> None:
        self.holds = False
        self.is_confirmed = False
        """Whether a check has reached this member since it began to lead."""
        self.misses = 0
        """Number of consecutive checks that did not reach this member."""
        self._kept_until = 0.0

    def begin(self, patient_until: float) -> None:
        """Reset after a change of the role. Until ``patient_until`` (event loop time in s) the address is assumed to
        lead to this member; 0 for no assumption.
        """
        self.holds, self.is_confirmed, self.misses = patient_until > 0, False, 0
        self._kept_until = patient_until

    def answered(self, now: float, *, here: bool) -> bool:
        """Record whether a request to the address reached this member. Return whether :attr:`holds` has changed."""
        before = self.holds
        self.misses = 0 if here else self.misses + 1
        self.is_confirmed |= here
        if here:
            self._kept_until = now + KEEP_S
        self.holds = here or (before and now < self._kept_until)
        return self.holds is not before


class LeaderPort:
    """Opens and closes the leader's port of one member, and registers the leader's address."""

    def __init__(
        self,
        settings: ReplicationSettings,
        own_address: str,
        member: Leading,
        forwarding: Forwarding,
        registrar: Registrar,
        limits: ConnectionLimits,
        tls: ClientTls | None,
    ) -> None:
        """``registrar`` registers the leader under another address. ``limits``, including credentials, and ``tls``
        apply to connections to the leader's address.

        Raises:
            ConfigError: a file of ``tls`` cannot be used.
        """
        self._address = settings.leader_address
        self._port = settings.leader_port
        self._group = settings.group
        self._own_address = own_address
        self._member = member
        self._forwarding = forwarding
        self._registrar = registrar
        self._pool = ConnectionPool(None, limits, ANSWER_S, tls)
        self._reach = Reach()
        self._changed = asyncio.Event()
        self._asking: asyncio.Task[ReplicationState | None] | None = None
        self._is_open = False
        self._fault = ""
        self._is_told = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_reached(self) -> bool:
        """Whether this member leads and clients reach it by the leader's address."""
        return self._reach.holds and self._reach.is_confirmed

    def start(self, ports: Ports) -> None:
        """Follow the role of the member from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run(ports))

    def role_changed(self) -> None:
        """Handle the beginning or the end of the leadership. A new leader keeps the leader's address registered if its
        predecessor had registered it.
        """
        goes_on = self._member.leads and self._registrar.master_address == self._address
        self._reach.begin(asyncio.get_running_loop().time() + PATIENCE_S if goes_on else 0.0)
        self._is_told = False
        if goes_on:
            self._registrar.register_leader(self._address)
        self._changed.set()
        if self._asking is not None:
            self._asking.cancel()

    async def stop(self) -> None:
        """Stop. The server closes the port."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._pool.close(0.2)

    async def _run(self, ports: Ports) -> None:
        while True:
            self._changed.clear()
            pause = None
            try:
                if self._member.leads:
                    pause = await self._lead(ports)
                elif self._is_open:
                    pause = await self._leave(ports)
            except Exception:
                logger.exception("the port of the leader failed")
                pause = _AGAIN_S
            await wait_event(self._changed, pause)

    async def _lead(self, ports: Ports) -> float:
        if not self._is_open:
            try:
                await ports.open_port(self._port)
            except ConfigError as error:
                if str(error) != self._fault:
                    self._fault = str(error)
                    logger.error("clients cannot reach the leader through %s: %s", self._address, error)
                return _AGAIN_S
            self._is_open, self._fault = True, ""
        found = await self._ask()
        if self._member.leads and not self._changed.is_set():
            self._note(here=found is not None and found.address == self._own_address)
        return CONFIRM_S if self._reach.is_confirmed and not self._reach.misses else ASK_S

    def _note(self, *, here: bool) -> None:
        reach = self._reach
        was_confirmed = reach.is_confirmed and reach.holds
        has_changed = reach.answered(asyncio.get_running_loop().time(), here=here)
        if has_changed:
            self._registrar.register_leader(self._address if reach.holds else self._own_address)
        if here:
            self._is_told = False
            if not was_confirmed:
                logger.info("clients reach this leader through %s", self._address)
        elif not self._is_told and not reach.holds and (has_changed or reach.misses >= _WARN_MISSES):
            self._is_told = True
            logger.warning(
                "%s does not reach this leader: it is registered with the name servers as %s instead",
                self._address, self._own_address,
            )  # fmt: skip

    async def _leave(self, ports: Ports) -> float | None:
        """Close the port when no more requests are forwarded to the next leader. Return the seconds until the next
        check; None when the port is closed.
        """
        if self._forwarding.is_active and not await self._has_moved() and self._forwarding.is_active:
            return ASK_S
        connections = ports.connections_on(self._port)
        for connection in connections:
            connection.hold_reading(hold=True)  # requests that arrive now are sent again, to the next leader
        await self._forwarding.wait_answered()
        if self._member.leads:
            for connection in connections:
                connection.hold_reading(hold=False)
            return 0.0
        self._is_open = False
        closed = await ports.close_port(self._port)
        logger.info("closed %d client connections; clients reach the next leader through %s", closed, self._address)
        return None

    async def _has_moved(self) -> bool:
        """Return whether the address leads to another member, which is the leader."""
        found = await self._ask()
        return found is not None and found.role == "leader" and found.member != self._member.id

    async def _ask(self) -> ReplicationState | None:
        """Return the member that a new connection to the leader's address reaches; None if there is no response, or if
        the role of this member changes meanwhile.
        """
        self._asking = asyncio.get_running_loop().create_task(self._described())
        try:
            await asyncio.wait([self._asking])
            return None if self._asking.cancelled() else self._asking.result()
        finally:
            self._asking.cancel()
            self._asking = None

    async def _described(self) -> ReplicationState | None:
        header = DescribeReplicationRequestHeader("", self._group)
        try:
            question = request(RequestCode.DESCRIBE_REPLICATION, header)
            answered = await self._pool.request(self._address, question, ANSWER_S)
            return ReplicationState.from_json(answered.body) if answered.code == ResponseCode.SUCCESS else None
        except RaptorMQError:
            return None
        finally:
            if (connection := self._pool.open_connection(self._address)) is not None:
                connection.close()
