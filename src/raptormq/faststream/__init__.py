"""A FastStream broker for RaptorMQ and Apache RocketMQ (extra ``faststream``).

    broker = RaptorBroker("127.0.0.1:9876")
    app = FastStream(broker)

    @broker.subscriber("orders", group="billing")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice:
        ...

Handlers, dependencies, serialization, middlewares, routers, lifespan and AsyncAPI are FastStream's; fetching, order,
retries and dead letters are those of :mod:`raptormq.client`. FastStream has no public interface for third-party
brokers, so this package uses the internal modules of FastStream's own brokers (``faststream._internal``). The extra
therefore pins the minor version of FastStream.
"""

from __future__ import annotations

from raptormq.faststream.annotations import RaptorBatch, RaptorMessage
from raptormq.faststream.broker import RaptorBroker
from raptormq.faststream.response import RaptorResponse
from raptormq.faststream.router import RaptorPublisherRoute, RaptorRoute, RaptorRouter
from raptormq.faststream.testing import TestRaptorBroker

__all__ = [
    "RaptorBatch",
    "RaptorBroker",
    "RaptorMessage",
    "RaptorPublisherRoute",
    "RaptorResponse",
    "RaptorRoute",
    "RaptorRouter",
    "TestRaptorBroker",
]
