"""`RaptorBroker`: the object with which a FastStream application declares its handlers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from fast_depends import Provider, dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import make_logger_state
from faststream.exceptions import SetupError
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from raptormq.client import (
    AdminClient,
    ClientConfig,
    MessageExt,
    Producer,
    ProducerConfig,
    SendResult,
)
from raptormq.errors import RaptorMQError
from raptormq.faststream.config import LoggerStorage, RaptorBrokerConfig
from raptormq.faststream.message import StreamRaptorMessage
from raptormq.faststream.producer import RaptorProducer
from raptormq.faststream.registrator import RaptorRegistrator
from raptormq.faststream.response import PublishOptions, RaptorPublishCommand, RequestOptions
from raptormq.faststream.subscriber import RaptorSubscriber

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
    from faststream.specification.schema.extra import Tag, TagDict


class RaptorBroker(RaptorRegistrator, BrokerUsecase[MessageExt, Producer, RaptorBrokerConfig]):
    """A FastStream broker that sends and receives with :mod:`raptormq.client`.

    Args:
        name_servers: `host:port;host:port`; default NAMESRV_ADDR, else 127.0.0.1:9876. Not together with
            `client_config`.
        client_config: connections, TLS and credentials.
        producer_group: group of the producer.
        producer_config: how messages are sent.
        ack_policy: what happens after an error of a handler; by default the message is delivered again.
        graceful_timeout: seconds for which a stop waits for running handlers.
        parser, decoder, codec, dependencies, middlewares, routers, id_generator, logger, log_level, apply_types,
            serializer, provider, context: as for FastStream's other brokers.
        specification_url, description, tags: for AsyncAPI.

    Raises:
        ConfigError: an address is not `host:port`.
    """

    def __init__(
        self,
        name_servers: Sequence[str] | str | None = None,
        *,
        client_config: ClientConfig | None = None,
        producer_group: str = "DEFAULT_PRODUCER",
        producer_config: ProducerConfig | None = None,
        ack_policy: AckPolicy = EMPTY,
        graceful_timeout: float | None = 15.0,
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RaptorRegistrator] = (),
        id_generator: IdGenerator = gen_cor_id,
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
        specification_url: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
    ) -> None:
        shared = ClientConfig.choose(client_config, name_servers)
        self._producer_group = producer_group
        self._producer_config = producer_config
        super().__init__(
            routers=routers,
            config=RaptorBrokerConfig(
                producer=RaptorProducer(parser, decoder),
                client_config=shared,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                broker_dependencies=dependencies,
                logger=make_logger_state(logger=logger, log_level=log_level, default_storage_cls=LoggerStorage),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                url=[specification_url] if specification_url else list(shared.name_servers),
                protocol="rocketmq",
                protocol_version=None,
                description=description,
                tags=tags,
                security=None,
            ),
        )

    async def start(self) -> None:
        """Connect, and start all subscribers.

        Raises:
            SetupError: two subscribers have the same group.
            NoRoute, TransportError, ServerError: a consumer cannot be started.
        """
        groups = Counter(each.group for each in self.subscribers if isinstance(each, RaptorSubscriber) and each.calls)
        shared = sorted(group for group, count in groups.items() if count > 1)
        if shared:
            raise SetupError(
                f"{groups[shared[0]]} subscribers have the group {shared[0]}: all members of a group consume the same"
                " topics, so give each subscriber a group of its own"
            )
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop all subscribers and close the producer."""
        await super().stop(exc_type, exc_val, exc_tb)
        producer, self._connection = self._connection, None
        self.config.broker_config.disconnect()
        if producer is not None:
            await producer.close()

    async def _connect(self) -> Producer:
        producer = Producer(
            self._producer_group, config=self._producer_config, client_config=self.config.broker_config.client_config
        )
        await producer.start()
        self.config.broker_config.connect(producer)
        return producer

    async def ping(self, timeout: float | None = None) -> bool:
        """Return whether a name server knows a broker, within ``timeout`` seconds."""
        try:
            async with (
                asyncio.timeout(timeout),
                AdminClient(client_config=self.config.broker_config.client_config) as admin,
            ):
                return bool((await admin.cluster_info()).brokers)
        except (RaptorMQError, TimeoutError):
            return False

    async def publish(self, message: Any, topic: str, **options: Unpack[PublishOptions]) -> SendResult:
        """Send a value to a topic, and return where it is stored.

        Args:
            message: bytes, text, or what FastStream encodes as JSON, such as a pydantic model.
            topic: a topic.
            key: sharding key: messages with the same key go to the same queue, and subscribers with an order keep their
                order.
            tag: tag, by which subscribers filter.
            keys: words by which the message is found.
            delay: when the message is delivered.
            headers: properties.
            correlation_id: id that connects messages of one flow; a new one by default.
            timeout: seconds; default `ProducerConfig.send_timeout`.
            **options: the arguments from `key` on.

        Raises:
            IncorrectState: the broker is not connected.
            MessageError, NoRoute, TransportError, ServerError: as :meth:`raptormq.client.Producer.send`.
            TypeError: an argument is unknown.
        """
        command = RaptorPublishCommand.build(message, PublishType.PUBLISH, topic, options, self.config.id_generator)
        result: SendResult = await self._basic_publish(command, producer=self.config.producer)
        return result

    async def request(  # type: ignore[override] # the base has only the first two arguments
        self, message: Any, topic: str, **options: Unpack[RequestOptions]
    ) -> StreamRaptorMessage:
        """Send a value and return the reply of its handler; ``await reply.decode()`` returns the value of the reply.
        The arguments are those of :meth:`publish` without ``keys`` and ``delay``; ``timeout`` covers the message and
        the reply.

        Raises:
            IncorrectState, MessageError, NoRoute, TransportError, ServerError, TypeError: as :meth:`publish`;
                `RequestTimeout` when no reply came.
        """
        command = RaptorPublishCommand.build(message, PublishType.REQUEST, topic, options, self.config.id_generator)
        reply: StreamRaptorMessage = await self._basic_request(command, producer=self.config.producer)
        return reply
