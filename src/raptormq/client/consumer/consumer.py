"""`Consumer`: a group member whose messages are received with `async for` and settled individually.

    async with Consumer("billing", name_servers="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders", "paid || refunded")
        async for message in consumer:
            ...
            await message.ack()

Several tasks may iterate at the same time: each message goes to one of them. Delivery is at least once: the committed
offset is that of the first unsettled message.
See also: `consumer.buffered_consumer` starts and pauses, `consumer.delivery_buffer` delivers messages,
`consumer.delivery` settles them; `consumer.push_consumer` calls listeners instead. Source: aiokafka for the loop,
`SimpleConsumer` of RocketMQ 5 for single acknowledgements.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from raptormq.client.consumer.buffered_consumer import BufferedConsumer
from raptormq.client.consumer.delivery import ReceivedBatch, ReceivedMessage
from raptormq.client.consumer.delivery_buffer import DeliveryBuffer
from raptormq.client.lifecycle import Startable, require_loop
from raptormq.client.settings import Count, SecondsOrZero, check_setting
from raptormq.errors import ClientClosed


class Consumer(BufferedConsumer, Startable):
    """One member of a consumer group that passes its messages to a loop; arguments and errors are those of
    `BufferedConsumer`.
    """

    _ORDER_OF_MESSAGES = "in no order"

    async def close(self) -> None:
        """End all loops, wait for other tasks to settle their messages (`ClientConfig.close_timeout`), commit and leave
        the group; no effect if it is closed. Unsettled messages are delivered again. A cancelled close continues in the
        background. A call from an iterating task does not wait for the messages of that task.

        Raises:
            ClientClosed: the consumer was started in another event loop.
        """
        await self._close()

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Iterate over messages, until the consumer is closed."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message. A cancelled call takes no message.

        Raises:
            ClientClosed: the consumer was never started, or was started in another event loop.
            StopAsyncIteration: the consumer is closed.
        """
        taken = await self._taking().take(1, 0.0)
        if not taken:
            raise StopAsyncIteration
        return taken[0]

    def batches(self, *, max_messages: int = 32, max_wait: float = 1.0) -> AsyncGenerator[ReceivedBatch, None]:
        """Iterate over batches of messages, until the consumer is closed.

        Args:
            max_messages: maximum number of messages of a batch. Limits of unfinished messages
                (`max_messages_per_queue`) can keep batches smaller.
            max_wait: seconds to wait for a full batch after its first message.

        Raises:
            ConfigError: an argument is out of range.
            ClientClosed: the consumer was never started, or was started in another event loop.
        """
        check_setting("max_messages", max_messages, Count)
        check_setting("max_wait", max_wait, SecondsOrZero)
        self._taking()
        return self._batches(max_messages, max_wait)

    async def _batches(self, max_messages: int, max_wait: float) -> AsyncGenerator[ReceivedBatch, None]:
        while taken := await self._taking().take(max_messages, max_wait):
            yield ReceivedBatch(taken)

    def _taking(self) -> DeliveryBuffer:
        if self._buffer is None or (self._running is None and not self._buffer.is_closed):
            raise ClientClosed("the consumer is not started: use async with, or await its start()")
        if self._running is not None:
            require_loop(self._running.loop)
        return self._buffer
