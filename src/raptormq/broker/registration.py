"""Registers the broker and its topics with every name server (``BrokerOuterAPI``,
``BrokerController.registerBrokerAll``).

REGISTER_BROKER (103) is sent every 30 s with all topics, and after a change with the changed topics. When a topic is
deleted, all remaining topics are sent: name servers drop topics that are missing from a registration marked as
complete. The names of name servers are resolved for each registration, and the broker registers with every address, so
that a headless Service reaches all its pods, including those that moved. A name server that cannot be reached is
retried every few seconds, because clients cannot find the broker without it. A name server that does not answer does
not delay the others: they get the next change without it, and it gets a complete registration once it answers.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace

from raptormq.broker.config import Identity, Policies
from raptormq.broker.tables import TopicTable
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.route import encode_registration
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.route import RegisterBrokerRequestHeader, UnregisterBrokerRequestHeader
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool, RefuseRequests, parse_address
from raptormq.transport.timing import wait_event
from raptormq.transport.tls import ClientTls

logger = get_logger(__name__)

RETRY_S = 3.0
"""Pause before a failed name server is tried again."""
PATIENCE_S = 1.0
"""How long the others wait for a name server that does not answer."""
RESOLVE_S = 5.0
UNREGISTER_S = 1.0


_Server = tuple[str, int]
"""Name or address of a name server, and port."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Addresses (``host:port``) of this broker for clients and for slaves."""

    client: str
    replication: str


def parse_name_servers(text: str) -> list[tuple[str, int]]:
    """Split ``host:port;host:port``.

    Raises:
        ConfigError: an entry is not of that form.
    """
    return [parse_address(entry) for entry in filter(None, map(str.strip, text.split(";")))]


class _DisconnectListener(RefuseRequests):
    """Refuses requests of name servers, and reports closed connections."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self._server_lost = lost

    def closed(self, connection: Connection) -> None:
        """Report a closed connection (RequestHandler)."""
        self._server_lost()


class Registrar:
    """Keeps the registration with the name servers up to date."""

    def __init__(
        self,
        identity: Identity,
        address: BrokerAddress,
        topics: TopicTable,
        policies: Policies,
        limits: ConnectionLimits | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """``limits`` (with the credentials) and ``tls`` are for the connections to name servers.

        Raises:
            ConfigError: the list of name servers is malformed, or a file of ``tls`` cannot be used.
        """
        self._identity = identity
        self._address = address
        self._topics = topics
        self._policies = policies
        self._broker_id = identity.broker_id
        self._servers = parse_name_servers(identity.name_servers)
        self._pool = ConnectionPool(_DisconnectListener(self._server_lost), limits, tls=tls)
        self._changed: set[str] = set()
        self._registered_by_server: dict[_Server, set[str]] = {}
        self._in_progress: dict[_Server, asyncio.Task[bool]] = {}
        self._addresses_in_progress: set[str] = set()
        self._logged_failures: dict[str, set[str]] = {}
        """Address -> failures logged since the last successful registration."""
        self._outdated: set[_Server] = set()
        self._wake = asyncio.Event()
        self._change_count = 0
        self._completed_count = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._full_pending = False
        self._task: asyncio.Task[None] | None = None

    @property
    def registered_count(self) -> int:
        """Number of name server addresses that accepted the last registration."""
        return len(self._registered)

    @property
    def _registered(self) -> set[str]:
        return set().union(*self._registered_by_server.values())

    def start(self) -> None:
        """Register now, which :meth:`synced` waits for, and then after changes and periodically."""
        self._change_count += 1
        if self._servers:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def topic_changed(self, topic: str) -> None:
        """Schedule a registration of the topic; if it was deleted, of all remaining topics."""
        if topic in self._topics.configs:
            self._changed.add(topic)
        else:
            self._full_pending = True
        self._change_count += 1
        self._wake.set()

    def permission_changed(self) -> None:
        """Schedule a registration of all topics."""
        self._full_pending = True
        self._change_count += 1
        self._wake.set()

    def register_as(self, broker_id: int) -> None:
        """Schedule a registration under another broker id: the broker leads its group now, or follows."""
        self._broker_id = broker_id
        self._topics.bump_version()
        self.permission_changed()

    async def synced(self, timeout_s: float) -> None:
        """Wait until the changes so far have been sent to all name servers, at most ``timeout_s``."""
        if self._task is None or self._completed_count >= self._change_count:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((self._change_count, waiter))
        await asyncio.wait([waiter], timeout=timeout_s)

    def _server_lost(self) -> None:
        """Register at once when a connection closes: the name server that replaces it knows no broker."""
        self._full_pending = True
        self._wake.set()

    async def request_any(self, command: RemotingCommand, seconds: float) -> RemotingCommand | None:
        """Return the answer of the first registered name server that answers; None without one."""
        for server in sorted(self._registered):
            try:
                return await self._pool.request(server, command, seconds)
            except RaptorMQError as error:
                logger.info("name server %s did not answer: %s", server, error)
        return None

    async def unregister(self) -> None:
        """Stop registering and unregister from the name servers, including those that have not answered yet; takes at
        most one second.
        """
        if self._task is None:
            return
        tasks = [self._task, *self._in_progress.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        header = UnregisterBrokerRequestHeader(
            self._identity.broker_name, self._address.client, self._identity.cluster_name, self._broker_id
        )
        farewells = [
            self._pool.request(server, request(RequestCode.UNREGISTER_BROKER, header), UNREGISTER_S)
            for server in self._registered | self._addresses_in_progress
        ]
        await asyncio.gather(*farewells, return_exceptions=True)
        self._registered_by_server.clear()
        self._addresses_in_progress.clear()

    async def close(self) -> None:
        """Close the connections to the name servers."""
        await self._pool.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        period = self._identity.register_period_ms / 1000
        full_at = loop.time()
        while True:
            self._wake.clear()
            changed, self._changed = self._changed, set()
            count = self._change_count
            everything = loop.time() >= full_at or self._full_pending
            self._full_pending = False
            complete = await self._register(changed, everything=everything)
            now = loop.time()
            if everything:
                full_at = now + period
            self._complete_waiters(count)
            await wait_event(self._wake, full_at - now if complete else min(full_at - now, RETRY_S))

    def _complete_waiters(self, count: int) -> None:
        self._completed_count = count
        for wanted, waiter in self._waiters:
            if wanted <= count and not waiter.done():
                waiter.set_result(None)
        self._waiters = [entry for entry in self._waiters if entry[0] > count]

    async def _register(self, changed: set[str], *, everything: bool) -> bool:
        """Send the changed topics to every name server, or all topics with ``everything`` or where an earlier
        registration failed. True when no name server is outdated.
        """
        self._collect_results()
        # The version must belong to these changes: a name server skips a registration with a known version.
        bodies: dict[bool, bytes] = {}
        for server in self._servers:
            whole = everything or server in self._outdated
            if not (whole or changed):
                continue
            if server in self._in_progress:  # an earlier registration is still in progress
                self._outdated.add(server)
                continue
            if whole not in bodies:
                bodies[whole] = encode_registration(self._topic_table(None if whole else changed))
            self._outdated.discard(server)
            self._in_progress[server] = asyncio.create_task(self._register_with_addresses(server, bodies[whole], whole))
        if self._in_progress:
            await asyncio.wait(self._in_progress.values(), timeout=PATIENCE_S)
            self._collect_results()
        return not (self._outdated or self._in_progress)

    def _collect_results(self) -> None:
        for server in [server for server, task in self._in_progress.items() if task.done()]:
            if not self._in_progress.pop(server).result():
                self._outdated.add(server)

    async def _register_with_addresses(self, server: _Server, body: bytes, whole: bool) -> bool:
        """Register with every address of a name server; True when all of them accepted."""
        addresses = await _resolve(*server)
        self._addresses_in_progress.update(addresses)
        taken = await asyncio.gather(*(self._register_with_address(address, body, whole) for address in addresses))
        self._addresses_in_progress.difference_update(addresses)
        self._registered_by_server[server] = {address for address, done in zip(addresses, taken, strict=True) if done}
        return bool(addresses) and all(taken)

    def _topic_table(self, changed: set[str] | None) -> TopicConfigTable:
        table = self._topics.snapshot()
        if changed is not None:
            table.topics = {topic: config for topic, config in table.topics.items() if topic in changed}
        permission = self._policies.permission
        if permission != 6:
            limited = {
                name: replace(config, perm=config.perm & (permission | 1)) for name, config in table.topics.items()
            }
            table.topics = limited
        return table

    async def _register_with_address(self, address: str, body: bytes, whole: bool) -> bool:
        identity = self._identity
        header = RegisterBrokerRequestHeader(
            identity.broker_name,
            self._address.client,
            identity.cluster_name,
            self._address.replication,
            self._broker_id,
            complete_topic_table=whole,
        )
        try:
            answered = await self._pool.request(
                address, request(RequestCode.REGISTER_BROKER, header, body), identity.register_timeout_ms / 1000
            )
        except RaptorMQError as error:
            self._log_once(address, f"cannot register with name server {address}: {error}")
            return False
        return self._is_accepted(address, answered)

    def _is_accepted(self, address: str, answered: RemotingCommand) -> bool:
        if answered.code == ResponseCode.SUCCESS:
            self._logged_failures.pop(address, None)
            if address not in self._registered:
                logger.info("registered with name server %s", address)
            return True
        hint = ""
        if answered.code == ResponseCode.NO_PERMISSION:
            hint = "; innerClientAuthenticationCredentials identifies this broker to it"
        self._log_once(address, f"name server {address} refuses the registration: {answered.remark}{hint}")
        return False

    def _log_once(self, address: str, message: str) -> None:
        """Log a failure once per change of state, not for every attempt."""
        told = self._logged_failures.setdefault(address, set())
        if message not in told:
            told.add(message)
            logger.warning("%s", message)


async def _resolve(host: str, port: int) -> list[str]:
    """Return all addresses of a name server; none when its name cannot be resolved."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:  # UnicodeError: not a valid DNS name
        logger.warning("cannot resolve name server %s: %s", host, error)
        return []
    # Use one family only: a name like localhost has an address of each, and the server listens on one of them.
    family = socket.AF_INET if any(entry[0] == socket.AF_INET for entry in found) else socket.AF_INET6
    addresses = {str(entry[4][0]) for entry in found if entry[0] == family}
    return [f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in sorted(addresses)]
