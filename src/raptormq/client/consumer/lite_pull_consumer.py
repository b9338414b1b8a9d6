"""`LitePullConsumer`: a group member that polls messages and commits their offsets.

    async with LitePullConsumer("reports", name_servers="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders")
        while messages := await consumer.poll(timeout=5):
            ...
            await consumer.commit()

The group assigns queues to this member. `commit` commits all messages that `poll` has returned. Messages that were
polled and not committed are delivered again. `PullConsumer` reads queues assigned by the caller instead.

See also: `consumer.buffered_consumer` starts and pauses, `consumer.delivery_buffer` contains the messages. Source:
RocketMQ `DefaultLitePullConsumer.subscribe`; Kafka `KafkaConsumer.poll`.
"""

from __future__ import annotations

import asyncio

from raptormq.client.cluster import ClientInstance
from raptormq.client.consumer.buffered_consumer import BufferedConsumer
from raptormq.client.consumer.delivery_buffer import DeliveryBuffer
from raptormq.client.consumer.queue_bounds import QueueQueries
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.lifecycle import require_loop
from raptormq.client.settings import LONG_MAX, Count, SecondsOrZero, check_setting
from raptormq.errors import ClientClosed, ClientError
from raptormq.protocol.message import MessageExt, MessageQueue


class LitePullConsumer(BufferedConsumer, QueueQueries):
    """One member of a consumer group that polls; arguments and errors are those of `BufferedConsumer`."""

    _ORDER_OF_MESSAGES = "in the order of each queue"
    _group: str

    async def close(self) -> None:
        """Leave the group; no effect if it is closed. Messages that were polled and not committed are delivered again.
        A cancelled close continues in the background.

        Raises:
            ClientClosed: the consumer was started in another event loop.
        """
        await self._close()

    async def poll(self, timeout: float = 5.0, *, max_messages: int = 32) -> list[MessageExt]:
        """Return the next messages, in order per queue; empty if none arrived within `timeout` seconds, or if the
        consumer was closed meanwhile. A cancelled poll takes no messages.

        Raises:
            ConfigError: an argument is out of range.
            ClientClosed: not started, or closed.
        """
        check_setting("timeout", timeout, SecondsOrZero)
        check_setting("max_messages", max_messages, Count)
        buffer = self._polling()
        try:
            async with asyncio.timeout(timeout):
                return list(await buffer.take(max_messages, 0.0))
        except TimeoutError:
            return list(buffer.take_ready(max_messages))  # they may wait: the loop was left to other tasks meanwhile

    async def commit(self) -> bool:
        """Commit the offsets of all polled messages, and wait for the brokers.

        Returns:
            False if a queue was given up meanwhile: its messages are delivered again, and they are logged.

        Raises:
            TransportError, ServerError, NoRoute: a broker did not accept an offset. All others were tried, and the
                offset is committed later (`ConsumerConfig.commit_interval`, and on close). If its queue is being given
                up, the messages may be delivered again.
            ClientClosed: not started, or closed.
        """
        is_complete = self._polling().ack_all()
        assert self._running is not None
        await self._running.commit()
        return is_complete

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next `poll` read an assigned queue from `offset`. Polled messages of the queue are abandoned. The new
        position is committed by the next commit.

        Raises:
            ClientError: the queue is not assigned now, or the offset is not a number from 0.
            ClientClosed: not started, or closed.
        """
        buffer, reader = self._polling(), self._reader(queue)
        wanted: object = offset
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 <= wanted <= LONG_MAX:
            raise ClientError(f"the offset must be a 64-bit integer of at least 0, not {offset!r}")
        buffer.forget(reader)
        reader.reset_to(offset)

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the message of an assigned queue that `poll` returns next; `None` while it is not known.

        Raises:
            ClientError: the queue is not assigned now.
            ClientClosed: not started, or closed.
        """
        return self._polling().next_offset(self._reader(queue))

    def _reader(self, queue: MessageQueue) -> QueueReader:
        assert self._running is not None
        for reader in self._running.rebalancer.readers:
            if reader.queue == queue:
                return reader
        raise ClientError(f"{queue} is not assigned to this member of {self._group} now")

    def _polling(self) -> DeliveryBuffer:
        self._started_instance()
        assert self._buffer is not None
        return self._buffer

    def _started_instance(self) -> ClientInstance:
        if self._running is None:
            raise ClientClosed("the consumer is not started, or closed")
        require_loop(self._running.loop)
        return self._running.instance
