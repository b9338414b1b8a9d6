"""The client without `await`: the same objects behind an event loop in a daemon thread.

For scripts, notebooks and Spark workers. Each object has a thread of its own, so that programs need not know what a
loop is; every call waits at most as long as the call it wraps, plus a margin. Not usable after a fork.
Neighbours: `producer`, `pull_consumer`, `admin`, which do the work.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from raptormq.client.admin import AdminClient
from raptormq.client.config import ClientConfig, ConsumeFromWhere, ProducerConfig
from raptormq.client.producer import Producer
from raptormq.client.pull_consumer import PullConsumer
from raptormq.client.pulling import PullResult
from raptormq.client.results import SendResult
from raptormq.client.sql import Sql
from raptormq.errors import ClientClosed, RequestTimeout
from raptormq.protocol.bodies.conversion import QueueConversionState
from raptormq.protocol.bodies.queues import TopicOffset
from raptormq.protocol.bodies.route import ClusterInfo, TopicRoute
from raptormq.protocol.bodies.topic_config import READ_WRITE, TopicConfig
from raptormq.protocol.message import Message, MessageExt, MessageQueue

_MARGIN_S = 10.0
_DEFAULT_WAIT_S = 30.0

T = TypeVar("T")


class _Startable(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


W = TypeVar("W", bound=_Startable)


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        """Run a coroutine there and return its result.

        Raises:
            RequestTimeout: it took longer than `timeout` seconds; it was cancelled.
            ClientClosed: the thread was stopped.
        """
        future = self.submit(work)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise  # the work's own error
            raise RequestTimeout(f"the call took longer than {timeout:g} s") from None
        finally:
            future.cancel()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine there and return at once what will hold its result.

        Raises:
            ClientClosed: the thread was stopped.
        """
        if not self._thread.is_alive():
            work.close()
            raise ClientClosed("the client is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """Stop the thread; what still runs there is cancelled. Does nothing the second time."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result(_MARGIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_MARGIN_S)
        if not self._thread.is_alive():
            self._loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Blocking(Generic[W]):
    """Starts and closes the wrapped object; subclasses add its calls."""

    def __init__(self, wrapped: W) -> None:
        self._wrapped = wrapped
        self._thread: LoopThread | None = None

    def start(self) -> Self:
        """Make it usable; does nothing when it is."""
        if self._thread is None:
            self._thread = LoopThread(f"raptormq {type(self).__name__}")
            self._run(self._wrapped.start())
        return self

    def close(self) -> None:
        """Close it and stop its thread; does nothing the second time."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            thread.run(self._wrapped.close(), _DEFAULT_WAIT_S)
        finally:
            thread.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        return self._running(work).run(work, _DEFAULT_WAIT_S if timeout is None else timeout + _MARGIN_S)

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return self._running(work).submit(work)

    def _running(self, work: Coroutine[Any, Any, Any]) -> LoopThread:
        if self._thread is None:
            work.close()
            raise ClientClosed(f"the {type(self).__name__} is not started, or closed")
        return self._thread


class BlockingProducer(_Blocking[Producer]):
    """`Producer` without await; see there for arguments and errors."""

    def __init__(
        self,
        group: str = "DEFAULT_PRODUCER",
        *,
        name_servers: Sequence[str] | str | None = None,
        config: ProducerConfig | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        super().__init__(Producer(group, name_servers=name_servers, config=config, client_config=client_config))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send one message and return where it was stored."""
        return self._run(self._wrapped.send(message, queue=queue, key=key, timeout=timeout), timeout)

    def submit(self, message: Message, *, queue: MessageQueue | None = None) -> concurrent.futures.Future[SendResult]:
        """Send one message and return at once: the future holds what `send` returns or raises."""

        async def send() -> SendResult:
            return await self._wrapped.submit(message, queue=queue)

        return self._submit(send())

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> MessageExt:
        """Send a message and wait for the reply that its consumer makes."""
        return self._run(self._wrapped.request(message, queue=queue, key=key, timeout=timeout), timeout)

    def reply(
        self,
        request: MessageExt,
        body: bytes,
        *,
        properties: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Answer a message that was sent by `request`."""
        return self._run(self._wrapped.reply(request, body, properties=properties, timeout=timeout), timeout)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send messages of one topic as one request."""
        return self._run(self._wrapped.send_batch(messages, queue=queue, key=key, timeout=timeout), timeout)

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None, key: str | None = None) -> None:
        """Send without waiting for the broker."""
        self._run(self._wrapped.send_oneway(message, queue=queue, key=key))

    def recall(self, topic: str, recall_handle: str, *, timeout: float | None = None) -> str:
        """Take back a message with a delivery time before it is delivered, and return its id."""
        return self._run(self._wrapped.recall(topic, recall_handle, timeout=timeout), timeout)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be sent to."""
        return self._run(self._wrapped.queues(topic))


class BlockingPullConsumer(_Blocking[PullConsumer]):
    """`PullConsumer` without await; see there for arguments and errors."""

    def __init__(
        self,
        *,
        name_servers: Sequence[str] | str | None = None,
        group: str | None = None,
        consume_from: ConsumeFromWhere = ConsumeFromWhere.FIRST,
        consume_from_ms: int = 0,
        expression: str | Sql = "*",
        client_config: ClientConfig | None = None,
    ) -> None:
        consumer = PullConsumer(
            name_servers=name_servers,
            group=group,
            consume_from=consume_from,
            consume_from_ms=consume_from_ms,
            expression=expression,
            client_config=client_config,
        )
        super().__init__(consumer)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, in order."""
        return self._run(self._wrapped.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the queue's first message."""
        return self._run(self._wrapped.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        return self._run(self._wrapped.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time (ms since 1970), else the maximum."""
        return self._run(self._wrapped.offset_by_time(queue, timestamp_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return where the group stands, `None` when it never committed."""
        return self._run(self._wrapped.committed(queue))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int = 32,
        *,
        max_bytes: int | None = None,
        timeout: float | None = None,
        suspend_ms: int = 0,
        expression: str | Sql = "*",
    ) -> PullResult:
        """Read from `offset` without touching assignments or positions."""
        pulling = self._wrapped.pull(
            queue,
            offset,
            max_count,
            max_bytes=max_bytes,
            timeout=timeout,
            suspend_ms=suspend_ms,
            expression=expression,
        )
        return self._run(pulling, timeout if timeout is not None else _DEFAULT_WAIT_S + suspend_ms / 1000)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues and no others."""
        wanted = list(queues)

        async def assign() -> None:
            self._wrapped.assign(wanted)

        self._run(assign())

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next `poll` read an assigned queue from `offset`."""

        async def seek() -> None:
            self._wrapped.seek(queue, offset)

        self._run(seek())

    def position(self, queue: MessageQueue) -> int | None:
        """Return the next offset that `poll` reads."""
        return self._wrapped.position(queue)

    def poll(self, timeout: float = 5.0) -> list[MessageExt]:
        """Return the next messages of the assigned queues; empty when none came within `timeout` s."""
        return self._run(self._wrapped.poll(timeout), timeout)

    def commit(self) -> None:
        """Store the positions of all assigned queues as the group's progress."""
        self._run(self._wrapped.commit())


class BlockingAdminClient(_Blocking[AdminClient]):
    """`AdminClient` without await; see there for arguments and errors."""

    def __init__(
        self, *, name_servers: Sequence[str] | str | None = None, client_config: ClientConfig | None = None
    ) -> None:
        super().__init__(AdminClient(name_servers=name_servers, client_config=client_config))

    def create_topic(
        self,
        topic: str,
        read_queues: int = 8,
        write_queues: int = 8,
        *,
        perm: int = READ_WRITE,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
        order: bool = False,
    ) -> None:
        """Create a topic, or change it."""
        creation = self._wrapped.create_topic(
            topic, read_queues, write_queues, perm=perm, attributes=attributes, brokers=brokers, order=order
        )
        self._run(creation)

    def delete_topic(self, topic: str, *, brokers: Iterable[str] | None = None) -> None:
        """Delete a topic."""
        self._run(self._wrapped.delete_topic(topic, brokers=brokers))

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return self._run(self._wrapped.topics())

    def route(self, topic: str, name_server: str | None = None) -> TopicRoute | None:
        """Return where a topic is, `None` when it does not exist."""
        return self._run(self._wrapped.route(topic, name_server))

    def topic_config(self, broker_addr: str, topic: str) -> TopicConfig | None:
        """Return how a broker serves a topic, `None` when it does not."""
        return self._run(self._wrapped.topic_config(broker_addr, topic))

    def convert_queue(self, broker_addr: str, topic: str, action: str, to: str | None = None) -> QueueConversionState:
        """Start, stop or describe a broker's conversion of the queues of a topic; see `AdminClient.convert_queue`."""
        return self._run(self._wrapped.convert_queue(broker_addr, topic, action, to))

    def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the bounds of every queue of a topic."""
        return self._run(self._wrapped.topic_stats(topic))

    def cluster_info(self, name_server: str | None = None) -> ClusterInfo:
        """Return all broker groups."""
        return self._run(self._wrapped.cluster_info(name_server))

    def runtime_info(self, broker_addr: str) -> dict[str, str]:
        """Return a broker's figures by name."""
        return self._run(self._wrapped.runtime_info(broker_addr))
