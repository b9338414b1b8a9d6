"""Registers the broker and its topics with every name server (``BrokerOuterAPI``,
``BrokerController.registerBrokerAll``).

The broker sends REGISTER_BROKER (103) every 30 s with all topics, and after a change with the changed topics. After the
deletion of a topic it sends all remaining topics, because name servers remove topics that are missing from a complete
registration.

The names of name servers are resolved at each registration, and the broker registers with every address. A headless
Service therefore provides all its pods, including pods with a new address. An unreachable name server is retried every
few seconds, because its clients cannot find the broker. An unresponsive name server does not delay the registration
with others. It gets a complete registration when it responds again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from raptormq.broker.config import Identity, Policies
from raptormq.broker.tables import TopicTable
from raptormq.errors import BodyError, RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.route import MASTER_ID, ClusterInfo, encode_registration
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.route import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
)
from raptormq.protocol.schema import decode_header
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool, RefuseRequests, parse_address
from raptormq.transport.timing import wait_event
from raptormq.transport.tls import ClientTls

logger = get_logger(__name__)

RETRY_S = 3.0
"""Pause before a failed registration is retried, in seconds."""
PATIENCE_S = 1.0
"""Time that a registration waits for unresponsive name servers, in seconds."""
RESOLVE_S = 5.0
UNREGISTER_S = 1.0
LOOK_UP_S = 1.0


_Server = tuple[str, int]
"""Host name or address, and port of a name server."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Addresses (``host:port``) of this broker for clients and slaves."""

    client: str
    replication: str


def parse_name_servers(text: str) -> list[tuple[str, int]]:
    """Split ``host:port;host:port``.

    Raises:
        ConfigError: an entry does not have this form.
    """
    return [parse_address(entry) for entry in filter(None, map(str.strip, text.split(";")))]


class _DisconnectListener(RefuseRequests):
    """Refuses requests from name servers, and reports closed connections."""

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
        """Create a registrar. ``limits`` (with the credentials) and ``tls`` apply to connections to name servers.

        Raises:
            ConfigError: the list of name servers is malformed, or a file of ``tls`` is missing or invalid.
        """
        self._identity = identity
        self._address = address
        self._client_address = address.client
        self.master_address = ""
        """Address of the master of this name, as returned by a name server to this slave; empty for none."""
        self._list_own: set[str] = set()
        """Name servers that list this broker under its own address."""
        self._topics = topics
        self._policies = policies
        self._broker_id = identity.broker_id
        self.on_master: Callable[[str, str], None] = lambda _client, _replication: None
        """Called with the addresses of the master of this name, for clients and for slaves, whenever a name server
        returns them to this slave.
        """
        self._servers = parse_name_servers(identity.name_servers)
        self._pool = ConnectionPool(_DisconnectListener(self._server_lost), limits, tls=tls)
        self._changed: set[str] = set()
        self._registered_by_server: dict[_Server, set[str]] = {}
        self._in_progress: dict[_Server, asyncio.Task[bool]] = {}
        self._addresses_in_progress: set[str] = set()
        self._logged_failures: dict[str, set[str]] = {}
        """Failures that were logged since the last successful registration, by address."""
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
        """Register now, after changes and periodically. :meth:`synced` waits for the first registration."""
        self._change_count += 1
        if self._servers:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def topic_changed(self, topic: str) -> None:
        """Schedule a registration of a changed topic, or of all topics after a deletion."""
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

    def register_as(self, broker_id: int, address: str = "") -> None:
        """Schedule a registration with another broker id, after a change between leader and follower. ``address`` is
        the address for clients, if it is not the broker's own address.
        """
        self._broker_id = broker_id
        self._client_address = address or self._address.client
        self._topics.bump_version()
        self.permission_changed()

    def register_leader(self, address: str) -> None:
        """Schedule a registration as the master, with the address for clients."""
        self.register_as(MASTER_ID, address)

    def register_again(self) -> None:
        """Register again soon, to be listed, or because the responses of name servers contain the address of the
        master.
        """
        self._full_pending = True
        self._wake.set()

    async def look_up_members(self) -> dict[int, str] | None:
        """Return broker id -> address of the brokers of this name that a name server lists; None if no name server
        responds. The request is smaller than a registration, which contains all topics.
        """
        response = await self.request_any(request(RequestCode.GET_BROKER_CLUSTER_INFO), LOOK_UP_S)
        if response is None or response.code != ResponseCode.SUCCESS:
            return None
        try:
            brokers = ClusterInfo.from_json(response.body).brokers
        except BodyError as error:
            logger.warning("cannot read the list of brokers from a name server: %s", error)
            return None
        group = brokers.get(self._identity.broker_name)
        return dict(group.broker_addrs) if group is not None else {}

    async def look_up_master(self) -> str:
        """Return the address of the master of this name that a name server lists; empty for none."""
        return (await self.look_up_members() or {}).get(MASTER_ID, "")

    async def synced(self, timeout_s: float) -> None:
        """Wait until all previous changes are sent to the name servers, at most ``timeout_s``."""
        if self._task is None or self._completed_count >= self._change_count:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((self._change_count, waiter))
        await asyncio.wait([waiter], timeout=timeout_s)

    def _server_lost(self) -> None:
        """Register immediately after a closed connection. The name server may have restarted without any route."""
        self._full_pending = True
        self._wake.set()

    async def request_any(self, command: RemotingCommand, seconds: float) -> RemotingCommand | None:
        """Return the response of the first name server that responds, or None."""
        for server in sorted(self._registered) or [f"{host}:{port}" for host, port in self._servers]:
            try:
                return await self._pool.request(server, command, seconds)
            except RaptorMQError as error:
                logger.info("name server %s did not respond: %s", server, error)
        return None

    async def unregister(self) -> None:
        """Stop registering, and unregister from the name servers, including those that have not responded yet. Takes at
        most one second.
        """
        if self._task is None:
            return
        tasks = [self._task, *self._in_progress.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._in_progress.clear()
        header = UnregisterBrokerRequestHeader(
            self._identity.broker_name, self._client_address, self._identity.cluster_name, self._broker_id
        )
        requests = [
            self._pool.request(server, request(RequestCode.UNREGISTER_BROKER, header), UNREGISTER_S)
            for server in self._registered | self._addresses_in_progress
        ]
        await asyncio.gather(*requests, return_exceptions=True)
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
        for target, waiter in self._waiters:
            if target <= count and not waiter.done():
                waiter.set_result(None)
        self._waiters = [entry for entry in self._waiters if entry[0] > count]

    async def _register(self, changed: set[str], *, everything: bool) -> bool:
        """Send the changed topics to every name server. Send all topics if ``everything`` is true, or if an earlier
        registration failed. Return True if all name servers are up to date.
        """
        self._collect_results()
        # Read table and version together: a name server ignores a registration with a version that it already has.
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
        """Register with every address of a name server. Return True if all of them accepted."""
        addresses = await _resolve(*server)
        self._addresses_in_progress.update(addresses)
        accepted = await asyncio.gather(*(self._register_with_address(address, body, whole) for address in addresses))
        self._addresses_in_progress.difference_update(addresses)
        self._registered_by_server[server] = {
            address for address, done in zip(addresses, accepted, strict=True) if done
        }
        return bool(addresses) and all(accepted)

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
            self._client_address,
            identity.cluster_name,
            self._address.replication,
            self._broker_id,
            complete_topic_table=whole,
            shared_address=None if self._client_address == self._address.client else True,
        )
        try:
            response = await self._pool.request(
                address, request(RequestCode.REGISTER_BROKER, header, body), identity.register_timeout_ms / 1000
            )
        except RaptorMQError as error:
            self._log_once(address, f"cannot register with name server {address}: {error}")
            return False
        if not self._is_accepted(address, response):
            return False
        await self._own_address_listed(address, header.broker_addr)
        return True

    async def _own_address_listed(self, server: str, registered: str) -> None:
        """Unregister the broker's own address from a name server after the broker is registered with another address.
        Otherwise the route would contain the broker twice, with two ids.
        """
        own = self._address.client
        if registered == own:
            self._list_own.add(server)
        elif server in self._list_own and self._client_address == registered:
            self._list_own.discard(server)
            identity = self._identity
            header = UnregisterBrokerRequestHeader(identity.broker_name, own, identity.cluster_name, self._broker_id)
            with suppress(RaptorMQError):
                await self._pool.request(server, request(RequestCode.UNREGISTER_BROKER, header), UNREGISTER_S)

    def _is_accepted(self, address: str, response: RemotingCommand) -> bool:
        if response.code == ResponseCode.SUCCESS:
            self._logged_failures.pop(address, None)
            if address not in self._registered:
                logger.info("registered with name server %s", address)
            self._note_master(response)
            return True
        hint = ""
        if response.code == ResponseCode.NO_PERMISSION:
            hint = "; set innerClientAuthenticationCredentials to a user of the name server"
        self._log_once(address, f"name server {address} refuses the registration: {response.remark}{hint}")
        return False

    def _note_master(self, answered: RemotingCommand) -> None:
        found = decode_header(RegisterBrokerResponseHeader, answered.ext_fields)
        self.master_address = found.master_addr or self.master_address  # the response has none if there is no master
        if found.master_addr and found.master_addr != self._address.client:
            self.on_master(found.master_addr, found.ha_server_addr or "")

    def _log_once(self, address: str, message: str) -> None:
        """Log a failure, unless it was logged since the last successful registration."""
        logged = self._logged_failures.setdefault(address, set())
        if message not in logged:
            logged.add(message)
            logger.warning("%s", message)


async def _resolve(host: str, port: int) -> list[str]:
    """Return all addresses of a name server, or an empty list if its name cannot be resolved."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:  # UnicodeError: not a valid DNS name
        logger.warning("cannot resolve name server %s: %s", host, error)
        return []
    # Use one address family: a name such as localhost has addresses of both, but the server listens on one.
    family = socket.AF_INET if any(entry[0] == socket.AF_INET for entry in found) else socket.AF_INET6
    addresses = {str(entry[4][0]) for entry in found if entry[0] == family}
    return [f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in sorted(addresses)]
