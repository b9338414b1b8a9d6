"""One client as brokers see it: a client id, connections, routes and heartbeats, shared by producers and consumers.

Brokers learn the groups of a client from its heartbeats. They forget a client when its connection ends or is silent for
120 s, and notify all consumers of a group when its members change. A heartbeat is sent every 30 s; at once after a
group was joined, a subscription or a route has changed, or a connection was made or lost; and soon again while a broker
does not accept it. Without heartbeats a broker does not check transactions and does not forward replies.
Neighbours: `cluster.routes`, `cluster.name_servers`, `cluster.heartbeats`; producers and consumers acquire an instance
and release it. Source: RocketMQ `MQClientInstance`, `MQClientManager`, `ClientRemotingProcessor`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from raptormq.client.background import background, cancel_all
from raptormq.client.cluster.broker_call import OffsetRequests
from raptormq.client.cluster.heartbeats import Heartbeats
from raptormq.client.cluster.name_servers import NameServers
from raptormq.client.cluster.routes import RouteTable
from raptormq.client.cluster.topic_route import TopicQueues
from raptormq.client.config import ClientConfig, local_address
from raptormq.client.lifecycle import require_loop
from raptormq.errors import ClientError, RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, request, response_to
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader, UnregisterClientRequestHeader
from raptormq.protocol.message_id import UniqueIdFactory, encode_host
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import Router

log = get_logger(__name__)

S = TypeVar("S")

RECENT_CONNECTION_S = 10.0
"""Members of a group that are alive reconnect to a restarted broker within this time."""


class ConsumerMember(Protocol):
    """A consumer as a member of a group, as far as the instance has to know it."""

    def describe(self) -> ConsumerData:
        """Return the data of the group for heartbeats."""

    def members_changed(self) -> None:
        """Called when clients joined or left the group, or a route has changed. Must not block."""

    def connection_made(self) -> None:
        """Called when a broker is connected, which may have forgotten everything. Must not block."""

    def connection_lost(self) -> None:
        """Called when a connection was lost: a broker may be gone or restarting, or a name server, which then knows
        only some of the brokers for a while. Must not block.
        """


_instances: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClientConfig, ClientInstance]] = WeakKeyDictionary()


class ClientInstance:
    """The shared part of all producers and consumers with one `ClientConfig` on one event loop.

    `acquire` returns it and `release` gives it back; the last release closes it.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        ip = config.client_ip or local_address(config.addresses[0])
        self.client_id = f"{ip}@{config.instance_name}"
        """Unique per client; the members of a group are sorted by it."""
        self._consumers: dict[str, ConsumerMember] = {}
        self.router = Router()
        """Dispatches the requests of brokers to this client; producers and consumers add their handlers."""
        self.router.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequestHeader, self._members_changed)
        self.router.on_closed(self._connection_lost)
        # A broker whose machine is down never closes its connection, so silence ends it.
        limits = ConnectionLimits(silence_seconds=config.request_timeout, credentials=config.credentials)
        self._connected_at: dict[str, float] = {}
        self.pool = ConnectionPool(self.router, limits, config.request_timeout, config.tls, self._connection_made)
        self.name_servers = NameServers(self.pool, config.addresses, config.request_timeout)
        self.routes = RouteTable(self.name_servers, self._route_changed)
        self.offsets = OffsetRequests(self.pool, config.request_timeout)
        self.unique_ids = UniqueIdFactory(encode_host(ip, 0)[:-4], os.getpid(), hash(self.client_id))
        self._shared: dict[Callable[[ClientInstance], Any], Any] = {}
        self._producers: dict[str, int] = {}
        self._users = 0
        self.heartbeats = Heartbeats(
            self.pool,
            config.request_timeout,
            config.heartbeat_interval,
            self._heartbeat_addresses,
            self._heartbeat_data,
        )
        self._tasks = [
            background(self.heartbeats.run(), f"heartbeats of {self.client_id}"),
            background(self._refresh_routes(), f"routes of {self.client_id}"),
        ]

    @classmethod
    def acquire(cls, config: ClientConfig) -> ClientInstance:
        """Return the instance of `config` on the running loop; the first user creates it.

        Raises:
            ConfigError: the address of a name server is invalid.
        """
        by_config = _instances.setdefault(asyncio.get_running_loop(), {})
        instance = by_config.get(config)
        if instance is None:
            instance = by_config[config] = cls(config)
        instance._users += 1
        return instance

    async def release(self) -> None:
        """Give the instance back; the last user closes it within about two seconds.

        Raises:
            ClientClosed: this is not the event loop of the instance.
        """
        require_loop(self.loop)
        self._users -= 1
        if self._users:
            return
        by_config = _instances.get(self.loop, {})
        if by_config.get(self.config) is self:
            del by_config[self.config]
        await cancel_all(self._tasks)
        await self.routes.close()
        await self.router.stop()
        await self.pool.close()

    def shared(self, make: Callable[[ClientInstance], S]) -> S:
        """Return the object that ``make`` has created for all users of this instance; the first user creates it.

        Producers and consumers attach their own parts this way (replies, transaction checks, the accumulator), so the
        instance does not need to know them.
        """
        if make not in self._shared:
            self._shared[make] = make(self)
        found: S = self._shared[make]
        return found

    def consumer(self, group: str) -> ConsumerMember | None:
        """Return the consumer of a group in this client."""
        return self._consumers.get(group)

    def register_producer(self, group: str) -> None:
        """Count one more producer of a group."""
        self._producers[group] = self._producers.get(group, 0) + 1
        self.heartbeats.send_soon()

    async def unregister_producer(self, group: str) -> None:
        """Count one producer less; the last one unregisters the group at the brokers."""
        self._producers[group] -= 1
        if not self._producers[group]:
            del self._producers[group]
            await self._unregister(producer_group=group)

    def register_consumer(self, group: str, member: ConsumerMember) -> None:
        """Make the client a member of a consumer group.

        Raises:
            ClientError: it is already a member: a client is one member, however many consumers it runs.
        """
        if group in self._consumers:
            raise ClientError(f"group {group} has a consumer with this ClientConfig already; give each its own")
        self._consumers[group] = member
        self.heartbeats.send_soon()

    async def unregister_consumer(self, group: str) -> None:
        """Leave a consumer group; the brokers notify the other members, which take over the queues."""
        if self._consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    def _heartbeat_data(self) -> HeartbeatData:
        consumers = [member.describe() for member in self._consumers.values()]
        return HeartbeatData(self.client_id, list(self._producers), consumers)

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self.config.route_refresh_interval)
            await self.routes.refresh_all()

    async def _unregister(self, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        header = UnregisterClientRequestHeader(self.client_id, producer_group, consumer_group)

        async def tell(address: str) -> None:
            if self.pool.open_connection(address) is None:
                return  # the broker forgot the client when the connection ended
            try:
                command = request(RequestCode.UNREGISTER_CLIENT, header)
                await self.pool.request(address, command, self.config.request_timeout)
            except RaptorMQError as error:
                log.info("the client could not be unregistered at broker %s: %s", address, error)

        await asyncio.gather(*map(tell, self._broker_addresses(with_replicas=True)))

    def _heartbeat_addresses(self) -> set[str]:
        if not self._producers and not self._consumers:
            return set()  # heartbeats would be empty
        return self._broker_addresses(with_replicas=bool(self._consumers))

    def _broker_addresses(self, *, with_replicas: bool) -> set[str]:
        return {
            address
            for topic_queues in self.routes.all_cached()
            for members in topic_queues.brokers.values()
            for broker_id, address in members.items()
            if with_replicas or broker_id == MASTER_ID
        }

    def _members_changed(
        self, _connection: Connection, command: RemotingCommand, header: ConsumerGroupRequestHeader
    ) -> RemotingCommand:
        member = self._consumers.get(header.consumer_group)
        if member is not None:
            member.members_changed()
        return response_to(command)  # brokers send this as a oneway request; for other callers

    def is_recently_connected(self, address: str) -> bool:
        """Whether the connection to a broker is so new that other members may not have reconnected yet."""
        made_at = self._connected_at.get(address)
        return made_at is not None and self.loop.time() - made_at < RECENT_CONNECTION_S

    def _connection_made(self, address: str) -> None:
        if address not in self.config.addresses:
            now = self.loop.time()
            self._connected_at = {
                known: at for known, at in self._connected_at.items() if now - at < RECENT_CONNECTION_S
            } | {address: now}
            self.heartbeats.send_soon()
            for member in self._consumers.values():
                member.connection_made()

    def _connection_lost(self, connection: Connection) -> None:
        if not connection.has_received:  # the peer never answered, and the loss before was reported
            return
        self.heartbeats.send_soon()
        for member in self._consumers.values():
            member.connection_lost()

    def _route_changed(self, _changed: TopicQueues) -> None:
        self.heartbeats.send_soon()
        for member in self._consumers.values():
            member.members_changed()
