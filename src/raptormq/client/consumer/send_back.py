"""Returns messages that a listener could not consume to the broker, for redelivery.

    1. CONSUMER_SEND_MSG_BACK (36): the broker stores the message in %RETRY%group with a delay, and in %DLQ%group after
       too many deliveries.
    2. If that fails, because the broker of the message is down or refuses: a copy is sent to %RETRY%group, with the
       number of deliveries and their limit. After too many deliveries the broker that gets the copy stores it in
       %DLQ%group. The right to consume as a group includes the right to send to its retry topic, so no other rights
       are needed. Properties that do not fit beside those of the copy are left out
       (:mod:`~raptormq.protocol.copied_properties`).
    3. If that fails too, because the broker supports neither 36 nor delays, or the copy is too large after encryption:
       the message is retried by this client after a growing delay, and the reason is logged. Only the broker knows
       its size limit: a consumer has no setting for it and must not refuse what its brokers accept.
    4. If a message was retried here as often as it may be delivered, and brokers still refuse it (code 13, independent
       of permissions and of the broker): the message is skipped, so that it does not block its queue for ever. It stays
       stored, and a logged error names its position.

A message of an inner batch starts with step 2: at brokers other than RaptorMQ's it has no position, so step 1 would
send back nothing, or the whole batch. A message that a broker has accepted is completed for its queue; a message that
is retried here is not. No message is lost either way. An ordered consumer retries messages in place. It sends back only
messages whose retries are exhausted, as a copy (step 2), which the broker stores as a dead letter. For an application
that settles messages itself, `consumer.delayed_retry` uses the single steps `send_back_request` and `send_copy`, and
raises their errors.
See also: `consumer.listener_pool` and `consumer.ordered_pool` report failures. Source: RocketMQ
`DefaultMQPushConsumerImpl.sendMessageBack`, `SendMessageProcessor.handleRetryAndDLQ`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from raptormq.client.cluster import ClientInstance, require_success
from raptormq.client.config import ConsumerConfig, MessageModel, ProducerConfig
from raptormq.client.consumer.failure_log import FailureLog
from raptormq.client.interceptors import ConsumeChain
from raptormq.client.message import Encryptor, SendRequest, compressed
from raptormq.client.producer import MessageSender
from raptormq.errors import MessageError, NoRoute, RaptorMQError, ServerError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import request
from raptormq.protocol.copied_properties import ROOM_AT_BROKERS, fit_properties
from raptormq.protocol.delay_levels import FIRST_RETRY_LEVEL
from raptormq.protocol.headers.client import SendBackRequestHeader
from raptormq.protocol.inner_batch import is_inner_batch
from raptormq.protocol.message import DELAY_PROPERTIES, MessageExt, MessageQueue
from raptormq.protocol.properties import LEFT_OUT, MAX_PROPERTIES_BYTES, find_property
from raptormq.protocol.topic_names import dlq_topic, retry_topic
from raptormq.transport.timing import Backoff

log = get_logger(__name__)

_SEND_TIMEOUT_S = 5.0
_LONGEST_PROPERTIES = MAX_PROPERTIES_BYTES - ROOM_AT_BROKERS
_COPIES = ProducerConfig()
_BACKOFF = Backoff(1.0, 60.0)
_TIMES = DELAY_PROPERTIES | {names.TIMER_OUT_MS, names.TIMER_ENQUEUE_MS, names.TIMER_DEQUEUE_MS}
"""Properties about an earlier delay. With them a broker would delay the copy again, or never deliver it."""
_NOT_COPIED = _TIMES | {names.POP_CHECKPOINT, names.FIRST_POP_TIME}


class Redelivery:
    """Sends failed messages of one group back to the brokers."""

    def __init__(
        self, instance: ClientInstance, group: str, config: ConsumerConfig, interceptors: ConsumeChain
    ) -> None:
        self._instance = instance
        self._interceptors = interceptors
        self._group = group
        self._config = config
        self._failures = FailureLog(log, group)
        self._sender = MessageSender(instance, group, ProducerConfig(retries=1))
        keys = instance.config.keys
        self._encryptor = Encryptor(keys, _COPIES) if keys is not None else None

    async def send_back(self, message: MessageExt) -> bool:
        """Send a message back. Return False if no broker accepts it and this client must retry it."""
        if self._config.message_model is MessageModel.BROADCASTING:
            self._failures.outcome("not consumed and not delivered again, because the group broadcasts", message)
            return True  # a retry topic cannot address a single member
        in_batch = is_inner_batch(message.sys_flag)
        return await self._give(message, (self.send_copy,) if in_batch else (self.send_back_request, self.send_copy))

    async def dead_letter(self, message: MessageExt) -> bool:
        """Send a message whose retries are exhausted to the dead letter queue. Return False if no broker accepts it
        now.

        The broker does not know the retries of this client, so it gets a copy with the number of deliveries.
        """
        if self._config.message_model is MessageModel.BROADCASTING:
            return await self.send_back(message)
        return await self._give(message, (self.send_copy,))

    async def _give(self, message: MessageExt, ways: Sequence[Callable[[MessageExt], Awaitable[None]]]) -> bool:
        reason: RaptorMQError | None = None
        for give in ways:
            try:
                await give(message)
            except RaptorMQError as error:
                log.info("group %s could not send message %s back: %s", self._group, message.message_id, error)
                reason = error
            else:
                if message.reconsume_times >= self._config.max_reconsume_times:
                    self._failures.outcome("dead letter", message, dead_letter_topic=dlq_topic(self._group))
                    self._interceptors.dead_letter(message, dlq_topic(self._group))
                return True
        if is_lasting(reason) and message.reconsume_times >= self._config.max_reconsume_times:
            assert reason is not None
            event = "given up where it is stored: no broker accepts it for a retry or as a dead letter"
            self._failures.failed(event, [message], reason, traceback=False)
            return True
        self._failures.outcome("retried by this client", message, reason=str(reason))
        return False

    @staticmethod
    def retry_delay(times: int) -> float:
        """Return the delay in seconds before the next retry of a message that failed `times` times in this client."""
        return _BACKOFF.pause(max(times - 1, 0))

    async def send_back_request(self, message: MessageExt, delay_level: int = 0) -> None:
        """Request redelivery of a message from its broker.

        Args:
            message: the message; not one of an inner batch.
            delay_level: level of the delay; 0 for a delay chosen by the broker, which grows with the number of
            deliveries.

        Raises:
            NoRoute: the broker of the message has no master.
            TransportError: the broker does not respond.
            ServerError: the broker refuses.
        """
        found = await self._instance.routes.find(message.queue.topic)
        address = found.master(message.queue.broker_name)
        if address is None:
            raise NoRoute(f"broker {message.queue.broker_name} has no master now")
        header = SendBackRequestHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=self._config.max_reconsume_times,
            broker_name=message.queue.broker_name,
        )
        command = request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        timeout = self._instance.config.request_timeout
        require_success(await self._instance.pool.request(address, command, timeout), address)

    async def send_copy(
        self,
        message: MessageExt,
        delay: Mapping[str, str] | None = None,
        *,
        queue: MessageQueue | None = None,
        dead_letter_reason: str | None = None,
    ) -> None:
        """Send a copy to the retry topic; the broker turns it into a dead letter after too many deliveries.

        Args:
            message: the message.
            delay: properties that delay the copy; `None` for a level that grows with the number of deliveries.
            queue: queue of the retry topic.
            dead_letter_reason: makes the copy a dead letter now, with this text.

        Raises:
            NoRoute, TransportError, ServerError: as for a send.
            MessageError: brokers cannot store the copy.
        """
        properties = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
        properties.pop(names.TRANSACTION_PREPARED, None)
        was_encrypted = properties.pop(names.ENCRYPTION_KEY_ID, None) is not None
        origin = {names.RETRY_TOPIC: message.topic, names.ORIGIN_MESSAGE_ID: message.message_id}
        needed = {name: value for name, value in origin.items() if name not in properties}
        attempts = message.reconsume_times
        if dead_letter_reason is not None:
            needed[names.DLQ_REASON] = dead_letter_reason
            attempts = max(attempts, self._config.max_reconsume_times)
        if attempts < self._config.max_reconsume_times:  # brokers before RocketMQ 5 would delay a dead letter
            level = FIRST_RETRY_LEVEL + message.reconsume_times
            needed |= {names.DELAY: str(level)} if delay is None else delay
        text, left_out = fit_properties(properties, needed, limit=_LONGEST_PROPERTIES)
        if left_out:
            log.warning(
                "the copy of message %s for the retry topic of group %s omits properties that do not fit, "
                "including those omitted before: %r",
                *(message.message_id, self._group, find_property(text, LEFT_OUT)),
            )
        body, sys_flag = (message.body, 0) if was_encrypted else compressed(message.body, _COPIES)
        outgoing = SendRequest(
            RequestCode.SEND_MESSAGE_V2,
            retry_topic(self._group),
            body,
            sys_flag,
            message.flag,
            text,
            message.message_id,
            message.born_timestamp,
            reconsume_times=attempts + 1,
            max_reconsume_times=self._config.max_reconsume_times,
        )
        if was_encrypted and self._encryptor is not None:
            outgoing = self._encryptor.encrypt(outgoing)
        try:
            await self._sender.send(outgoing, queue, None, _SEND_TIMEOUT_S)
        except NoRoute:
            await self._send_to_broker_of(message, outgoing)

    async def _send_to_broker_of(self, message: MessageExt, copy: SendRequest) -> None:
        """Send a copy to the broker of the message, because the retry topic has no route yet. The broker creates the
        topic with the first copy. Usually a heartbeat has created it, but the first heartbeat of a group that pops may
        be pending.
        """
        found = await self._instance.routes.find(message.queue.topic)
        address = found.master(message.queue.broker_name)
        if address is None:
            raise NoRoute(f"broker {message.queue.broker_name} has no master now")
        target = MessageQueue(copy.topic, message.queue.broker_name, 0)
        await self._sender.send_once(copy, target, address, _SEND_TIMEOUT_S)


def restore_topic(message: MessageExt, retry_topic: str) -> None:
    """Give a message from the retry topic of its group its original topic back."""
    if message.topic == retry_topic:
        message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)


def is_lasting(reason: RaptorMQError | None) -> bool:
    """Return whether an error concerns the content of the message, so that a retry does not help."""
    return isinstance(reason, MessageError) or (
        isinstance(reason, ServerError) and reason.code == ResponseCode.MESSAGE_ILLEGAL
    )
