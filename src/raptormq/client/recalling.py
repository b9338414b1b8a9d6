"""Takes messages with a delivery time back.

Neighbour: `producer`. Source: RocketMQ `DefaultMQProducer.recallMessage`.
"""

from __future__ import annotations

from raptormq.client.answers import require_success
from raptormq.client.instance import ClientInstance
from raptormq.errors import NoRoute
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.recall import RecallMessageRequestHeader, RecallMessageResponseHeader
from raptormq.protocol.recall_handle import decode_recall_handle
from raptormq.protocol.schema import decode_header


async def recall(instance: ClientInstance, group: str, topic: str, handle: str, timeout: float) -> str:
    """Ask the broker that has the message and return the message's id.

    Raises:
        MessageError: the handle is none.
        NoRoute: the topic or the broker is not known.
        TransportError, ServerError: no answer, or a refusal.
    """
    broker_name = decode_recall_handle(handle).broker_name
    address = (await instance.routes.find(topic)).master(broker_name)
    if address is None:
        raise NoRoute(f"broker {broker_name} has no master now")
    header = RecallMessageRequestHeader(topic, handle, group, broker_name)
    answer = await instance.pool.request(address, request(RequestCode.RECALL_MESSAGE, header), timeout)
    return decode_header(RecallMessageResponseHeader, require_success(answer, address).ext_fields).msg_id
