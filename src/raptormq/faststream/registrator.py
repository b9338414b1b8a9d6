"""Declares subscribers and publishers of brokers and routers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.middlewares import AckPolicy

from raptormq.client import ConsumerConfig, MessageExt, Order, Sql
from raptormq.client.settings import check_setting
from raptormq.errors import ConfigError
from raptormq.faststream.config import RaptorBrokerConfig
from raptormq.faststream.publisher import (
    RaptorPublisher,
    RaptorPublisherConfig,
    RaptorPublisherSpecification,
    RaptorPublisherSpecificationConfig,
)
from raptormq.faststream.subscriber import (
    Batch,
    RaptorSubscriber,
    RaptorSubscriberConfig,
    RaptorSubscriberSpecification,
    RaptorSubscriberSpecificationConfig,
    consuming,
)

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import CustomCallable


class RaptorRegistrator(Registrator[MessageExt, RaptorBrokerConfig]):
    """Common base class of brokers and routers."""

    def subscriber(  # type: ignore[override] # the base registers a subscriber, brokers declare one
        self,
        topic: str,
        *,
        group: str,
        expression: str | Sql = "*",
        order: Order | None = None,
        max_workers: int | None = None,
        batch: bool = False,
        max_records: int | None = None,
        batch_timeout_ms: int | None = None,
        config: ConsumerConfig | None = None,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> RaptorSubscriber:
        """Declare a subscriber, which decorates handlers.

        Args:
            topic: a topic.
            group: consumer group. Subscribers of one broker need different ones, because all members of a group consume
                the same topics.
            expression: `*`, tags as in `TagA || TagB`, or `Sql`.
            order: `Order.BY_KEY` or `Order.BY_QUEUE` for handlers that are called in order; default that of `config`.
            max_workers: maximum number of concurrent handlers; default `ConsumerConfig.concurrency`, 20.
            batch: handlers get lists of messages, which are settled together. With an order the messages of a list have
                the same queue or key.
            max_records: with `batch`: maximum number of messages of a list; 32 by default.
            batch_timeout_ms: with `batch`: milliseconds to wait for a full list after its first message; 200 by
                default. Lists in order do not wait.
            config: how to fetch, retry and commit.
            ack_policy: what happens after an error: by default the message is delivered again (`NACK_ON_ERROR`), with
                `REJECT_ON_ERROR` it becomes a dead letter.
            no_reply: send no reply to requests.
            dependencies: called before each handler.
            parser: creates FastStream's message from the received message.
            decoder: decodes the body into a value.
            codec: replaces the decoder, and the encoder of replies.
            persistent: whether the broker keeps the subscriber alive.
            title, description, include_in_schema: for AsyncAPI.

        Raises:
            ConfigError: a value is out of range, or `max_records` or `batch_timeout_ms` is given without `batch`.
        """
        batches = _batch(batch=batch, max_records=max_records, batch_timeout_ms=batch_timeout_ms)
        outer = cast("RaptorBrokerConfig", self.config)
        calls = CallsCollection[MessageExt]()
        subscriber = RaptorSubscriber(
            RaptorSubscriberConfig(
                topic=topic,
                group=group,
                expression=expression,
                consuming=consuming(config, order, max_workers, batches),
                batch=batches,
                no_reply=no_reply,
                _outer_config=outer,
                _ack_policy=ack_policy,
            ),
            RaptorSubscriberSpecification(
                outer,
                RaptorSubscriberSpecificationConfig(
                    topic=topic, title_=title, description_=description, include_in_schema=include_in_schema
                ),
                calls,
            ),
            calls,
        )
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override] # the base registers a publisher, brokers declare one
        self,
        topic: str,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: dict[str, str] | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
    ) -> RaptorPublisher:
        """Declare a publisher, which decorates handlers and sends their results to a topic.

        Args:
            topic: a topic.
            key: sharding key of all messages; `RaptorResponse` sets another one for a single message.
            tag: tag.
            headers: properties.
            persistent: whether the broker keeps the publisher alive.
            title, description, schema, include_in_schema: for AsyncAPI.
        """
        outer = cast("RaptorBrokerConfig", self.config)
        publisher = RaptorPublisher(
            RaptorPublisherConfig(topic=topic, key=key, tag=tag, headers=headers or {}, _outer_config=outer),
            RaptorPublisherSpecification(
                outer,
                RaptorPublisherSpecificationConfig(
                    topic=topic,
                    schema_=schema,
                    title_=title,
                    description_=description,
                    include_in_schema=include_in_schema,
                ),
            ),
        )
        super().publisher(publisher, persistent=persistent)
        return publisher


def _batch(*, batch: bool, max_records: int | None, batch_timeout_ms: int | None) -> Batch | None:
    check_setting("batch", batch, bool)
    given = {"max_records": max_records, "timeout_ms": batch_timeout_ms}
    changes = {name: value for name, value in given.items() if value is not None}
    if batch:
        return Batch(**changes)
    if changes:
        raise ConfigError("max_records and batch_timeout_ms need batch=True")
    return None
