"""`TransactionProducer`: messages that are delivered if and only if a local transaction succeeds.

    async def check(message):                      # called for transactions without a known result
        known = await orders.exists(message.keys[0])
        return TransactionState.COMMIT if known else TransactionState.ROLLBACK

    async with TransactionProducer("billing", check, topics=["orders"]) as producer:
        await producer.send_in_transaction(Message("orders", b"...", keys=("17",)), lambda _: orders.insert(17))

The message is stored as a half message, which is not delivered. Then the local transaction runs, and its result is sent
to the broker. Without a result the broker sends a check request to any producer of the group (39), which
`TransactionChecks` handles:

    broker --39--> group's `check` --> COMMIT or ROLLBACK --37--> the same broker
                                   `-> UNKNOWN, an error, or the local transaction still runs: no response, the
                                       broker asks again

A `TransactionProducer` registers its `check` in the `TransactionChecks` of its `cluster.client_instance`.

See also: `producer.producer`, which the transaction producer extends. Source: RocketMQ `TransactionMQProducer`,
`DefaultMQProducerImpl.sendMessageInTransaction`, `ClientRemotingProcessor.checkTransactionState`,
`DefaultMQProducerImpl.checkTransactionState`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Unpack

from raptormq.client.background import CANCELLED_S, PROGRAM_ENDS, background, cancel_all
from raptormq.client.cluster import ClientInstance, require_success
from raptormq.client.config import ClientConfig, ProducerConfig, ProducerSettings
from raptormq.client.interceptors import SendChain
from raptormq.client.listener_checks import require_async, require_awaitable, warn_if_plain
from raptormq.client.message import decode_messages, prepare_message
from raptormq.client.producer.accumulator import BatchQueue
from raptormq.client.producer.producer import Producer
from raptormq.client.producer.sender import MessageSender
from raptormq.client.results import SendResult, SendStatus, TransactionState
from raptormq.errors import ClientError, ConfigError, MessageError, NoRoute, RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from raptormq.protocol.message import DELAY_PROPERTIES, Message, MessageExt, MessageQueue
from raptormq.protocol.message_id import parse_offset_id
from raptormq.protocol.properties import encode_properties
from raptormq.protocol.record import SysFlag, decode_record
from raptormq.protocol.topic_names import check_topic
from raptormq.transport.connection import Connection
from raptormq.transport.timing import Backoff

log = get_logger(__name__)


MAX_CHECKS = 2_000
"""Maximum number of concurrent checks. The broker repeats dropped requests."""


Check = Callable[[MessageExt], Awaitable[TransactionState]]
"""An `async` function that looks up the result of the transaction of a message."""


async def state_of(
    result: Awaitable[TransactionState | None], what: str, nothing: TransactionState | None = None
) -> TransactionState:
    """Return the state that a function of the application has returned; `nothing` is the meaning of `None`.

    Raises:
        ClientError: the function is not async, or has returned another value.
    """
    state = await require_awaitable(result, what)
    if state is None and nothing is not None:
        return nothing
    if not isinstance(state, TransactionState):
        raise ClientError(f"{what} must return a TransactionState{' or None' if nothing else ''}, not {state!r}")
    return state


class TransactionChecks:
    """Transaction checks of the producers of one client, by group."""

    def __init__(self, instance: ClientInstance) -> None:
        self._keys = instance.config.keys
        self._checks: dict[str, list[tuple[Check, SendChain]]] = {}
        """Check functions and interceptors of each group, one pair per producer of this client."""
        self.executing: set[str] = set()
        """Ids of messages whose local transaction is running or whose result is being sent, over all producers."""
        self._tasks: set[asyncio.Task[None]] = set()
        instance.router.add(
            RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader, self._check_requested
        )

    def register(self, group: str, check: Check, interceptors: SendChain) -> None:
        """Register the check of a group. With several producers of a group, the last registered check is used."""
        self._checks.setdefault(group, []).append((check, interceptors))

    async def unregister(self, group: str, check: Check, interceptors: SendChain) -> None:
        """Unregister the check of one producer. After the last producer of the client, running checks are cancelled;
        one that continues for `CANCELLED_S` is logged and not waited for.
        """
        self._checks[group].remove((check, interceptors))
        if not self._checks[group]:
            del self._checks[group]
        if not self._checks:
            for task in await cancel_all(self._tasks, CANCELLED_S):
                log.error("%s ignores its cancellation; its producer is closed without it", task.get_name())

    def _check_requested(
        self, connection: Connection, command: RemotingCommand, header: CheckTransactionStateRequestHeader
    ) -> None:
        half = decode_record(command.body)
        queue = MessageQueue(half.topic, header.broker_name or "", half.queue_id)
        (message,) = decode_messages(command.body, queue, keys=self._keys)
        group = message.properties.get(names.PRODUCER_GROUP, "")
        if message.message_id in self.executing:
            return  # the transaction is still running, and a check without a result would roll it back
        checks = self._checks.get(group)
        if not checks or len(self._tasks) >= MAX_CHECKS:
            log.warning(
                "transaction %s of group %s is not checked: the group has no check function here, or too "
                "many checks are running",
                message.message_id,
                group,
            )
            return
        check, interceptors = checks[-1]
        result = self._answer(connection, header, group, check, interceptors, message)
        name = getattr(check, "__qualname__", repr(check))
        task = background(result, f"check {name} of transaction {message.message_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self,
        connection: Connection,
        header: CheckTransactionStateRequestHeader,
        group: str,
        check: Check,
        interceptors: SendChain,
        message: MessageExt,
    ) -> None:
        try:
            state = await state_of(check(message), "the check of transactions")
        except PROGRAM_ENDS:
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) and task.cancelling():
                raise  # by `unregister`, and not by what the check awaited
            log.exception("the check of transaction %s of group %s failed", message.message_id, group)
            return
        interceptors.ended_transaction(message, message.message_id, message.offset_message_id, state, from_check=True)
        if state is TransactionState.UNKNOWN:
            return
        decision = EndTransactionRequestHeader(
            producer_group=group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=header.transaction_id,
            topic=message.topic,
            broker_name=header.broker_name,
        )
        connection.oneway(request(RequestCode.END_TRANSACTION, decision, oneway=True))


_LOOKUP_BACKOFF = Backoff(0.5, 30.0)

Execute = Callable[[Message], Awaitable[TransactionState | None]]
"""An `async` function that runs the local transaction; `None` means it was committed."""


class TransactionResult(NamedTuple):
    """Result of `send_in_transaction`."""

    sent: SendResult
    """Position of the half message. Its queue is the queue from which consumers read the message."""
    state: TransactionState
    broker_knows: bool
    """False if the broker did not accept the result, or if `state` is UNKNOWN. The broker then sends a check, unless it
    already has the result.
    """


class TransactionProducer(Producer):
    """Producer with transactions.

    Args:
        group: brokers send checks of unfinished transactions to any of its members.
        check: looks up the result of the transaction of a message. It is not called while a producer with the same
            `ClientConfig` runs the transaction, but another client of the group may get the check meanwhile. After
            UNKNOWN the broker repeats the check.
        topics: topics of earlier transactions of the group, whose brokers may send checks before the first message is
            sent.
        name_servers, config, client_config, settings: as in `Producer`.

    Raises:
        ClientError: `check` cannot be called, or is certainly a plain function.
        MessageError, ConfigError: as in `Producer`, or `topics` is not a list of topics.
    """

    def __init__(
        self,
        group: str,
        check: Check,
        *,
        topics: Sequence[str] = (),
        name_servers: Sequence[str] | str | None = None,
        config: ProducerConfig | None = None,
        client_config: ClientConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__(group, name_servers=name_servers, config=config, client_config=client_config, **settings)
        require_async(check, "the check of transactions")
        warn_if_plain(check, "the check of transactions")
        self._check = check
        self._topics = _as_topics(topics)
        self._route_lookups: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the producer and accept checks; does nothing when it is started."""
        before = self._instance
        await super().start()
        instance = self._own_instance()
        if instance is not before:
            instance.shared(TransactionChecks).register(self._group, self._check, self._interceptors)
            self._route_lookups = [
                background(self._find_brokers(instance, topic), f"route of {topic}") for topic in self._topics
            ]

    async def _end(self, instance: ClientInstance, batch_queue: BatchQueue | None) -> None:
        await cancel_all(self._route_lookups)
        await instance.shared(TransactionChecks).unregister(self._group, self._check, self._interceptors)
        await super()._end(instance, batch_queue)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout: float | None = None
    ) -> TransactionResult:
        """Store a half message, run the local transaction, and commit or roll back.

        If `execute` raises an error, the error is propagated and the transaction stays open: only `check` can determine
        whether it took effect. The same holds for a `ClientError` because `execute` is not an async function or
        returned another value.

        Args:
            message: the message to send; it cannot be delayed.
            execute: `async` function with the local transaction; not called when the message could not be stored. It
                returns a `TransactionState`, or `None` when it was committed.
            timeout: seconds for the message, and again for the decision; default `ProducerConfig.send_timeout`.

        Raises:
            MessageError, NoRoute, TransportError, ServerError, ClientClosed: as in `send`; `execute` was not called.
            ClientError: `execute` cannot be called, or is certainly a plain function; nothing was sent.
        """
        sender, instance = self._running(), self._own_instance()
        require_async(execute, "a local transaction")
        timeout = self._seconds(timeout)
        with self._interceptors.around([message], None, in_transaction=True) as sending:
            [message] = sending.messages
            sent = sending.result = await self._send_half(sender, message, timeout)
        executing = instance.shared(TransactionChecks).executing
        executing.add(sent.message_id)
        try:
            state = TransactionState.ROLLBACK  # the broker may have lost the message
            if sent.status is SendStatus.SEND_OK:
                state = await state_of(execute(message), "a local transaction", nothing=TransactionState.COMMIT)
            ids = sent.message_id, sent.offset_message_id
            self._interceptors.ended_transaction(message, *ids, state, from_check=False)
            return TransactionResult(sent, state, await self._decide(instance, sent, state, timeout))
        finally:
            executing.discard(sent.message_id)

    async def _send_half(self, sender: MessageSender, message: Message, timeout: float) -> SendResult:
        """Send a message that is not delivered before the decision."""
        outgoing = prepare_message(message, self._ids, time.time_ns() // 1_000_000, self._config)
        if message.delay or not DELAY_PROPERTIES.isdisjoint(message.properties):
            raise MessageError("a message in a transaction cannot be delayed")
        outgoing.sys_flag |= int(SysFlag.TRANSACTION_PREPARED)
        outgoing.properties += encode_properties(
            {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self._group}
        )
        with self._pending_sends:
            return await sender.send(outgoing, None, None, timeout)

    async def _decide(
        self, instance: ClientInstance, sent: SendResult, state: TransactionState, timeout: float
    ) -> bool:
        """Send the result to the broker. Return False after a failure; the broker then sends a check."""
        if state is TransactionState.UNKNOWN:
            return False
        header = EndTransactionRequestHeader(
            producer_group=self._group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=parse_offset_id(sent.offset_message_id).physical_offset,
            commit_or_rollback=state.value,
            msg_id=sent.message_id,
            transaction_id=sent.message_id,
            topic=sent.queue.topic,
            broker_name=sent.queue.broker_name,
        )
        try:
            known = instance.routes.cached(sent.queue.topic)
            address = known.master(sent.queue.broker_name) if known is not None else None
            if address is None:
                raise NoRoute(f"broker {sent.queue.broker_name} has no master now")
            result = await instance.pool.request(address, request(RequestCode.END_TRANSACTION, header), timeout)
            require_success(result, address)
        except RaptorMQError as error:
            what = "the broker did not accept the decision on transaction %s, and asks unless it already has it: %s"
            log.warning(what, sent.message_id, error)
            return False
        return True

    async def _find_brokers(self, instance: ClientInstance, topic: str) -> None:
        """Register with the brokers of a topic by a heartbeat, so that they can send checks. Retries while the topic
        does not exist or no name server responds.
        """
        for failures in itertools.count():
            try:
                await instance.routes.find(topic)
            except RaptorMQError as error:
                log.log(
                    logging.DEBUG if failures else logging.WARNING,
                    "brokers of topic %s cannot check transactions until they are found: %s", topic, error,
                )  # fmt: skip
                await asyncio.sleep(_LOOKUP_BACKOFF.pause(failures))
            else:
                await instance.heartbeats.send_all()
                return


def _as_topics(topics: object) -> tuple[str, ...]:
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise ConfigError(f"topics must be a list of topics, not {topics!r}")
    listed = tuple(topics)
    for topic in listed:
        check_topic(topic)
    return listed
