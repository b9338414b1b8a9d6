"""Shared part of the producers and consumers of one client: client id, connections, routes and heartbeats.

Heartbeats register the groups of a client at the brokers. Brokers unregister a client when its connection is closed or
after 120 s without a heartbeat, and notify all consumers of a group when its members change. A heartbeat is sent every
30 s; immediately after a group was joined, a subscription or route changed, or a connection was opened or lost; and
again soon while a broker does not accept it. Without heartbeats a broker does not check transactions and does not
forward replies. See also: `cluster.routes`, `cluster.name_servers`, `cluster.heartbeats`; producers and consumers
acquire an instance and release it. Source: RocketMQ `MQClientInstance`, `MQClientManager`, `ClientRemotingProcessor`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from raptormq.client.background import CANCELLED_S, background, cancel_all
from raptormq.client.cluster.broker_call import OffsetRequests
from raptormq.client.cluster.heartbeats import Heartbeats
from raptormq.client.cluster.loop_watch import LoopWatch
from raptormq.client.cluster.name_servers import NameServers
from raptormq.client.cluster.reconnector import Reconnector
from raptormq.client.cluster.routes import RouteTable
from raptormq.client.cluster.topic_route import TopicQueues
from raptormq.client.config import ClientConfig, local_address
from raptormq.client.lifecycle import Shutdown, Startable, require_loop
from raptormq.errors import ClientClosed, ClientError, RaptorMQError
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
"""Time within which running members of a group reconnect to a restarted broker."""


class ConsumerMember(Protocol):
    """Interface of a consumer as a member of a group."""

    def describe(self) -> ConsumerData:
        """Return the data of the group for heartbeats."""

    def members_changed(self) -> None:
        """Called when clients joined or left the group, or a route has changed. Must not block."""

    def connection_made(self) -> None:
        """Called when a broker is connected. The broker may have restarted without its state. Must not block."""

    def connection_lost(self) -> None:
        """Called when the connection to a broker or name server was lost, for example by a restart. A restarted name
        server has only part of the brokers for some time. Must not block.
        """


_instances: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClientConfig, ClientInstance]] = WeakKeyDictionary()


class ClientInstance:
    """Shared part of all producers and consumers with the same `ClientConfig` on one event loop.

    Instances are reference-counted: `acquire` returns an instance, and the last `release` closes it.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        ip = config.client_ip or local_address(config.addresses[0])
        self.client_id = f"{ip}@{config.instance_name}"
        """Unique id of the client; also determines the order of the members of a group."""
        self._consumers: dict[str, ConsumerMember] = {}
        self.router = Router()
        """Dispatches requests of brokers to this client. Producers and consumers add handlers."""
        self.router.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequestHeader, self._members_changed)
        self.router.on_closed(self._connection_lost)
        # A failed machine never closes its connections, so the client closes a connection without responses.
        limits = ConnectionLimits(silence_seconds=config.request_timeout, credentials=config.credentials)
        self._connected_at: dict[str, float] = {}
        self.pool = ConnectionPool(self.router, limits, config.request_timeout, config.tls, self._connection_made)
        self.name_servers = NameServers(self.pool, config.addresses, config.request_timeout)
        self.routes = RouteTable(self.name_servers, self._route_changed)
        self.reconnector = Reconnector(self.pool, self.routes)
        self.offsets = OffsetRequests(self.pool, config.request_timeout)
        self.unique_ids = UniqueIdFactory(encode_host(ip, 0)[:-4], os.getpid(), hash(self.client_id))
        self._shared: dict[Callable[[ClientInstance], Any], Any] = {}
        self._producers: dict[str, int] = {}
        self._users = 0
        self._watch = LoopWatch.acquire()
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
        """Return the instance of `config` on the running event loop; create it for the first user.

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
        """Release the instance. The last release closes it within about two seconds.

        Raises:
            ClientClosed: called in another event loop than that of the instance.
        """
        require_loop(self.loop)
        self._users -= 1
        if self._users:
            return
        by_config = _instances.get(self.loop, {})
        if by_config.get(self.config) is self:
            del by_config[self.config]
        self._watch.release()
        await cancel_all(self._tasks)
        await self.routes.close()
        if running := await self.router.stop(CANCELLED_S):
            log.error(
                "client %s is closed without %d listener calls of administrators, which ignore their cancellation",
                *(self.client_id, running),
            )
        await self.pool.close()
        self.reconnector.close()  # after the pool, so that the sends that it wakes find the pool closed

    def shared(self, make: Callable[[ClientInstance], S]) -> S:
        """Return the object of this instance that ``make`` creates; it is created for the first user.

        Producers and consumers use this to attach shared parts (replies, transaction checks, the accumulator).
        """
        if make not in self._shared:
            self._shared[make] = make(self)
        found: S = self._shared[make]
        return found

    def consumer(self, group: str) -> ConsumerMember | None:
        """Return the consumer of a group in this client; None if there is none."""
        return self._consumers.get(group)

    def register_producer(self, group: str) -> None:
        """Register a producer of a group."""
        self._producers[group] = self._producers.get(group, 0) + 1
        self.heartbeats.send_soon()

    async def unregister_producer(self, group: str) -> None:
        """Unregister a producer of a group. After the last producer, unregister the group at the brokers."""
        self._producers[group] -= 1
        if not self._producers[group]:
            del self._producers[group]
            await self._unregister(producer_group=group)

    def register_consumer(self, group: str, member: ConsumerMember) -> None:
        """Make the client a member of a consumer group.

        Raises:
            ClientError: The client is already a member of the group.
        """
        if group in self._consumers:
            raise ClientError(
                f"group {group} already has a consumer with this ClientConfig; give each consumer its own"
            )
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
                return  # the broker has unregistered the client with its connection
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
        return response_to(command)  # brokers send a oneway request; the response is for other callers

    def is_recently_connected(self, address: str) -> bool:
        """Return whether the connection to a broker is so recent that other members may not have reconnected yet."""
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
        if not connection.has_received:  # the peer never responded, and the previous loss was already reported
            return
        self.heartbeats.send_soon()
        for member in self._consumers.values():
            member.connection_lost()

    def _route_changed(self, _changed: TopicQueues) -> None:
        self.heartbeats.send_soon()
        for member in self._consumers.values():
            member.members_changed()


class InstanceClient(Startable):
    """Base class of clients that hold a `ClientInstance` from start to close, and nothing else that must be ended.

    Args:
        name: the kind of client, for errors.
        config: the configuration of the instance.
    """

    def __init__(self, name: str, config: ClientConfig) -> None:
        self._name = name
        self._client_config = config
        self._instance: ClientInstance | None = None
        self._shutdown = Shutdown(f"the {name}")

    async def start(self) -> None:
        """Start the client; no effect if it is started."""
        await self._shutdown.wait()
        if self._instance is None:
            self._instance = ClientInstance.acquire(self._client_config)

    async def close(self) -> None:
        """Close the connections; no effect if they are closed. A cancelled close continues in the background."""
        instance, self._instance = self._instance, None
        if instance is None:
            await self._shutdown.wait()
        else:
            await self._shutdown.run(instance.release())

    def _started_instance(self) -> ClientInstance:
        """Return the instance.

        Raises:
            ClientClosed: the client is not started, closed, or was started in another event loop.
        """
        if self._instance is None:
            raise ClientClosed(f"the {self._name} is not started, or closed")
        require_loop(self._instance.loop)
        return self._instance
