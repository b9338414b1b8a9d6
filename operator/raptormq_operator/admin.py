"""The few questions that the operator asks name servers and brokers, over `raptormq.client.AdminClient`.

`Admin` is the seam that tests replace; `ClientAdmin` is the only place where the operator uses the client. To a cluster
with TLS it speaks TLS, as the environment of its process says: with a certificate of its own or without, verifying the
servers' or not.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, Self, TypeVar

from raptormq.client import AdminClient, ClientConfig, ClientTls, TopicConfig
from raptormq.client.security import tls_from_environment
from raptormq.errors import ConfigError, ConnectError, ConnectionClosed, MessageError, RaptorMQError, ServerError
from raptormq.protocol.codes import ResponseCode
from raptormq_operator.access_keys import Keys
from raptormq_operator.model.cluster import Tls

T = TypeVar("T")

TOPICS_AT_ONCE = 500
"""Topics of one request that changes them: about 100 kB."""

CONNECT_TIMEOUT_S = 3.0
CLIENTS = 500
"""One for each way to connect and each key."""

Listing = Mapping[tuple[str, str, int], str]
"""(cluster name, broker name, broker id) -> address, as a name server lists them."""


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """What a broker says about a topic."""

    read_queues: int
    write_queues: int
    perm: int
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """What a broker says about itself (GET_BROKER_RUNTIME_INFO, 28)."""

    unknown_settings: str = ""
    """What it says of settings that it does not know, most often nothing."""
    max_offset: int | None = None
    """Where its commit log ends, in bytes; it only grows, unless a disk is lost."""


@dataclass(frozen=True, slots=True)
class BrokerTopics:
    """What a broker says about all its topics at one time (GET_ALL_TOPIC_CONFIG, 21)."""

    configs: Mapping[str, TopicConfig]

    def get(self, topic: str) -> TopicAnswer | None:
        """One topic; None when the broker has no such topic."""
        config = self.configs.get(topic)
        if config is None:
            return None
        return TopicAnswer(config.read_queue_nums, config.write_queue_nums, int(config.perm), config.attributes)

    def changed(self, topic: str, values: TopicAnswer) -> TopicConfig:
        """The topic with other values; what a resource says nothing about, such as `order`, stays as it is."""
        return replace(
            self.configs.get(topic) or TopicConfig(topic),
            read_queue_nums=values.read_queues,
            write_queue_nums=values.write_queues,
            perm=values.perm,
            attributes=dict(values.attributes),
        )


class Admin(Protocol):
    """Where the operator's questions come from."""

    def speaking(self, tls: Tls | None, keys: Keys = ()) -> ClusterAdmin:
        """The questions to a cluster with such connections, signed with the first of `keys` that it takes."""


class ClusterAdmin(Protocol):
    """Every call is bounded in time and raises only `raptormq.errors.RaptorMQError`."""

    async def connect(self, address: str) -> None:
        """Resolves the name and opens a connection, as a client does that has none yet."""

    async def listed_brokers(self, name_server: str) -> Listing:
        """Brokers that a name server lists (106)."""

    async def figures(self, broker: str) -> BrokerFigures:
        """What the broker says about itself (28)."""

    async def certificate_end(self, address: str) -> datetime | None:
        """When the certificate ends that the server shows; None for a cluster without TLS."""

    async def topics_digest(self, broker: str) -> str:
        """The same for as long as the broker's topics are the same (21); an answer is a sign of life."""

    async def all_topics(self, broker: str) -> BrokerTopics:
        """All topics as the broker has them (21)."""

    async def change_topics(
        self, broker: str, before: BrokerTopics, wanted: Mapping[str, TopicAnswer]
    ) -> dict[str, RaptorMQError]:
        """Creates or changes topics on one broker, many with one request (18). `before` is what it answered last.
        Returns those that it refused."""

    async def delete_topic(self, name_servers: str, topic: str) -> None:
        """Deletes the topic from every broker that is registered, and from the name servers (215, 216)."""


class ClientAdmin:
    """`Admin` over the network. Use as an asynchronous context manager."""

    def __init__(self) -> None:
        self._plain, self._encrypted = ClientConfig(tls=None), ClientConfig(tls=tls_from_environment() or ClientTls())
        self._clients: dict[ClientConfig, AdminClient] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()
        await asyncio.gather(*self._closing)

    def speaking(self, tls: Tls | None, keys: Keys = ()) -> ClusterAdmin:
        """A permissive cluster takes plain connections, but for servers that still run as enforcing ones."""
        if tls is None:
            kinds = [self._plain]
        elif tls.mode == "enforcing":
            kinds = [self._encrypted]
        else:
            kinds = [self._plain, self._encrypted]
        signed = [replace(kind, credentials=key) for kind in kinds for key in keys]
        return Questions([self._client(config) for config in signed or kinds])

    def _client(self, config: ClientConfig) -> tuple[ClientConfig, AdminClient]:
        client = self._clients.pop(config, None) or AdminClient(client_config=config)
        self._clients[config] = client  # used last
        if len(self._clients) > CLIENTS:  # keys are replaced, and clusters go
            unused = self._clients.pop(next(iter(self._clients)))
            closing = asyncio.get_running_loop().create_task(unused.close(), name="close a client")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return config, client


class Questions:
    """The questions to one cluster: each is put by one client after the other while servers hang up on them, or do not
    take their signature."""

    def __init__(self, clients: Sequence[tuple[ClientConfig, AdminClient]]) -> None:
        self._clients = clients

    async def connect(self, address: str) -> None:
        await _connected(address)

    async def certificate_end(self, address: str) -> datetime | None:
        if all(config.tls is None for config, _ in self._clients):
            return None
        from cryptography import x509  # 8 MB that an operator of plain clusters can do without

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

    async def topics_digest(self, broker: str) -> str:
        answer = await self._ask(lambda client: client.topic_configs(broker))
        return answer.digest

    async def all_topics(self, broker: str) -> BrokerTopics:
        answer = await self._ask(lambda client: client.topic_configs(broker))
        return BrokerTopics(answer.topics)

    async def change_topics(
        self, broker: str, before: BrokerTopics, wanted: Mapping[str, TopicAnswer]
    ) -> dict[str, RaptorMQError]:
        refused: dict[str, RaptorMQError] = {}
        configs = [before.changed(topic, values) for topic, values in wanted.items()]
        for start in range(0, len(configs), TOPICS_AT_ONCE):
            await self._put(broker, configs[start : start + TOPICS_AT_ONCE], refused)
        return refused

    async def _put(self, broker: str, configs: list[TopicConfig], refused: dict[str, RaptorMQError]) -> None:
        """A broker refuses a list as a whole, so what it refuses is found by halves."""
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
        """By the request that every version of the broker knows (17), whose refusal says what is wrong."""

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
                continue  # the server wants connections of the other kind
            except ServerError as error:
                if error.code != ResponseCode.NO_PERMISSION:
                    raise
        return await attempt(*last)


async def _connected(address: str, context: ssl.SSLContext | None = None) -> bytes | None:
    """Opens a connection and closes it again; returns the certificate that the server has shown (DER), if any.

    Raises:
        ConnectError: nobody answers, or the name has no address.
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
