"""Blocking client: wraps the asynchronous client with an event loop in a daemon thread.

Intended for scripts, notebooks and Spark workers. Each object has its own thread. The timeout of a call is that of the
wrapped call plus a margin. Objects cannot be used after a fork. Most methods are generated from the wrapped methods,
with the same parameters, types and documentation. See also: `producer.producer`, `consumer.pull_consumer`,
`admin.client`, which do the work.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from raptormq.client.admin import AdminClient
from raptormq.client.background import CANCELLED_S, cancel_all
from raptormq.client.config import ClientConfig, ConsumeFromWhere, ProducerConfig, ProducerSettings
from raptormq.client.consumer import PullConsumer, PullResult, Sql
from raptormq.client.description import ProducerDescription
from raptormq.client.lifecycle import Startable
from raptormq.client.message import as_queues, snapshot
from raptormq.client.producer import Producer
from raptormq.client.results import SendResult
from raptormq.client.settings import SecondsOrZero, check_setting
from raptormq.errors import ClientClosed, ClientError, ConfigError, RequestTimeout
from raptormq.logs import get_logger
from raptormq.protocol.message import Message, MessageExt, MessageQueue

log = get_logger(__name__)

_CLOSED = "the client is closed"
_MARGIN_S = 10.0
_MAX_REQUESTS = 10
"""Maximum number of requests of one call. The default timeout of a call is the sum of so many request timeouts."""

P = ParamSpec("P")
T = TypeVar("T")


W_co = TypeVar("W_co", bound=Startable, covariant=True)


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._submitting = threading.RLock()  # a signal handler may submit during a submit
        self._is_stopping = False
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        """Run a coroutine in the thread and return its result.

        Raises:
            RequestTimeout: The call took longer than `timeout` seconds and was cancelled.
            ClientClosed: the thread was stopped.
            ClientError: called in the thread itself.
        """
        try:
            self.require_other_thread()
        except ClientError:
            work.close()
            raise
        future = self.submit(work)
        try:
            return future.result(min(timeout, threading.TIMEOUT_MAX))
        except concurrent.futures.CancelledError:
            if not self._is_stopping:
                raise
            raise ClientClosed(_CLOSED) from None
        except concurrent.futures.TimeoutError:
            if future.done():
                raise  # raised by the coroutine itself
            raise RequestTimeout(f"the call took longer than {timeout:g} s") from None
        finally:
            future.cancel()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine in the thread and return its future.

        Raises:
            ClientClosed: the thread was stopped, or has ended: by a `SystemExit` in it, or in this process by a fork.
        """
        if self._thread.is_alive():  # asked first, because after a fork the lock may remain locked
            with self._submitting:  # `stop` cancels all that was submitted before it
                if not self._is_stopping:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise ClientClosed(_CLOSED)

    def require_other_thread(self) -> None:
        """Raise `ClientError` in the thread itself, as in a callback, because a wait there would never end."""
        if threading.current_thread() is self._thread:
            raise ClientError("called in the event loop of this client: use submit, or another thread")

    def stop(self) -> None:
        """Stop the thread and cancel its remaining tasks; no effect if it is stopped or has ended.

        Raises:
            ClientError: called in the thread itself.
        """
        self.require_other_thread()
        if not self._thread.is_alive():
            return
        with self._submitting:
            if self._is_stopping:
                return
            self._is_stopping = True
            cancelling = asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop)
        cancelling.result(_MARGIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_MARGIN_S)
        if not self._thread.is_alive():
            self._loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        current = asyncio.current_task()
        for task in await cancel_all((each for each in asyncio.all_tasks() if each is not current), CANCELLED_S):
            log.error("%s ignores its cancellation; the client is closed without it", task.get_name())


class Blocking(Generic[W_co]):
    """Base class that starts and closes the wrapped object. Subclasses add the methods.

    Args:
        wrapped: the asynchronous object.
        config: the client configuration, which determines the timeouts.
        longest_s: seconds that the longest call may take in addition to its requests.
    """

    def __init__(self, wrapped: W_co, config: ClientConfig, longest_s: float = 0.0) -> None:
        self._wrapped = wrapped
        wrapped.advise_closing(f"{type(self).__name__}: call its close(), or use with")
        self._wait_s = longest_s + _MAX_REQUESTS * config.request_timeout + _MARGIN_S
        self._close_wait_s = self._wait_s + config.close_timeout
        self._thread: LoopThread | None = None
        """The thread from the start to the end of the close: other threads settle messages meanwhile."""
        self._closing = threading.RLock()  # a signal handler may call close() during a close()

    def start(self) -> Self:
        """Start the object; no effect if it is started."""
        if self._thread is None:
            self._thread = LoopThread(f"raptormq {type(self).__name__}")
            try:
                self._run(self._wrapped.start())
            except BaseException:
                self.close()
                raise
        return self

    def close(self) -> None:
        """Close the object and stop its thread; no effect if it is closed.

        Raises:
            ClientError: called in that thread, for example by a callback.
        """
        thread = self._thread
        if thread is None:
            return
        thread.require_other_thread()
        if not self._closing.acquire(blocking=False):
            # Another thread closes the object. It does not wait for the messages of a thread that closes it, too.
            with suppress(ClientClosed):
                thread.run(self._end(), self._close_wait_s)
            self._closing.acquire()
        try:
            if self._thread is thread:
                self._stop(thread)
        finally:
            self._closing.release()

    def _stop(self, thread: LoopThread) -> None:
        try:
            thread.run(self._end(), self._close_wait_s)
        finally:
            self._thread = None
            thread.stop()

    def _end(self) -> Coroutine[Any, Any, None]:
        """Return the coroutine that closes the object."""
        return self._wrapped.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        try:
            check_setting("timeout", timeout, SecondsOrZero | None)
        except ConfigError:
            work.close()
            raise
        return self._running(work).run(work, self._wait_s if timeout is None else timeout + _MARGIN_S)

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return self._running(work).submit(work)

    def _running(self, work: Coroutine[Any, Any, Any]) -> LoopThread:
        if self._thread is None:
            work.close()
            raise ClientClosed(f"the {type(self).__name__} is not started, or closed")
        return self._thread


def _blocking(
    call: Callable[Concatenate[W_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[W_co], P], T]:
    """Return the blocking form of `call`. A keyword argument `timeout` replaces the default waiting time."""

    @functools.wraps(call, updated=())  # its marks would make the method async
    def blocking(self: Blocking[W_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        timeout = cast("float | None", kwargs.get("timeout"))
        return self._run(call(self._wrapped, *args, **kwargs), timeout)

    return cast("Callable[Concatenate[Blocking[W_co], P], T]", blocking)


class BlockingProducer(Blocking[Producer]):
    """`Producer` without await; see there for arguments and errors."""

    def __init__(
        self,
        group: str = "DEFAULT_PRODUCER",
        *,
        name_servers: Sequence[str] | str | None = None,
        config: ProducerConfig | None = None,
        client_config: ClientConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        shared = ClientConfig.choose(client_config, name_servers)
        producer = Producer(group, config=config, client_config=shared, **settings)
        sending = (config or ProducerConfig()).with_settings(settings)
        super().__init__(producer, shared, sending.send_timeout + sending.batch_max_delay_ms / 1000)

    send = _blocking(Producer.send)
    send_batch = _blocking(Producer.send_batch)
    send_encoded = _blocking(Producer.send_encoded)
    send_oneway = _blocking(Producer.send_oneway)
    request = _blocking(Producer.request)
    reply = _blocking(Producer.reply)
    recall = _blocking(Producer.recall)
    redeliver = _blocking(Producer.redeliver)
    queues = _blocking(Producer.queues)

    def describe(self) -> ProducerDescription:
        """Return the messages in flight and the avoided brokers."""
        if self._thread is None:
            return self._wrapped.describe()

        async def describe() -> ProducerDescription:
            return self._wrapped.describe()

        return self._run(describe())

    def submit(self, message: Message, *, queue: MessageQueue | None = None) -> concurrent.futures.Future[SendResult]:
        """Send one message without waiting. The returned future has the result or the error of `send`. Its callbacks
        run in the event loop of the producer: they may call `submit`; other calls raise `ClientError` there.
        """
        copied = snapshot(message)

        async def send() -> SendResult:
            return await self._wrapped.submit(copied, queue=queue)

        return self._submit(send())


class BlockingPullConsumer(Blocking[PullConsumer]):
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
        shared = ClientConfig.choose(client_config, name_servers)
        consumer = PullConsumer(
            group=group,
            consume_from=consume_from,
            consume_from_ms=consume_from_ms,
            expression=expression,
            client_config=shared,
        )
        super().__init__(consumer, shared)

    queues = _blocking(PullConsumer.queues)
    topic_id = _blocking(PullConsumer.topic_id)
    min_offset = _blocking(PullConsumer.min_offset)
    max_offset = _blocking(PullConsumer.max_offset)
    offset_by_time = _blocking(PullConsumer.offset_by_time)
    committed = _blocking(PullConsumer.committed)
    members = _blocking(PullConsumer.members)
    commit = _blocking(PullConsumer.commit)

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
        topic_id: str | None = None,
    ) -> PullResult:
        """Read from `offset` without changing assignments or positions."""
        pulling = self._wrapped.pull(
            queue,
            offset,
            max_count,
            max_bytes=max_bytes,
            timeout=timeout,
            suspend_ms=suspend_ms,
            expression=expression,
            topic_id=topic_id,
        )
        return self._run(pulling, timeout if timeout is not None else self._wait_s + suspend_ms / 1000)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues and no others."""
        wanted = as_queues(queues)

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
        """Return the next messages of the assigned queues; empty if none arrived within `timeout` seconds."""
        return self._run(self._wrapped.poll(timeout), timeout)


class BlockingAdminClient(Blocking[AdminClient]):
    """`AdminClient` without await; see there for arguments and errors."""

    def __init__(
        self, *, name_servers: Sequence[str] | str | None = None, client_config: ClientConfig | None = None
    ) -> None:
        shared = ClientConfig.choose(client_config, name_servers)
        super().__init__(AdminClient(client_config=shared), shared)

    create_topic = _blocking(AdminClient.create_topic)
    delete_topic = _blocking(AdminClient.delete_topic)
    topics = _blocking(AdminClient.topics)
    route = _blocking(AdminClient.route)
    topic_config = _blocking(AdminClient.topic_config)
    topic_configs = _blocking(AdminClient.topic_configs)
    put_topics = _blocking(AdminClient.put_topics)
    convert_queue = _blocking(AdminClient.convert_queue)
    topic_stats = _blocking(AdminClient.topic_stats)
    find_messages = _blocking(AdminClient.find_messages)
    message = _blocking(AdminClient.message)
    groups = _blocking(AdminClient.groups)
    group_settings = _blocking(AdminClient.group_settings)
    create_group = _blocking(AdminClient.create_group)
    delete_group = _blocking(AdminClient.delete_group)
    group_progress = _blocking(AdminClient.group_progress)
    reset_group = _blocking(AdminClient.reset_group)
    group_connections = _blocking(AdminClient.group_connections)
    cluster_info = _blocking(AdminClient.cluster_info)
    lost_brokers = _blocking(AdminClient.lost_brokers)
    masters = _blocking(AdminClient.masters)
    runtime_info = _blocking(AdminClient.runtime_info)
    broker_settings = _blocking(AdminClient.broker_settings)
    update_broker_settings = _blocking(AdminClient.update_broker_settings)
    replication = _blocking(AdminClient.replication)
    transfer_leadership = _blocking(AdminClient.transfer_leadership)
    promote_slave = _blocking(AdminClient.promote_slave)
    change_members = _blocking(AdminClient.change_members)
    users = _blocking(AdminClient.users)
    create_user = _blocking(AdminClient.create_user)
    update_user = _blocking(AdminClient.update_user)
    delete_user = _blocking(AdminClient.delete_user)
    acls = _blocking(AdminClient.acls)
    put_acl = _blocking(AdminClient.put_acl)
    delete_acl = _blocking(AdminClient.delete_acl)
