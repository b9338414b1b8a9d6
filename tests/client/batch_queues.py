"""A batch queue of AutoBatch, with a replacement for the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from raptormq.client.config import ProducerConfig
from raptormq.client.message.send_request import SendRequest
from raptormq.client.producer.accumulator import Accumulator, BatchQueue
from raptormq.client.producer.broker_features import BatchSupport
from raptormq.client.producer.queue_batches import QueueBatchesSender
from raptormq.client.producer.send_room import SendRoom
from raptormq.client.results import SendResult, SendStatus
from raptormq.errors import ServerError
from raptormq.protocol.batch import decode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.message import Message, MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory, encode_host

LONG_MS = 30_000.0
QUEUE = MessageQueue("t", "b", 3)
LONG_TEXT = b"again and again " * 300


class Broker:
    """Replacement for `MessageSender`. It records requests and responds like a broker with a SimpleCQ topic."""

    def __init__(self) -> None:
        self.sent: list[SendRequest] = []
        self.queues: list[MessageQueue | None] = []
        self.timeouts: list[float] = []
        self.on_send: Callable[[], None] = lambda: None
        self.error: Callable[[SendRequest], Exception | None] = lambda _outgoing: None
        self.whole = False
        self.silent = False
        self.speaks = asyncio.Event()
        """Set to complete the requests that were sent while the sender was silent."""
        self.kinds = BatchSupport(brokers=lambda _topic: (QUEUE.broker_name,))

    async def send(
        self,
        outgoing: SendRequest,
        queue: MessageQueue | None,
        key: str | None,
        timeout: float,
        _is_awaited: Callable[[], bool] | None,
    ) -> SendResult:
        assert key is None
        self.timeouts.append(timeout)
        self.sent.append(outgoing)
        self.queues.append(queue)
        if self.silent:
            await self.speaks.wait()
        self.on_send()
        if (error := self.error(outgoing)) is not None:
            if isinstance(error, ServerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self.kinds.note_batches_refused((queue or QUEUE).broker_name)
            raise error
        single = self.whole or outgoing.code != RequestCode.SEND_BATCH_MESSAGE
        count = 1 if single else len(decode_batch(outgoing.body))
        ids = ",".join(f"offset-{number}" for number in range(count))
        return SendResult(SendStatus.SEND_OK, outgoing.message_id, ids, queue or QUEUE, 100)


class NoQueueBatches:
    """Replacement for `QueueBatchesSender` with brokers that do not support its request."""

    def serves(self, _broker_name: str) -> bool:
        return False


def make_batch_queue(
    broker: Broker,
    accumulator: Accumulator | None = None,
    queue_batches: QueueBatchesSender | None = None,
    **settings: float,
) -> BatchQueue:
    values = {"batch_max_delay_ms": LONG_MS, **settings}
    config = ProducerConfig(auto_batch=True, **values)  # type: ignore[arg-type]
    ids = UniqueIdFactory(encode_host("127.0.0.1", 0)[:-4], 1, 2)
    shared = accumulator or Accumulator(SendRoom())
    sender = queue_batches or cast("QueueBatchesSender", NoQueueBatches())
    return shared.acquire("g", config, ids, broker.send, broker.kinds, sender)


def add(batch_queue: BatchQueue, message: Message, queue: MessageQueue | None = None) -> asyncio.Future[SendResult]:
    future = batch_queue.add(message, queue)
    assert future is not None
    return future
