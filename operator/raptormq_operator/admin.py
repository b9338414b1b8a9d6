"""Requests of the operator to name servers and brokers, sent with `raptormq.client.AdminClient`.

Tests replace the protocol `Admin`; `ClientAdmin` is the only user of the client in the operator. The environment of the
process configures TLS: whether the operator presents a client certificate, and whether it verifies the servers'.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol, Self, TypeVar

from raptormq.client import AdminClient, ClientConfig, ClientTls, TopicConfig
from raptormq.client.security import tls_from_environment
from raptormq.errors import ConfigError, ConnectError, ConnectionClosed, MessageError, RaptorMQError, ServerError
from raptormq.protocol.bodies.replication import ReplicationState
from raptormq.protocol.bodies.unreadable import Unreadable
from raptormq.protocol.codes import ResponseCode
from raptormq_operator.access_keys import Keys
from raptormq_operator.model.cluster import Tls

T = TypeVar("T")

TOPICS_AT_ONCE = 500
"""Maximum number of topics per update request. Such a request has about 100 kB."""

CONNECT_TIMEOUT_S = 3.0
CLIENTS = 500
"""Maximum number of cached clients. Each combination of transport and credentials has its own client."""

Listing = Mapping[tuple[str, str, int], str]
"""Registrations on one name server: (cluster name, broker name, broker id) -> address."""


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """Configuration of one topic on one broker."""

    read_queues: int
    write_queues: int
    perm: int
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """Runtime information of one broker (GET_BROKER_RUNTIME_INFO, 28)."""

    unknown_settings: str = ""
    """The broker's warning about settings that it ignores; empty without such settings."""
    max_offset: int | None = None
    """End offset of the commit log in bytes. The offset decreases only when data is lost."""


@dataclass(frozen=True, slots=True)
class BrokerTopics:
    """Snapshot of all topic configurations of one broker (GET_ALL_TOPIC_CONFIG, 21)."""

    configs: Mapping[str, TopicConfig]
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)
    """Topics with messages in queues that consumers do not read."""

    def get(self, topic: str) -> TopicAnswer | None:
        """Return one topic; None when the broker does not have the topic."""
        config = self.configs.get(topic)
        if config is None:
            return None
        return TopicAnswer(config.read_queue_nums, config.write_queue_nums, int(config.perm), config.attributes)

    def changed(self, topic: str, values: TopicAnswer) -> TopicConfig:
        """Return the configuration with new values. Fields without a counterpart in the Topic resource, such as
        `order`, keep their values."""
        return replace(
            self.configs.get(topic) or TopicConfig(topic),
            read_queue_nums=values.read_queues,
            write_queue_nums=values.write_queues,
            perm=values.perm,
            attributes=dict(values.attributes),
        )


class Admin(Protocol):
    """Factory of `ClusterAdmin` objects."""

    def speaking(self, tls: Tls | None, keys: Keys = ()) -> ClusterAdmin:
        """Return the requests for one cluster. They are signed with the first entry of `keys` that the server
        accepts."""


class ClusterAdmin(Protocol):
    """Requests to the servers of one cluster. Each has a timeout and raises only `raptormq.errors.RaptorMQError`."""

    async def connect(self, address: str) -> None:
        """Resolve the host name and open a new connection, as a newly started client does."""

    async def listed_brokers(self, name_server: str) -> Listing:
        """Return the brokers registered on a name server (GET_BROKER_CLUSTER_INFO, 106)."""

    async def figures(self, broker: str) -> BrokerFigures:
        """Return the broker's runtime information (28)."""

    async def replication(self, broker: str, *, restarting: str | None = None) -> ReplicationState:
        """Return the status of the broker's group (31011), including whether `restarting` may be restarted."""

    async def transfer_leadership(self, broker: str, to: str | None = None) -> None:
        """Request a transfer of leadership (31012) to the member `to`, by default to the one with the longest log."""

    async def change_members(self, broker: str, action: str, member: str) -> None:
        """Request a membership change from the leader of a group (31014): `addLearner`, `promote` or `remove`."""

    async def certificate_end(self, address: str) -> datetime | None:
        """Return the expiry time of the server's certificate; None for a cluster without TLS."""

    async def topics_digest(self, broker: str) -> str:
        """Return a digest of the broker's topic configurations (21). The digest changes only when a topic changes."""

    async def all_topics(self, broker: str) -> BrokerTopics:
        """Return all topic configurations of the broker, and its messages that consumers do not read (21)."""

    async def change_topics(
        self, broker: str, before: BrokerTopics, wanted: Mapping[str, TopicAnswer]
    ) -> dict[str, RaptorMQError]:
        """Create or update topics on one broker, in batches (UPDATE_AND_CREATE_TOPIC_LIST, 18). `before` is the
        broker's latest snapshot. Return the rejected topics with their errors."""

    async def delete_topic(self, name_servers: str, topic: str) -> None:
        """Delete the topic from all registered brokers (215) and from the name servers (216)."""


class ClientAdmin:
    """`Admin` with real connections. Use it as an asynchronous context manager."""

    def __init__(self) -> None:
        tls = tls_from_environment() or ClientTls()
        # Without verification TLS protects from nobody who can intercept connections, so that servers which do not have
        # TLS yet, or any more, may be asked without.
        tls = tls if tls.auth_server else replace(tls, in_transition=True)
        self._plain, self._encrypted = ClientConfig(tls=None), ClientConfig(tls=tls)
        self._clients: dict[ClientConfig, AdminClient] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()
        await asyncio.gather(*self._closing)

    def speaking(self, tls: Tls | None, keys: Keys = ()) -> ClusterAdmin:
        """See `Admin.speaking`. For a cluster without TLS or a permissive one plain connections come first; TLS is the
        fallback for servers that still run in enforcing mode."""
        if tls is not None and tls.mode == "enforcing":
            kinds = [self._encrypted]
        else:
            kinds = [self._plain, self._encrypted]
        signed = [replace(kind, credentials=key) for kind in kinds for key in keys]
        return Questions([self._client(config) for config in signed or kinds], has_certificate=tls is not None)

    def _client(self, config: ClientConfig) -> tuple[ClientConfig, AdminClient]:
        client = self._clients.pop(config, None) or AdminClient(client_config=config)
        self._clients[config] = client  # most recently used
        if len(self._clients) > CLIENTS:  # replaced credentials and deleted clusters leave unused clients
            unused = self._clients.pop(next(iter(self._clients)))
            closing = asyncio.get_running_loop().create_task(unused.close(), name="close a client")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return config, client


class Questions:
    """`ClusterAdmin` over one or more clients. A request is repeated with the next client when the server closes the
    connection (wrong transport) or rejects the signature."""

    def __init__(self, clients: Sequence[tuple[ClientConfig, AdminClient]], *, has_certificate: bool = False) -> None:
        self._clients = clients
        self._has_certificate = has_certificate

    async def connect(self, address: str) -> None:
        await _connected(address)

    async def certificate_end(self, address: str) -> datetime | None:
        if not self._has_certificate:
            return None
        from cryptography import x509  # imported on demand: the module takes 8 MB of memory

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        shown = await _connected(address, context)
        return x509.load_der_x509_certificate(shown).not_valid_after_utc if shown else None

    async def listed_brokers(self, name_server: str) -> Listing:
        info = await self._ask(lambda client: client.cluster_info(name_server))
        return {
            (group.cluster, group.broker_name, broker_id): address
            for group in info.brokers.values()
            for broker_id, address in group.broker_addrs.items()
        }

    async def figures(self, broker: str) -> BrokerFigures:
        table = await self._ask(lambda client: client.runtime_info(broker))
        end = table.get("commitLogMaxOffset", "")
        return BrokerFigures(table.get("unknownSettings", ""), int(end) if end.isdecimal() else None)

    async def replication(self, broker: str, *, restarting: str | None = None) -> ReplicationState:
        return await self._ask(lambda client: client.replication(broker, restarting=restarting))

    async def transfer_leadership(self, broker: str, to: str | None = None) -> None:
        await self._ask(lambda client: client.transfer_leadership(broker, to))

    async def change_members(self, broker: str, action: str, member: str) -> None:
        await self._ask(lambda client: client.change_members(broker, action, member))

    async def topics_digest(self, broker: str) -> str:
        answer = await self._ask(lambda client: client.topic_configs(broker))
        return answer.digest

    async def all_topics(self, broker: str) -> BrokerTopics:
        answer = await self._ask(lambda client: client.topic_configs(broker, unreadable=True))
        return BrokerTopics(answer.topics, answer.unreadable)

    async def change_topics(
        self, broker: str, before: BrokerTopics, wanted: Mapping[str, TopicAnswer]
    ) -> dict[str, RaptorMQError]:
        refused: dict[str, RaptorMQError] = {}
        configs = [before.changed(topic, values) for topic, values in wanted.items()]
        for start in range(0, len(configs), TOPICS_AT_ONCE):
            await self._put(broker, configs[start : start + TOPICS_AT_ONCE], refused)
        return refused

    async def _put(self, broker: str, configs: list[TopicConfig], refused: dict[str, RaptorMQError]) -> None:
        """Update topics. A broker rejects a list as a whole, so a rejected list is bisected to find the bad topics."""
        try:
            await self._ask(lambda client: client.put_topics(broker, configs))
        except (ServerError, ConfigError, MessageError):
            if len(configs) == 1:
                await self._put_one(broker, configs[0], refused)
                return
            middle = len(configs) // 2
            await self._put(broker, configs[:middle], refused)
            await self._put(broker, configs[middle:], refused)

    async def _put_one(self, broker: str, config: TopicConfig, refused: dict[str, RaptorMQError]) -> None:
        """Update one topic with UPDATE_AND_CREATE_TOPIC (17), which all broker versions support and whose error names
        the cause."""

        async def put(client: AdminClient) -> None:
            await client.create_topic(
                config.topic_name,
                config.read_queue_nums,
                config.write_queue_nums,
                perm=int(config.perm),
                attributes=config.attributes,
                brokers=[broker],
            )

        try:
            await self._ask(put)
        except (ServerError, ConfigError, MessageError) as error:
            refused[config.topic_name] = error

    async def delete_topic(self, name_servers: str, topic: str) -> None:
        async def delete(config: ClientConfig, _: AdminClient) -> None:
            async with AdminClient(client_config=replace(config, name_servers=name_servers)) as client:
                await client.delete_topic(topic)

        await self._try(delete)

    async def _ask(self, question: Callable[[AdminClient], Awaitable[T]]) -> T:
        async def ask(_: ClientConfig, client: AdminClient) -> T:
            await client.start()
            return await question(client)

        return await self._try(ask)

    async def _try(self, attempt: Callable[[ClientConfig, AdminClient], Awaitable[T]]) -> T:
        *others, last = self._clients
        for config, client in others:
            try:
                return await attempt(config, client)
            except ConnectionClosed:
                continue  # the server expects the other transport (plain or TLS)
            except ServerError as error:
                if error.code != ResponseCode.NO_PERMISSION:
                    raise
        return await attempt(*last)


async def _connected(address: str, context: ssl.SSLContext | None = None) -> bytes | None:
    """Open and close a connection. Return the server's certificate (DER); None without TLS.

    Raises:
        ConnectError: The name cannot be resolved, or the connection failed or timed out.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    except TimeoutError as error:
        raise ConnectError(f"no new connection to {address} within {CONNECT_TIMEOUT_S:g} s") from error
    except (OSError, UnicodeError) as error:
        raise ConnectError(f"no new connection to {address}: {error}") from error
    try:
        connection = writer.get_extra_info("ssl_object")
        shown: bytes | None = connection.getpeercert(binary_form=True) if connection is not None else None
        return shown
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
