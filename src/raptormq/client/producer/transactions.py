"""`TransactionProducer`: messages that consumers get if and only if a local transaction succeeds.

    async def check(message):                      # called for transactions whose end the broker does not know
        known = await orders.exists(message.keys[0])
        return TransactionState.COMMIT if known else TransactionState.ROLLBACK

    async with TransactionProducer("billing", check, topics=["orders"]) as producer:
        await producer.send_in_transaction(Message("orders", b"...", keys=("17",)), lambda _: orders.insert(17))

The message is stored as a half message, which consumers do not get; then the local transaction runs; then its end is
sent to the broker. If any of this is lost, the broker asks any producer of the group (39). `TransactionChecks` answers:

    broker --39--> group's `check` --> COMMIT or ROLLBACK --37--> the same broker
                                   `-> UNKNOWN, an error, or the local transaction still runs: no response, the
                                       broker asks again

A `TransactionProducer` registers its `check` there; all producers of a `cluster.client_instance` share the table.

Neighbour: `producer.producer`, which the transaction producer extends. Source: RocketMQ `TransactionMQProducer`,
`DefaultMQProducerImpl.sendMessageInTransaction`, `ClientRemotingProcessor.checkTransactionState`,
`DefaultMQProducerImpl.checkTransactionState`.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Unpack

from raptormq.client.background import background, cancel_all
from raptormq.client.cluster import ClientInstance, require_success
from raptormq.client.config import ClientConfig, ProducerConfig, ProducerSettings
from raptormq.client.listener_checks import require_async, require_awaitable, warn_if_plain
from raptormq.client.message import decode_messages, prepare_message
from raptormq.client.producer.accumulator import BatchQueue
from raptormq.client.producer.producer import Producer
from raptormq.client.results import SendResult, SendStatus
from raptormq.errors import ClientError, ConfigError, MessageError, NoRoute, RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.transaction import (
    COMMIT,
    NOT_DECIDED,
    ROLLBACK,
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
"""Checks that run at a time; the broker repeats a request that is dropped."""


class TransactionState(enum.Enum):
    """The end of a local transaction."""

    COMMIT = COMMIT
    """Consumers get the message."""
    ROLLBACK = ROLLBACK
    """The message is discarded."""
    UNKNOWN = NOT_DECIDED
    """The broker asks again later."""


Check = Callable[[MessageExt], Awaitable[TransactionState]]
"""An `async` function that looks up how the transaction of a message has ended."""


async def state_of(
    result: Awaitable[TransactionState | None], what: str, nothing: TransactionState | None = None
) -> TransactionState:
    """Return the state that a function of the application has returned; `nothing` is the meaning of `None`.

    Raises:
        ClientError: it is not an async function, or has returned another value.
    """
    state = await require_awaitable(result, what)
    if state is None and nothing is not None:
        return nothing
    if not isinstance(state, TransactionState):
        raise ClientError(f"{what} returns a TransactionState{' or None' if nothing else ''}, not {state!r}")
    return state


class TransactionChecks:
    """The checks of one client's producers, by group."""

    def __init__(self, instance: ClientInstance) -> None:
        self._keys = instance.config.keys
        self._checks: dict[str, list[Check]] = {}
        """By group, one for each of its producers in this client."""
        self.executing: set[str] = set()
        """Ids of messages whose local transaction runs, or whose end is being sent to a broker, of all producers."""
        self._tasks: set[asyncio.Task[None]] = set()
        instance.router.add(
            RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader, self._check_requested
        )

    def register(self, group: str, check: Check) -> None:
        """Answer for a group; with several producers of a group the last one answers."""
        self._checks.setdefault(group, []).append(check)

    async def unregister(self, group: str, check: Check) -> None:
        """Stop answering for one producer; after the last producer of the client running checks are cancelled."""
        self._checks[group].remove(check)
        if not self._checks[group]:
            del self._checks[group]
        if not self._checks:
            await cancel_all(self._tasks)

    def _check_requested(
        self, connection: Connection, command: RemotingCommand, header: CheckTransactionStateRequestHeader
    ) -> None:
        half = decode_record(command.body)
        queue = MessageQueue(half.topic, header.broker_name or "", half.queue_id)
        (message,) = decode_messages(command.body, queue, keys=self._keys)
        group = message.properties.get(names.PRODUCER_GROUP, "")
        if message.message_id in self.executing:
            return  # the transaction still runs, and a check that finds nothing would roll it back
        checks = self._checks.get(group)
        if not checks or len(self._tasks) >= MAX_CHECKS:
            log.warning(
                "transaction %s of group %s is not checked: the group has no check here, or too many run",
                message.message_id,
                group,
            )
            return
        result = self._answer(connection, header, group, checks[-1], message)
        task = background(result, f"check of transaction {message.message_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self,
        connection: Connection,
        header: CheckTransactionStateRequestHeader,
        group: str,
        check: Check,
        message: MessageExt,
    ) -> None:
        try:
            state = await state_of(check(message), "the check of transactions")
        except Exception:
            log.exception("the check of transaction %s of group %s failed", message.message_id, group)
            return
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
    """The end of a transaction."""

    sent: SendResult
    """Where the half message is stored; its queue is the one that consumers will read it from."""
    state: TransactionState
    broker_knows: bool
    """False when the broker did not accept the decision, or there is none: it will ask, unless it already has the
    decision.
    """


class TransactionProducer(Producer):
    """A producer with transactions.

    Args:
        group: brokers ask any of its members about unfinished transactions.
        check: looks up how the transaction of a message has ended. It is not called while a producer with the same
            `ClientConfig` still runs the transaction, but another client of the group may be asked meanwhile: with
            UNKNOWN the broker asks again.
        topics: topics of earlier transactions of the group: their brokers can ask before the first message is sent.
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
            instance.shared(TransactionChecks).register(self._group, self._check)
            self._route_lookups = [
                background(self._find_brokers(instance, topic), f"route of {topic}") for topic in self._topics
            ]

    async def _end(self, instance: ClientInstance, batch_queue: BatchQueue | None) -> None:
        await cancel_all(self._route_lookups)
        await instance.shared(TransactionChecks).unregister(self._group, self._check)
        await super()._end(instance, batch_queue)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout: float | None = None
    ) -> TransactionResult:
        """Store a half message, run the local transaction, and commit or roll back.

        An error of `execute` is raised with the transaction left open: only `check` can tell whether it took effect.
        The same holds for a `ClientError` because `execute` is not an async function or returned another value.

        Args:
            message: the message to send; it cannot be delayed.
            execute: `async` function with the local transaction; not called when the message could not be stored. It
                returns a `TransactionState`, or `None` when it was committed.
            timeout: seconds for the message, and again for the decision; default `ProducerConfig.send_timeout`.

        Raises:
            MessageError, NoRoute, TransportError, ServerError, ClientClosed: as in `send`; `execute` was not called.
            ClientError: the same: `execute` cannot be called, or is certainly a plain function.
        """
        sender, instance = self._running(), self._own_instance()
        require_async(execute, "a local transaction")
        timeout = self._seconds(timeout)
        outgoing = prepare_message(message, self._ids, time.time_ns() // 1_000_000, self._config)
        if message.delay or not DELAY_PROPERTIES.isdisjoint(message.properties):
            raise MessageError("a message in a transaction cannot be delayed")
        outgoing.sys_flag |= int(SysFlag.TRANSACTION_PREPARED)
        outgoing.properties += encode_properties(
            {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self._group}
        )
        sent = await sender.send(outgoing, None, None, timeout)
        executing = instance.shared(TransactionChecks).executing
        executing.add(sent.message_id)
        try:
            state = TransactionState.ROLLBACK  # the broker may have lost the message
            if sent.status is SendStatus.SEND_OK:
                state = await state_of(execute(message), "a local transaction", nothing=TransactionState.COMMIT)
            return TransactionResult(sent, state, await self._decide(instance, sent, state, timeout))
        finally:
            executing.discard(sent.message_id)

    async def _decide(
        self, instance: ClientInstance, sent: SendResult, state: TransactionState, timeout: float
    ) -> bool:
        """Send the decision to the broker; false when that fails, and the broker asks."""
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
        """Find the brokers of a topic, which can check transactions after a heartbeat; they may be down, or not exist
        yet.
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
