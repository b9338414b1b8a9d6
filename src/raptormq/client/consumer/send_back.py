"""What happens to a message that its listener could not consume: it is delivered again later.

    1. CONSUMER_SEND_MSG_BACK (36): the broker stores it in %RETRY%group with a delay, after too many times in
       %DLQ%group.
    2. Where that fails, because the broker that has the message is gone or refuses it: a copy is sent to
       %RETRY%group, with the times and the limit. After too many times the broker that gets it stores it in %DLQ%group
       instead. The copy is the group's own: who may consume as a group may send to its retry topic, and need have no
       rights on any other group or topic. Properties that have no room beside those of the copy are left out
       (:mod:`~raptormq.protocol.copied_properties`).
    3. Where that fails too, because the broker knows neither 36 nor delays, or the copy is too large for it once it is
       encrypted again: it is handed out again here after a growing pause, and the log says why. How large it may be
       only the broker knows: a consumer has no setting for it, and must not refuse what its brokers take.
    4. Where it has been handed out here so often as it may be consumed, and brokers still refuse this very message (13,
       which no right and no other broker cures): it is given up, lest its queue stands still for ever. It stays where
       it is stored; an error in the log says where that is.

A message of an inner batch begins with step 2: no broker but RaptorMQ's has it at a place of its own, so step 1 would
bring nothing, or all of them. A message that a broker has taken is finished for its queue, one that is retried here is
not: nothing is lost either way. Neighbours: `consumer.listener_pool` reports failures. Source: RocketMQ
`DefaultMQPushConsumerImpl.sendMessageBack`, `SendMessageProcessor.handleRetryAndDLQ`.
"""

from __future__ import annotations

from raptormq.client.cluster import ClientInstance, require_success
from raptormq.client.config import ConsumerConfig, MessageModel, ProducerConfig
from raptormq.client.message import Encryptor, SendRequest, compressed
from raptormq.client.producer import MessageSender
from raptormq.errors import MessageError, NoRoute, RaptorMQError, ServerError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import request
from raptormq.protocol.copied_properties import ROOM_AT_BROKERS, fit_properties
from raptormq.protocol.headers.client import SendBackRequestHeader
from raptormq.protocol.inner_batch import is_inner_batch
from raptormq.protocol.message import MessageExt
from raptormq.protocol.properties import LEFT_OUT, MAX_PROPERTIES_BYTES, find_property
from raptormq.protocol.topic_names import retry_topic
from raptormq.transport.timing import Backoff

log = get_logger(__name__)

_FIRST_RETRY_LEVEL = 3
_SEND_TIMEOUT_S = 5.0
_LONGEST_PROPERTIES = MAX_PROPERTIES_BYTES - ROOM_AT_BROKERS
_COPIES = ProducerConfig()
_BACKOFF = Backoff(1.0, 60.0)


class Redelivery:
    """Gives failed messages of one group back."""

    def __init__(self, instance: ClientInstance, group: str, config: ConsumerConfig) -> None:
        self._instance = instance
        self._group = group
        self._config = config
        self._sender = MessageSender(instance, group, ProducerConfig(retries=1))
        keys = instance.config.keys
        self._encryptor = Encryptor(keys, _COPIES) if keys is not None else None

    async def send_back(self, message: MessageExt) -> bool:
        """Return true when nothing is left to do here, false when the client has to hand the message out again."""
        if self._config.message_model is MessageModel.BROADCASTING:
            log.warning("message %s was not consumed; group %s broadcasts", message.message_id, self._group)
            return True  # the others have it, and no topic of retries is for one member alone
        in_batch = is_inner_batch(message.sys_flag)
        reason: RaptorMQError | None = None
        for give in (self._send_copy,) if in_batch else (self._send_back_request, self._send_copy):
            try:
                await give(message)
            except RaptorMQError as error:
                log.info("group %s could not give %s back: %s", self._group, message.message_id, error)
                reason = error
            else:
                return True
        if _is_lasting(reason) and message.reconsume_times >= self._config.max_reconsume_times:
            log.error(
                "message %s is given up by group %s after %d deliveries, no broker takes it for a retry or as a dead "
                "letter; it is message %d of %s: %s",
                *(message.message_id, self._group, message.reconsume_times + 1),
                *(message.queue_offset, message.queue, reason),
            )
            return True
        log.warning("message %s of group %s is retried here: %s", message.message_id, self._group, reason)
        return False

    @staticmethod
    def retry_delay(times: int) -> float:
        """Seconds before a message that failed here `times` times is handed out again."""
        return _BACKOFF.pause(max(times - 1, 0))

    async def _send_back_request(self, message: MessageExt) -> None:
        found = await self._instance.routes.find(message.queue.topic)
        address = found.master(message.queue.broker_name)
        if address is None:
            raise NoRoute(f"broker {message.queue.broker_name} has no master now")
        header = SendBackRequestHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=0,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=self._config.max_reconsume_times,
            broker_name=message.queue.broker_name,
        )
        command = request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        timeout = self._instance.config.request_timeout
        require_success(await self._instance.pool.request(address, command, timeout), address)

    async def _send_copy(self, message: MessageExt) -> None:
        """Send a copy to the retry topic; the broker takes one that has been there often enough for a dead letter."""
        properties = dict(message.properties)
        properties.pop(names.TRANSACTION_PREPARED, None)
        was_encrypted = properties.pop(names.ENCRYPTION_KEY_ID, None) is not None
        origin = {names.RETRY_TOPIC: message.topic, names.ORIGIN_MESSAGE_ID: message.message_id}
        needed = {name: value for name, value in origin.items() if name not in properties}
        if message.reconsume_times >= self._config.max_reconsume_times:
            properties.pop(names.DELAY, None)  # brokers before RocketMQ 5 would keep the dead letter for so long
        else:
            needed[names.DELAY] = str(_FIRST_RETRY_LEVEL + message.reconsume_times)
        text, left_out = fit_properties(properties, needed, limit=_LONGEST_PROPERTIES)
        if left_out:
            log.warning(
                "the copy of message %s for the retry topic of group %s leaves out what has no room, with earlier ones "
                "the properties %r",
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
            reconsume_times=message.reconsume_times + 1,
            max_reconsume_times=self._config.max_reconsume_times,
        )
        if was_encrypted and self._encryptor is not None:
            outgoing = self._encryptor.encrypt(outgoing)
        await self._sender.send(outgoing, None, None, _SEND_TIMEOUT_S)


def _is_lasting(reason: RaptorMQError | None) -> bool:
    """Whether a message is refused for what it is."""
    return isinstance(reason, MessageError) or (
        isinstance(reason, ServerError) and reason.code == ResponseCode.MESSAGE_ILLEGAL
    )
