"""Routers: subscribers and publishers that a broker includes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from raptormq.client import MessageExt
from raptormq.faststream.config import RaptorBrokerConfig
from raptormq.faststream.registrator import RaptorRegistrator

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.types import BrokerMiddleware, CustomCallable


class RaptorPublisherRoute(ArgsContainer):
    """A publisher of a route; the arguments are those of ``publisher``."""

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)


class RaptorRoute(SubscriberRoute):
    """A handler of a router with its subscriber; the other arguments are those of ``subscriber``."""

    def __init__(
        self,
        call: Callable[..., Any] | Callable[..., Awaitable[Any]],
        topic: str,
        *,
        publishers: Iterable[RaptorPublisherRoute] = (),
        **options: Any,
    ) -> None:
        super().__init__(call, topic, publishers=publishers, **options)


class RaptorRouter(RaptorRegistrator, BrokerRouter[MessageExt, RaptorBrokerConfig]):
    """Subscribers and publishers for ``broker.include_router``.

    Args:
        prefix: prefix of the names of all its topics.
        handlers: routes.
        dependencies: called before each handler.
        middlewares: called around each message of its subscribers and publishers.
        routers: other routers.
        parser, decoder, ack_policy: defaults of its subscribers.
        include_in_schema: for AsyncAPI.
    """

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[RaptorRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RaptorRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        ack_policy: AckPolicy = EMPTY,
        include_in_schema: bool | None = None,
    ) -> None:
        super().__init__(
            handlers=handlers,
            config=RaptorBrokerConfig(
                prefix=prefix,
                ack_policy=ack_policy,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                include_in_schema=include_in_schema,
            ),
            routers=routers,
        )
