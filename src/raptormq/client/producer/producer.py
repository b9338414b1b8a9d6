"""`Producer`: sends messages, one or many at a time.

    async with Producer("billing", name_servers="127.0.0.1:9876", auto_batch=True) as producer:
        result = await producer.send(Message("orders", b"...", tags="paid", keys=("order-17",)))
        await producer.send_batch([Message("orders", b"..."), Message("orders", b"...")])

Any number of sends may run concurrently; they share one connection per broker. With `auto_batch` they are also merged
into batches, see `accumulator`. See also: `message.send_request` validates messages, `producer.accumulator` merges
them, `producer.sender` sends with retries. Source: RocketMQ `DefaultMQProducer`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, TypeVar, Unpack

from raptormq.client.background import gather_all
from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ClientConfig, ProducerConfig, ProducerSettings, WhenFull
from raptormq.client.description import ProducerDescription
from raptormq.client.interceptors import SendChain, SendContext
from raptormq.client.lifecycle import Shutdown, Startable, require_loop, running_loop
from raptormq.client.message import (
    EncodedBatch,
    SendRequest,
    as_messages,
    check_destination,
    check_message,
    prepare_batch,
    prepare_encoded,
    prepare_message,
    prepare_only,
    prepare_redelivery,
    snapshot,
    with_sharding_key,
)
from raptormq.client.producer.accepted_send import AcceptedSend, WaitingFuture, WaitingSend, returns_coroutine
from raptormq.client.producer.accumulator import Accumulator, BatchQueue
from raptormq.client.producer.batch_encoding import EncodingSender
from raptormq.client.producer.batch_sender import Send
from raptormq.client.producer.callbacks import CLOSED, Callback, Waiter, complete, is_cancelled, require_callback
from raptormq.client.producer.message_trace import MessageTrace
from raptormq.client.producer.pending_sends import PendingSends
from raptormq.client.producer.queue_batches import QueueBatchesSender
from raptormq.client.producer.request_reply import PendingReplies, make_reply, reply_queue
from raptormq.client.producer.send_room import InLine, SendRoom
from raptormq.client.producer.sender import MessageSender, recall
from raptormq.client.results import SendResult
from raptormq.client.security import require_keys
from raptormq.client.settings import check_setting, checked_timeout
from raptormq.errors import Backpressure, ClientClosed, RaptorMQError, RequestTimeout, SendAttempt, ServerError
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.message import Message, MessageExt, MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.topic_names import check_group
from raptormq.transport.requests import BUCKET_S, COMPLETED_PER_TURN, complete_in_batches

F = TypeVar("F", bound=WaitingFuture)


class Producer(Startable):
    """Sends the messages of one producer group.

    Args:
        group: name of the group; brokers send transaction checks to any of its members.
        name_servers: `host:port;host:port`; default NAMESRV_ADDR, else 127.0.0.1:9876. Not together with
            `client_config`.
        config: settings for sending.
        client_config: connection settings. Producers and consumers with the same object share connections and are one
            client for the brokers.
        settings: fields of `ProducerConfig`, such as `auto_batch`, which replace the values of `config`.

    Raises:
        MessageError: `group` is not a group name.
        ConfigError: an address is not `host:port`, another argument is invalid, or there are no keys to encrypt with.
        TypeError: an argument is unknown.
    """

    def __init__(
        self,
        group: str = "DEFAULT_PRODUCER",
        *,
        name_servers: Sequence[str] | str | None = None,
        config: ProducerConfig | None = None,
        client_config: ClientConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        check_group(group)
        check_setting("config", config, ProducerConfig | None)
        self._group = group
        self._config = (config or ProducerConfig()).with_settings(settings)
        self._interceptors = SendChain(group, self._config.interceptors)
        self._is_intercepted = bool(self._interceptors)
        """Whether there are interceptors; stored, because testing the chain in every send takes longer."""
        self._client_config = ClientConfig.choose(client_config, name_servers)
        if self._config.encrypt:
            require_keys(self._client_config.keys)
        self._instance: ClientInstance | None = None
        self._trace: MessageTrace | None = None
        self._sender: MessageSender | None = None
        self._batch_queue: BatchQueue | None = None
        self._single_sends: set[asyncio.Task[SendResult]] = set()
        self._pending_sends = PendingSends()
        self._in_line = 0
        """Number of messages that wait for the in-flight limits without a coroutine."""
        self._waiting_calls: set[asyncio.Future[None]] = set()
        """Coroutines of `send` and `send_batch` that wait for these limits."""
        self._requests: set[asyncio.Future[MessageExt]] = set()
        """Replies that calls of `request` wait for."""
        self._announced: set[str] = set()
        """Topics whose brokers have received a heartbeat of this client."""
        self._last_callback: object = self  # an object that is not a callback
        """Last validated callback, to skip the check for repeated use."""
        self._shutdown = Shutdown(f"a producer of {group}")
        self._free_messages = self._config.max_in_flight_messages
        self._free_bytes = self._config.max_in_flight_bytes - self._config.max_message_bytes
        """Messages and bytes up to which no limit can be exceeded, so that `submit` skips `SendRoom.is_full`."""
        self._loop: asyncio.AbstractEventLoop
        """The event loop in which the producer was started."""
        self._thread = 0
        """The thread in which that loop ran last, or 0 while the producer is not started. Comparing it is faster than
        looking up the running loop.
        """
        self._room: SendRoom
        self._ids: UniqueIdFactory
        self._send_batch: Send

    async def start(self) -> None:
        """Start the producer; no effect if it is started. Brokers need not be available yet.

        Raises:
            ClientClosed: the producer was started in another event loop.
        """
        await self._shutdown.wait()
        if self._instance is not None:
            require_loop(self._instance.loop)
        else:
            instance = self._instance = ClientInstance.acquire(self._client_config)
            instance.register_producer(self._group)
            self._loop, self._thread = instance.loop, get_ident()
            self._ids = instance.unique_ids
            self._room = instance.shared(SendRoom.of)
            self._sender = MessageSender(instance, self._group, self._config)
            self._trace = MessageTrace.start(self._client_config, self._group, self._config)
            traced = () if self._trace is None else (self._trace.interceptor,)
            self._interceptors = SendChain(self._group, (*self._config.interceptors, *traced))
            self._is_intercepted = bool(self._interceptors)
            self._interceptors.started(self)
            encode: Callable[[SendRequest, MessageQueue], SendRequest] = _unchanged
            if self._config.compress_batches or self._config.encrypt:
                batches = EncodingSender(self._sender, self._config)
                self._send_batch, encode = batches.send, batches.encode
            else:
                self._send_batch = self._sender.send
            if self._config.auto_batch:
                kinds = self._sender.batch_support
                queue_batches = QueueBatchesSender(instance, self._sender, self._group, self._config, encode)
                self._batch_queue = instance.shared(Accumulator.of).acquire(
                    self._group, self._config, self._ids, self._send_batch, kinds, queue_batches
                )

    async def close(self) -> None:
        """Send the open batches, leave the group and close unshared resources; no effect if it is closed. The call
        never raises in the event loop of the producer, and takes a limited time: pending sends have
        `ClientConfig.close_timeout` to end. A cancelled close continues in the background. Calls of `send` and
        `send_batch` that wait for the limits, and calls of `request` that wait for the reply, raise `ClientClosed`.

        Raises:
            ClientClosed: called in another event loop.
        """
        instance, batch_queue = self._instance, self._batch_queue
        if instance is None:
            await self._shutdown.wait()
        else:
            require_loop(instance.loop)
            self._instance = self._sender = self._batch_queue = None
            self._thread = 0
            await self._shutdown.run(self._end(instance, batch_queue))

    async def _end(self, instance: ClientInstance, batch_queue: BatchQueue | None) -> None:
        # The waiting calls would find the producer closed anyway, perhaps after a long wait for another producer's
        # messages.
        complete_in_batches(tuple(self._waiting_calls), lambda call: call.set_exception(ClientClosed(CLOSED)))
        complete_in_batches(tuple(self._requests), lambda reply: reply.set_exception(ClientClosed(_NO_REPLY)))
        await self._refuse_in_line(_AwaitedInLine)
        if self._in_line:
            until = self._loop.time() + self._client_config.close_timeout
            while self._in_line and self._loop.time() < until:
                if batch_queue is not None:
                    batch_queue.flush()  # while the limits are reached, no message joins the open batches
                await asyncio.sleep(_FLUSH_INTERVAL_S)
            await self._refuse_in_line(_MessageInLine)
        timeout = self._client_config.close_timeout
        waits: list[Awaitable[object]] = [self._pending_sends.wait(timeout)]
        if self._single_sends:
            waits.append(asyncio.wait(tuple(self._single_sends), timeout=timeout))
        if batch_queue is not None:
            waits.append(batch_queue.release(timeout))
        await gather_all(waits)
        self._announced.clear()
        await instance.unregister_producer(self._group)
        await instance.release()
        if self._trace is not None:
            await self._trace.close()
        self._interceptors.closed(self)

    async def _refuse_in_line(self, kind: type[_MessageInLine]) -> None:
        """End the waits for the limits, in parts."""
        for number, waiting in enumerate(self._room.line):
            if isinstance(waiting, kind) and waiting.producer is self and not waiting.is_out:
                self._room.quit(waiting)
                waiting.end(ClientClosed(CLOSED))
            if number % COMPLETED_PER_TURN == COMPLETED_PER_TURN - 1:
                await asyncio.sleep(0)

    @returns_coroutine
    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, SendResult]:
        """Send one message and return where it was stored. With `auto_batch`, and while it waits for the in-flight
        limits, the message may be sent even if the result is not awaited.

        Args:
            message: the message to send.
            queue: queue of the message; by default queues are selected round-robin, avoiding failed brokers.
            key: the sharding key of the message: all messages with the same key go to the same queue, the one that
                Java's hash selector selects, and ordered consumers keep their order (`Order.BY_KEY`). To keep the
                order, await each send before the next send with the same key.
            timeout: seconds over all attempts; default `ProducerConfig.send_timeout`. With `auto_batch` a message with
                a timeout of its own is not merged.

        Raises:
            MessageError: the message breaks a rule; nothing was sent.
            ConfigError: the timeout is not a number above 0.
            NoRoute: the topic does not exist and brokers do not create topics, or no broker is up.
            TransportError: no broker responded in time; the message may have been stored.
            ServerError: the brokers refuse the message.
            ClientClosed: the producer is not started or closed, or was started in another event loop.
        """
        if key is None and timeout is None and self._sender is not None and not self._is_intercepted:
            accepted = self._accept(self._sender, message, queue)
            if accepted is not None:
                return accepted
        message = snapshot(message)  # the coroutine may run, or have room, only after the application has changed it
        if key is None and not self._is_intercepted:
            return self._send(message, queue, None, timeout)
        return self._send_later(message, queue, key, timeout)

    def _accept(self, sender: MessageSender, message: Message, queue: MessageQueue | None) -> AcceptedSend | None:
        """Add a message to its batch, or to the line of messages that wait for the limits, without a coroutine. Return
        None if a coroutine must send the message or raise the error, or if the caller runs in another thread or event
        loop.
        """
        room, batch_queue = self._room, self._batch_queue
        is_full = room.bytes > self._free_bytes or room.messages >= self._free_messages or room.waiting > 0
        if (batch_queue is None and not is_full) or (loop := running_loop()) is not self._loop:
            return None
        try:
            if is_full:
                if not room.is_full(self._config, _size_of(message)):
                    return None
                self._reject_invalid(message, queue)
                return self._wait_in_line(_AwaitedInLine, WaitingSend(loop=loop), sender, message, queue)
            assert batch_queue is not None
            accepted = AcceptedSend(loop=loop)
            return accepted if batch_queue.add(message, queue, accepted) is not None else None
        except RaptorMQError:
            return None

    async def _send_later(
        self, message: Message, queue: MessageQueue | None, key: str | None, timeout: float | None
    ) -> SendResult:
        self._running()
        if key is not None:
            message = _keyed(message, key, queue)
        if not self._is_intercepted:
            return await self._send(message, queue, key, timeout)
        with self._interceptors.around([message], queue) as sending:
            sending.result = await self._send(sending.messages[0], queue, key, timeout)
            return sending.result

    async def _send(
        self, message: Message, queue: MessageQueue | None, key: str | None, timeout: float | None
    ) -> SendResult:
        sender = self._running()
        with self._pending_sends:
            room, size, wait, clock = self._room, _size_of(message), self._seconds(timeout), self._loop.time
            deadline = clock() + wait
            earlier: tuple[SendAttempt, ...] = ()
            if room.is_full(self._config, size):
                self._reject_invalid(message, queue)
                self._interceptors.backpressured(message.topic, room.messages, room.bytes)
                await room.wait(self._config, size, wait, self._waiting_calls)
                sender = self._running()
            if self._batch_queue is not None and timeout is None:
                by_key = key is not None and queue is None
                target = await sender.queue_of(message.topic, key, deadline - clock()) if by_key else queue
                if (batch_queue := self._batch_queue) is None:
                    raise ClientClosed(CLOSED)
                merged = batch_queue.add(message, target, deadline=_if_late(deadline, clock() + wait))
                if merged is not None:
                    try:
                        return await merged
                    except ServerError as error:
                        if not (by_key and error.code == ResponseCode.INVALID_PARAMETER):
                            raise  # otherwise the topic may have fewer queues now, which changes the queue of the key
                        earlier = error.attempts
            left = max(deadline - clock(), _LAST_ATTEMPT_S)
            outgoing = prepare_message(message, self._ids, time.time_ns() // 1_000_000, self._config)
            room.enter(1, size)
            try:
                return await sender.send(outgoing, queue, key, left)
            except RaptorMQError as error:
                raise error.after(earlier) from error.__cause__
            finally:
                room.leave(1, size)

    def submit(self, message: Message, *, queue: MessageQueue | None = None) -> asyncio.Future[SendResult]:
        """Send one message without waiting. The returned future has the result or the error of `send`.

        `send_with_callback` is more efficient for many messages in flight.

        Raises:
            MessageError: the message breaks a rule; nothing was sent.
            Backpressure: too many messages are in flight, with `when_full=WhenFull.RAISE`; nothing was sent.
            ClientClosed: the producer is not started or closed, or was started in another event loop.
        """
        sender = self._sender
        if sender is None or get_ident() != self._thread or not self._loop.is_running():
            sender = self._running()
        if self._is_intercepted:
            context = self._interceptors.begin(message, queue)
            try:
                sent = self._submit(sender, context.message, queue)
            except RaptorMQError as error:
                self._interceptors.end(context, error)
                raise
            sent.add_done_callback(lambda done: self._interceptors.end(context, _outcome(done)))
            return sent
        return self._submit(sender, message, queue)

    def _submit(
        self, sender: MessageSender, message: Message, queue: MessageQueue | None
    ) -> asyncio.Future[SendResult]:
        room = self._room
        if (room.bytes > self._free_bytes or room.messages >= self._free_messages or room.waiting) and room.is_full(
            self._config, _size_of(message)
        ):
            self._require_room_to_wait(message, queue)
            return self._wait_in_line(_MessageInLine, WaitingFuture(loop=self._loop), sender, message, queue)
        merged = self._batch_queue.add(message, queue) if self._batch_queue is not None else None
        if merged is not None:
            return merged
        return self._send_single(sender, message, queue)

    def send_with_callback(self, message: Message, callback: Callback, *, queue: MessageQueue | None = None) -> None:
        """Send one message without waiting. `callback` is called once, with the `SendResult` or the exception of
        `send`. It must not block; its exceptions are logged.

        The most efficient way to send many messages, especially with `auto_batch`.

        Raises:
            MessageError: the message breaks a rule; nothing was sent.
            ClientError: the callback cannot be called, or is an async function.
            ClientClosed: the producer is not started or closed, or was started in another event loop.
        """
        if callback is not self._last_callback:
            require_callback(callback)
            self._last_callback = callback
        if get_ident() != self._thread or not self._loop.is_running():
            self._running()
        context = None
        if self._is_intercepted:
            context = self._interceptors.begin(message, queue)
            message, callback = context.message, partial(self._end_intercepted, context, callback)
        batch_queue, room = self._batch_queue, self._room
        try:
            if (room.bytes > self._free_bytes or room.messages >= self._free_messages or room.waiting) and room.is_full(
                self._config, _size_of(message)
            ):
                self._require_room_to_wait(message, queue)
                self._join_line(_MessageInLine, self._running(), message, queue, callback)
            elif batch_queue is None or batch_queue.add(message, queue, callback) is None:
                task = self._send_single(self._running(), message, queue)
                task.add_done_callback(partial(_complete_as, callback))
        except RaptorMQError as error:
            if context is not None:
                self._interceptors.end(context, error)
            raise

    def _end_intercepted(self, context: SendContext, callback: Callback, outcome: SendResult | BaseException) -> None:
        self._interceptors.end(context, outcome)
        callback(outcome)

    def _require_room_to_wait(self, message: Message, queue: MessageQueue | None) -> None:
        """Reject a message that must not wait for the limits.

        Raises:
            MessageError: the message breaks a rule.
            Backpressure: A limit is reached, and the producer has `when_full=WhenFull.RAISE`.
        """
        self._reject_invalid(message, queue)
        if self._config.when_full is WhenFull.RAISE:
            room = self._room
            raise Backpressure(
                f"{room.messages} messages with {room.bytes} bytes are in flight (max_in_flight_messages, "
                "max_in_flight_bytes): send again when others have their outcomes"
            )

    def _reject_invalid(self, message: Message, queue: MessageQueue | None) -> None:
        """Raise the `MessageError` of an invalid message before its wait, not after it."""
        check_message(message, self._config)
        check_destination(queue, message.topic)

    def _wait_in_line(
        self,
        kind: type[_MessageInLine],
        future: F,
        sender: MessageSender,
        message: Message,
        queue: MessageQueue | None,
    ) -> F:
        """Send a message as soon as the limits permit. Return the future, which gets its outcome."""
        future.in_line = self._join_line(kind, sender, message, queue, future)
        return future

    def _join_line(
        self,
        kind: type[_MessageInLine],
        sender: MessageSender,
        message: Message,
        queue: MessageQueue | None,
        waiter: Waiter,
    ) -> _MessageInLine:
        room = self._room
        self._interceptors.backpressured(message.topic, room.messages, room.bytes)
        waiting = kind(self, self._config, sender, self._batch_queue, snapshot(message), queue, waiter)
        room.join(waiting)
        self._in_line += 1
        return waiting

    def _leave_line(self, waiting: _MessageInLine, error: BaseException | None) -> None:
        """Send a message that has waited for the limits, or give its sender the error."""
        self._in_line -= 1
        waiter = waiting.waiter
        if isinstance(waiter, WaitingFuture):
            waiter.in_line = None
        if error is not None:
            complete(waiter, error)
        elif not is_cancelled(waiter):
            message, queue, batch_queue, now = waiting.message, waiting.queue, waiting.batch_queue, self._loop.time()
            late = _if_late(waiting.deadline, now + self._config.send_timeout)
            try:
                if batch_queue is None or batch_queue.add(message, queue, waiter, late) is None:
                    left = max(waiting.deadline - now, _LAST_ATTEMPT_S)
                    task = self._send_single(waiting.sender, message, queue, left)
                    task.add_done_callback(partial(_complete_as, waiter))
            except Exception as refused:  # noqa: BLE001 - such as a MemoryError; its sender gets it
                complete(waiter, refused)

    def _send_single(
        self, sender: MessageSender, message: Message, queue: MessageQueue | None, timeout: float | None = None
    ) -> asyncio.Task[SendResult]:
        outgoing = prepare_message(message, self._ids, time.time_ns() // 1_000_000, self._config)
        work = sender.send(outgoing, queue, None, self._seconds(timeout))
        task = asyncio.get_running_loop().create_task(work)
        self._single_sends.add(task)
        size = _size_of(message)
        self._room.enter(1, size)
        task.add_done_callback(lambda done: self._end_single(done, size))
        return task

    def _end_single(self, task: asyncio.Task[SendResult], size: int) -> None:
        self._single_sends.discard(task)
        self._room.leave(1, size)

    @returns_coroutine
    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, SendResult]:
        """Send messages of one topic as one request; they get consecutive offsets of one queue, all or none of them.

        The list is never merged with other messages; `split_messages` splits a list that is too long. The messages need
        the same topic and the same `wait_stored`, no delay and no retry topic. A list has at most 32,767 messages and 4
        MiB as encoded; encryption makes messages larger. Arguments and errors are those of `send`.
        """
        if isinstance(messages, Iterable):
            messages = list(messages)
            if key is None and self._sender and not self._is_intercepted and running_loop() is self._loop:
                with suppress(RaptorMQError):  # the other coroutine raises it
                    outgoing = self._prepare_list(messages)  # takes less time than the copies
                    return self._send_prepared(outgoing, queue, None, self._seconds(timeout))
            messages = list(map(snapshot, messages))
        return self._send_list(messages, queue, key, timeout)

    async def _send_list(
        self, messages: Iterable[Message], queue: MessageQueue | None, key: str | None, timeout: float | None
    ) -> SendResult:
        self._running()
        listed = as_messages(messages)
        if key is not None:
            listed = [_keyed(message, key, queue) for message in listed]
        with self._interceptors.around(listed, queue) as sending:
            outgoing = self._prepare_list(sending.messages)
            sending.result = await self._send_prepared(outgoing, queue, key, self._seconds(timeout))
            return sending.result

    def _prepare_list(self, messages: Iterable[Message]) -> SendRequest:
        return prepare_batch(as_messages(messages), self._ids, time.time_ns() // 1_000_000, self._config)

    async def send_encoded(self, batch: EncodedBatch) -> SendResult:
        """Send messages that the application has encoded as one request, which is not merged with others. Interceptors
        and the message trace do not see the batch. The message id of the result is that of the batch. The only message
        of a batch becomes a single message, which may be compressed, as with AutoBatch.

        Raises:
            MessageError: the topic or the tag is not valid, the topic takes no batches, or the batch is larger than
                `max_message_bytes`.
            NoRoute, TransportError, ServerError, ClientClosed: as in `send`. Code 3: the broker does not support
                batches, and `EncodedBatch.messages` must be sent one by one.
        """
        self._running()
        now_ms = time.time_ns() // 1_000_000
        if len(batch.message_ids) == 1:
            outgoing = prepare_only(batch, now_ms, self._config)
        else:
            outgoing = prepare_encoded(batch, self._ids, now_ms, self._config)
        return await self._send_prepared(outgoing, None, None, self._config.send_timeout)

    async def _send_prepared(
        self, outgoing: SendRequest, queue: MessageQueue | None, key: str | None, wait: float
    ) -> SendResult:
        self._running()
        with self._pending_sends:
            room, size, count = self._room, len(outgoing.body), max(outgoing.count, 1)
            if room.is_full(self._config, size):
                self._interceptors.backpressured(outgoing.topic, room.messages, room.bytes)
                began = self._loop.time()
                await room.wait(self._config, size, wait, self._waiting_calls)
                self._running()
                wait = max(wait - (self._loop.time() - began), _LAST_ATTEMPT_S)
            room.enter(count, size)
            try:  # cancelled if the caller cancels
                return await self._send_batch(outgoing, queue, key, wait, None)
            finally:
                room.leave(count, size)

    @returns_coroutine
    def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, key: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Send without a response from the broker. Whether the message was stored is unknown.

        Errors are those of `send` that occur before the message is sent.
        """
        return self._send_oneway(snapshot(message), queue, key)

    async def _send_oneway(self, message: Message, queue: MessageQueue | None, key: str | None) -> None:
        sender = self._running()
        if key is not None:
            message = _keyed(message, key, queue)
        with self._pending_sends, self._interceptors.around([message], queue) as sending:
            outgoing = prepare_message(sending.messages[0], self._ids, time.time_ns() // 1_000_000, self._config)
            await sender.send_oneway(outgoing, queue, key, self._config.send_timeout)

    async def recall(self, topic: str, recall_handle: str, *, timeout: float | None = None) -> str:
        """Cancel a message with a delivery time before it is delivered, and return its id.

        Whether the message still exists is not checked; brokers allow this only with `recallMessageEnable=true`.

        Args:
            topic: the topic that the message was sent to.
            recall_handle: `SendResult.recall_handle`.
            timeout: seconds; default `ProducerConfig.send_timeout`.

        Raises:
            MessageError: the handle is not valid.
            NoRoute: the broker of the message is down.
            TransportError: no response in time; the message may have been cancelled.
            ServerError: the broker refuses; code 604 when the delivery time has passed.
            ClientClosed: the producer is not started or closed, or was started in another event loop.
        """
        instance = self._own_instance()
        wait = self._seconds(timeout)
        return await recall(instance, self._group, topic, recall_handle, wait)

    @returns_coroutine
    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, MessageExt]:
        """Send a message and wait for the reply of its consumer (`reply`).

        `timeout` covers both and is sent with the message. Other arguments are those of `send`.

        Raises:
            RequestTimeout: no reply came in time; the message may have been consumed.
            MessageError, NoRoute, TransportError, ServerError, ClientClosed: as in `send`.
        """
        return self._request(snapshot(message), queue, key, timeout)

    async def _request(
        self, message: Message, queue: MessageQueue | None, key: str | None, timeout: float | None
    ) -> MessageExt:
        sender, instance = self._running(), self._own_instance()
        timeout = self._seconds(timeout)
        if key is not None:
            message = _keyed(message, key, queue)
        context = self._interceptors.begin(message, queue)
        try:
            return await self._send_request(sender, instance, context, key, timeout)
        except BaseException as error:
            if context.result is None:
                self._interceptors.end(context, error)
            raise

    async def _send_request(
        self, sender: MessageSender, instance: ClientInstance, context: SendContext, key: str | None, timeout: float
    ) -> MessageExt:
        message = context.message
        outgoing = prepare_message(message, self._ids, time.time_ns() // 1_000_000, self._config)
        clock = self._loop.time
        began = clock()
        deadline = began + timeout
        with instance.shared(PendingReplies).expect(outgoing, instance.client_id, timeout, self._requests) as reply:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._announce(message.topic, instance)
            except TimeoutError:
                raise RequestTimeout(
                    f"request {outgoing.message_id} was not sent: the route of topic {message.topic} and a heartbeat "
                    f"to its brokers took longer than {timeout:g} s"
                ) from None
            self._running()
            with self._pending_sends:
                sent = await sender.send(outgoing, context.queue, key, max(deadline - clock(), _LAST_ATTEMPT_S))
            self._interceptors.end(context, sent)
            try:
                return await self._replied(reply, outgoing.message_id, deadline, timeout)
            except RaptorMQError as error:
                attempt = SendAttempt(sent.queue.broker_name, None, clock() - began, "stored, no usable reply", True)
                raise error.with_attempts([attempt]) from error.__cause__

    async def _announce(self, topic: str, instance: ClientInstance) -> None:
        """Register the client at the brokers of a topic, which can then send it replies."""
        if topic not in self._announced:
            await self.queues(topic)
            await instance.heartbeats.send_all()
            self._announced.add(topic)

    @staticmethod
    async def _replied(
        reply: asyncio.Future[MessageExt], message_id: str, deadline: float, timeout: float
    ) -> MessageExt:
        try:
            async with asyncio.timeout_at(deadline):
                return await reply
        except TimeoutError:
            raise RequestTimeout(f"no reply to {message_id} within {timeout:g} s") from None

    @returns_coroutine
    def reply(
        self,
        request: MessageExt,
        body: bytes,
        *,
        properties: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, SendResult]:
        """Reply to a message that was sent by `request`; returns when the requester has the reply.

        Raises:
            MessageError: the message is not a request.
            ServerError: The requester is disconnected or does not respond.
            NoRoute, TransportError, ClientClosed: as in `send`.
        """
        return self._reply(request, snapshot(Message("", body, properties=properties or {})), timeout)

    async def _reply(self, request: MessageExt, message: Message, timeout: float | None) -> SendResult:
        sender = self._running()
        queue = reply_queue(request)
        message.topic = queue.topic
        with self._pending_sends, self._interceptors.around([message], queue) as sending:
            outgoing = prepare_message(sending.messages[0], self._ids, time.time_ns() // 1_000_000, self._config)
            make_reply(outgoing, request)
            sending.result = await sender.send(outgoing, queue, None, self._seconds(timeout))
            return sending.result

    async def redeliver(self, message: MessageExt, group: str, *, timeout: float | None = None) -> SendResult:
        """Send a stored message, for instance a dead letter, to one consumer group again. No other group receives it.

        The message goes to the retry topic of the group. Consumers receive it with its original topic, id, tag, keys
        and properties. Its deliveries are counted anew. The stored message is not changed.

        Raises:
            MessageError: `group` is not a group name, or the message was encrypted and this producer does not encrypt.
            NoRoute: no broker has the retry topic, because the group has never consumed.
            TransportError, ServerError, ClientClosed: as in `send`.
        """
        sender = self._running()
        outgoing = prepare_redelivery(message, group, self._config)
        with self._pending_sends:
            return await sender.send(outgoing, None, None, self._seconds(timeout))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic; for a topic that does not exist yet, the queues that it will get.

        Raises:
            NoRoute, TransportError, ClientClosed: as in `send`.
        """
        found = await self._own_instance().routes.find_for_sending(topic, self._config.default_topic_queues)
        return list(found.write_queues)

    def describe(self) -> ProducerDescription:
        """Return the messages in flight and the avoided brokers. Sends no request."""
        sender, instance = self._sender, self._instance
        if sender is None or instance is None:
            return ProducerDescription(self._group, None, 0, 0, 0, ())
        room = self._room
        return ProducerDescription(
            self._group,
            instance.client_id,
            room.messages,
            room.bytes,
            self._in_line + len(self._waiting_calls),
            sender.describe_brokers(),
        )

    def _seconds(self, timeout: float | None) -> float:
        return self._config.send_timeout if timeout is None else checked_timeout(timeout)

    def _running(self) -> MessageSender:
        if self._sender is None:
            raise ClientClosed("the producer is not started, or closed")
        if get_ident() != self._thread or not self._loop.is_running():
            require_loop(self._loop)
            self._thread = get_ident()
        return self._sender

    def _own_instance(self) -> ClientInstance:
        self._running()
        assert self._instance is not None
        return self._instance


class _MessageInLine(InLine):
    """A message that waits for the in-flight limits without a coroutine."""

    __slots__ = ("batch_queue", "message", "producer", "queue", "sender", "waiter")

    def __init__(
        self,
        producer: Producer,
        config: ProducerConfig,
        sender: MessageSender,
        batch_queue: BatchQueue | None,
        message: Message,
        queue: MessageQueue | None,
        waiter: Waiter,
    ) -> None:
        super().__init__(config, config.send_timeout)
        self.producer = producer
        self.sender = sender
        self.batch_queue = batch_queue
        self.message = message
        self.queue = queue
        self.waiter = waiter

    @property
    def size(self) -> int:
        return _size_of(self.message)

    def cancelled(self) -> None:
        """Leave the line, because the waiter was cancelled."""
        self.producer._room.quit(self)  # noqa: SLF001 - a part of the producer
        self.end(None)

    def end(self, error: BaseException | None) -> None:
        self.producer._leave_line(self, error)  # noqa: SLF001 - a part of the producer
        del self.message  # the line may still contain this object


class _AwaitedInLine(_MessageInLine):
    """A message of `send`, which is not sent when the producer is closed."""

    __slots__ = ()


_NO_REPLY = "the producer was closed before the reply came"
_FLUSH_INTERVAL_S = 0.01
"""Interval in seconds between two flushes of open batches while a closing producer sends its messages in line."""
_LAST_ATTEMPT_S = 0.001
"""Timeout in seconds of a message whose deadline has passed when the limits permit it."""


def _if_late(deadline: float, fresh: float) -> float | None:
    """Return the deadline of a message if it is noticeably earlier than `fresh`, that of a message sent now."""
    return deadline if fresh - deadline > BUCKET_S else None


def _keyed(message: Message, key: str, queue: MessageQueue | None) -> Message:
    check_destination(queue, getattr(message, "topic", ""), key)
    return with_sharding_key(message, key)


_BYTES = (bytes, bytearray, memoryview)  # a tuple, because a union would be created for every message


def _size_of(message: Message) -> int:
    """Return the size of a body; 0 for a value that is not a message, which is rejected later."""
    body = getattr(message, "body", b"")
    return len(body) if isinstance(body, _BYTES) else 0


def _outcome(done: asyncio.Future[SendResult]) -> SendResult | BaseException:
    return ClientClosed(CLOSED) if done.cancelled() else done.exception() or done.result()


def _complete_as(waiter: Waiter, done: asyncio.Future[SendResult]) -> None:
    complete(waiter, _outcome(done))


def _unchanged(outgoing: SendRequest, _: MessageQueue) -> SendRequest:
    return outgoing
