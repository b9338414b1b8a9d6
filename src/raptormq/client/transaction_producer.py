"""`TransactionProducer`: messages that consumers get if and only if a local transaction succeeds.

    async def check(message):                      # asked about transactions whose end the broker did not hear of
        known = await orders.exists(message.keys[0])
        return TransactionState.COMMIT if known else TransactionState.ROLLBACK

    async with TransactionProducer("billing", check, topics=["orders"]) as producer:
        await producer.send_in_transaction(Message("orders", b"...", keys=("17",)), lambda _: orders.insert(17))

The message is stored unseen first, then the local transaction runs, then the broker hears how it ended. Whatever is
lost on the way, the broker asks any producer of the group.
Neighbours: `producer` is what it extends, `transactions` answers questions. Source: RocketMQ `TransactionMQProducer`,
`DefaultMQProducerImpl.sendMessageInTransaction`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Unpack

from raptormq.client.accumulator import Lane
from raptormq.client.answers import require_success
from raptormq.client.async_functions import require_async, warn_of_plain
from raptormq.client.background import background, cancel_all
from raptormq.client.config import ClientConfig, ProducerConfig, ProducerSettings
from raptormq.client.instance import ClientInstance
from raptormq.client.outgoing import prepare_message
from raptormq.client.producer import Producer
from raptormq.client.results import SendResult, SendStatus
from raptormq.client.transactions import Check, TransactionChecks, TransactionState, state_of
from raptormq.errors import ConfigError, MessageError, NoRoute, RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.transaction import EndTransactionRequestHeader
from raptormq.protocol.message import DELAYS, Message
from raptormq.protocol.message_id import parse_offset_id
from raptormq.protocol.properties import encode_properties
from raptormq.protocol.record import SysFlag
from raptormq.protocol.topic_names import check_topic
from raptormq.transport.backoff import Backoff

log = get_logger(__name__)

_LOOK_BACKOFF = Backoff(0.5, 30.0)

Execute = Callable[[Message], Awaitable[TransactionState | None]]
"""An `async` function that runs the local transaction; `None` means it was committed."""


class TransactionResult(NamedTuple):
    """How a transaction ended."""

    sent: SendResult
    """Where the message waits; its queue is the one it is for."""
    state: TransactionState
    broker_knows: bool
    """False when the broker did not take the decision, or there is none: it will ask, unless it was told already."""


class TransactionProducer(Producer):
    """A producer with transactions.

    Args:
        group: brokers ask any of its members about transactions that were left open.
        check: looks up what became of a message's transaction. It is not called while a producer of the same
            `ClientConfig` still runs that one, but another client of the group may be asked meanwhile: UNKNOWN lets the
            broker ask again.
        topics: of earlier transactions of the group: their brokers can ask even before anything is sent.
        name_servers, config, client_config, settings: as of `Producer`.

    Raises:
        ClientError: `check` cannot be called, or surely is a plain function.
        MessageError, ConfigError: as of `Producer`, or `topics` are no list of topics.
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
        warn_of_plain(check, "the check of transactions")
        self._check = check
        self._topics = _as_topics(topics)
        self._looking: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Make the producer usable and let it be asked; does nothing when it is."""
        before = self._instance
        await super().start()
        instance = self._own_instance()
        if instance is not before:
            instance.shared(TransactionChecks).join(self._group, self._check)
            self._looking = [background(self._look_up(instance, topic), f"route of {topic}") for topic in self._topics]

    async def _end(self, instance: ClientInstance, lane: Lane | None) -> None:
        await cancel_all(self._looking)
        await instance.shared(TransactionChecks).leave(self._group, self._check)
        await super()._end(instance, lane)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout: float | None = None
    ) -> TransactionResult:
        """Store a message unseen, run the local transaction, and commit or roll back.

        An error of `execute` is raised after it, with the transaction left open: nobody but `check` can say whether
        it took effect. So is a `ClientError` when it was no async function or its answer is none of those below.

        Args:
            message: what to send; it cannot be delayed.
            execute: `async` function with the local transaction; not run when the message could not be stored. It
                returns a `TransactionState`, or `None` when it was committed.
            timeout: seconds for the message, and again for the decision; default `ProducerConfig.send_timeout`.

        Raises:
            MessageError, NoRoute, TransportError, ServerError, ClientClosed: as in `send`; `execute` was not run.
            ClientError: the same: `execute` cannot be called, or surely is a plain function.
        """
        delivery, instance = self._running(), self._own_instance()
        require_async(execute, "a local transaction")
        timeout = self._seconds(timeout)
        outgoing = prepare_message(message, self._ids, time.time_ns() // 1_000_000, self._config)
        if message.delay or not DELAYS.isdisjoint(message.properties):
            raise MessageError("a message in a transaction cannot be delayed")
        outgoing.sys_flag |= int(SysFlag.TRANSACTION_PREPARED)
        outgoing.properties += encode_properties(
            {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self._group}
        )
        sent = await delivery.deliver(outgoing, None, None, timeout)
        executing = instance.shared(TransactionChecks).executing
        executing.add(sent.message_id)
        try:
            state = TransactionState.ROLLBACK  # the broker may forget the message
            if sent.status is SendStatus.SEND_OK:
                state = await state_of(execute(message), "a local transaction", nothing=TransactionState.COMMIT)
            return TransactionResult(sent, state, await self._decide(instance, sent, state, timeout))
        finally:
            executing.discard(sent.message_id)

    async def _decide(
        self, instance: ClientInstance, sent: SendResult, state: TransactionState, timeout: float
    ) -> bool:
        """Tell the broker; it asks if that fails."""
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
            known = instance.routes.known(sent.queue.topic)
            address = known.master(sent.queue.broker_name) if known is not None else None
            if address is None:
                raise NoRoute(f"broker {sent.queue.broker_name} has no master now")
            answer = await instance.pool.request(address, request(RequestCode.END_TRANSACTION, header), timeout)
            require_success(answer, address)
        except RaptorMQError as error:
            what = "the broker did not take the decision on transaction %s, and asks, unless it was told already: %s"
            log.warning(what, sent.message_id, error)
            return False
        return True

    async def _look_up(self, instance: ClientInstance, topic: str) -> None:
        """Find the brokers of a topic, which can ask once they have got a heartbeat; they may be away, or to come."""
        for failures in itertools.count():
            try:
                await instance.routes.find(topic)
            except RaptorMQError as error:
                log.log(
                    logging.DEBUG if failures else logging.WARNING,
                    "brokers of topic %s cannot ask about transactions until they are found: %s", topic, error,
                )  # fmt: skip
                await asyncio.sleep(_LOOK_BACKOFF.pause(failures))
            else:
                await instance.heartbeats.tell_all()
                return


def _as_topics(topics: object) -> tuple[str, ...]:
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise ConfigError(f"topics must be a list of topics, not {topics!r}")
    listed = tuple(topics)
    for topic in listed:
        check_topic(topic)
    return listed
