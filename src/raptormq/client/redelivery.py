"""What happens to a message that its listener could not consume: the broker delivers it again later.

    1. CONSUMER_SEND_MSG_BACK (36): the broker stores it in %RETRY%group with a delay, or in %DLQ%group after too
    many times. 2. Where that fails (the broker that has the message is gone, or refuses it): the message is sent to
    %RETRY%group. 3. Where that fails too, or the broker does not know 36: it is handed out again here after a
    growing pause.

In the first two cases the message is finished for its queue, in the third it is not, so nothing is lost in any of them.
Neighbours: `listening` reports failures. Source: RocketMQ `DefaultMQPushConsumerImpl.sendMessageBack`.
"""

from __future__ import annotations

import logging

from raptormq.client.answers import require_success
from raptormq.client.config import ConsumerConfig, ProducerConfig
from raptormq.client.delivery import Delivery
from raptormq.client.instance import ClientInstance
from raptormq.client.outgoing import Outgoing
from raptormq.errors import NoRoute, RaptorMQError, ServerError
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.client import SendBackRequestHeader
from raptormq.protocol.message import MessageExt
from raptormq.protocol.properties import encode_properties
from raptormq.protocol.topic_names import retry_topic

log = logging.getLogger(__name__)

_FIRST_RETRY_LEVEL = 3
_INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
_SEND_TIMEOUT_S = 5.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class Redelivery:
    """Gives failed messages of one group back."""

    def __init__(self, instance: ClientInstance, group: str, config: ConsumerConfig) -> None:
        self._instance = instance
        self._group = group
        self._config = config
        self._delivery = Delivery(instance, _INNER_PRODUCER, ProducerConfig())

    async def give_back(self, message: MessageExt) -> bool:
        """Return true when a broker will deliver the message again, false when the client has to."""
        try:
            await self._send_back(message)
        except ServerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return False
            log.info("broker refuses to take %s back: %s", message.message_id, error)
        except RaptorMQError as error:
            log.info("broker does not take %s back: %s", message.message_id, error)
        else:
            return True
        try:
            await self._send_to_retry_topic(message)
        except RaptorMQError as error:
            log.warning("message %s of group %s is retried here: %s", message.message_id, self._group, error)
            return False
        return True

    @staticmethod
    def pause(times: int) -> float:
        """Seconds before a message that failed here `times` times is handed out again."""
        return min(_FIRST_PAUSE_S * 2.0 ** min(max(times - 1, 0), 10), _LONGEST_PAUSE_S)

    async def _send_back(self, message: MessageExt) -> None:
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

    async def _send_to_retry_topic(self, message: MessageExt) -> None:
        properties = dict(message.properties)
        properties.pop(names.TRANSACTION_PREPARED, None)
        properties.setdefault(names.RETRY_TOPIC, message.topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        properties[names.DELAY] = str(_FIRST_RETRY_LEVEL + message.reconsume_times)
        outgoing = Outgoing(
            RequestCode.SEND_MESSAGE_V2,
            retry_topic(self._group),
            message.body,
            0,
            message.flag,
            encode_properties(properties),
            message.message_id,
            reconsume_times=message.reconsume_times + 1,
            max_reconsume_times=self._config.max_reconsume_times,
        )
        await self._delivery.deliver(outgoing, None, None, _SEND_TIMEOUT_S)
