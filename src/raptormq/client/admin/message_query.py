"""Finds messages by key and by id.

Errors of single brokers are part of the result. Key indexes contain hashes, and a broker may return a whole batch, so
the keys of all messages are compared here. Used by `admin.client`. Source: RocketMQ `MQAdminImpl`, codes 12 and 33.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from raptormq.client.background import gather_all
from raptormq.client.cluster import ClientInstance, require_success
from raptormq.client.message import decode_messages
from raptormq.client.security import EncryptionKeys
from raptormq.client.settings import Limits, Milliseconds, check_setting
from raptormq.errors import ConfigError, MessageError, NoRoute, RaptorMQError, ServerError, TransportError
from raptormq.protocol.bodies.route import ClusterInfo
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.offset import ViewMessageRequestHeader
from raptormq.protocol.headers.query import QueryMessageRequestHeader
from raptormq.protocol.inner_ids import unpack_ids
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.message_id import parse_offset_id
from raptormq.protocol.properties import UNIQUE_KEY, find_property, has_key
from raptormq.protocol.record import decode_record, iter_records

MAX_QUERY_RESULTS = 64
"""Maximum number of messages per request (``maxMsgsNumBatch`` of brokers)."""
_NOT_FOUND_REMARK = "can not find message by the offset"
"""Remark of brokers for a missing message; the response code is that of a general error."""


class FoundMessages(list[MessageExt]):
    """Messages that were found; incomplete if a broker failed."""

    def __init__(self, messages: Iterable[MessageExt], failures: Mapping[str, RaptorMQError]) -> None:
        super().__init__(messages)
        self.failures = failures
        """Errors of failed brokers, by broker name."""


async def query_messages(
    instance: ClientInstance, topic: str, key: str, begin_ms: int, end_ms: int, count: int
) -> FoundMessages:
    """Return the newest messages of a topic with a key or an id, ordered by store time.

    Raises: as `AdminClient.find_messages`.
    """
    check_setting("topic", topic, str)
    check_setting("key", key, str)
    check_setting("begin_ms", begin_ms, Milliseconds)
    check_setting("end_ms", end_ms, Milliseconds)
    if begin_ms > end_ms:
        raise ConfigError(f"begin_ms must not be after end_ms: {begin_ms} and {end_ms}")
    check_setting("count", count, Annotated[int, Limits(MAX_QUERY_RESULTS)])
    route = await instance.routes.refresh(topic)
    if route is None:
        raise NoRoute.to(topic)
    found: dict[tuple[MessageQueue, int, str], MessageExt] = {}
    refused: list[ServerError] = []
    failures: dict[str, RaptorMQError] = {}

    async def ask(broker_name: str, address: str) -> None:
        # With a smaller limit the broker would return the first messages of the newest batch.
        header = QueryMessageRequestHeader(topic, key, MAX_QUERY_RESULTS, begin_ms, end_ms)
        command = request(RequestCode.QUERY_MESSAGE, header)
        response = await instance.pool.request(address, command, instance.config.request_timeout)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return
        if (
            response.code == ResponseCode.SERVICE_NOT_AVAILABLE
        ):  # only encrypted batches on this broker; other brokers may have readable messages
            refused.append(ServerError(response.code, response.remark, address))
            return
        body = require_success(response, address).body
        for message in _matching(body, topic, key, broker_name, instance.config.keys):
            # A message is kept once, even if its KEYS contain a word twice. A topic that was deleted and recreated
            # repeats its offsets, and brokers other than ours also return messages of the deleted topic that are still
            # in the log.
            found[message.queue, message.queue_offset, message.offset_message_id] = message

    async def try_to_ask(broker_name: str, address: str) -> None:
        try:
            await ask(broker_name, address)
        except (TransportError, ServerError) as error:
            failures[broker_name] = error

    replicas = {name: address for name in sorted(route.brokers) if (address := route.replica(name)) is not None}
    await gather_all(try_to_ask(name, address) for name, address in replicas.items())
    if failures and len(failures) == len(replicas):
        raise failures[min(failures)]
    if refused and not found:
        raise refused[0]
    in_order = sorted(found.values(), key=lambda each: (each.store_timestamp, each.queue, each.queue_offset))
    return FoundMessages(in_order[-count:], failures)


async def fetch_message(instance: ClientInstance, offset_message_id: str, brokers: ClusterInfo) -> MessageExt | None:
    """Return the message with an offset id; None if its broker does not have the message. `brokers` is used to find the
    broker's name.

    Raises: as `AdminClient.message`.
    """
    check_setting("offset_message_id", offset_message_id, str)
    place = parse_offset_id(offset_message_id)
    if not 0 < place.port < 1 << 16 or place.physical_offset < 0:
        raise MessageError(f"{offset_message_id} is not an offset message id: it contains no broker address")
    address = f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}"
    command = request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(place.physical_offset))
    response = await instance.pool.request(address, command, instance.config.request_timeout)
    if response.code == ResponseCode.SYSTEM_ERROR and _NOT_FOUND_REMARK in (response.remark or ""):
        return None
    body = require_success(response, address).body
    record = decode_record(body, check_crc=False)
    names = (each.broker_name for each in brokers.brokers.values() if address in each.broker_addrs.values())
    queue = MessageQueue(record.topic, next(names, ""), record.queue_id)
    messages = decode_messages(body, queue, keys=instance.config.keys)
    # A batch that brokers cannot unpack is returned as a whole; its own position means the first message.
    return next((each for each in messages if each.physical_offset == place.physical_offset), messages[0])


def _matching(body: bytes, topic: str, key: str, broker_name: str, keys: EncryptionKeys | None) -> Iterator[MessageExt]:
    """Yield the messages of a response with the key. Records without the key are not decoded, even if they are damaged.

    Raises:
        RecordError: the records are damaged or cut, or a body cannot be decompressed.
        KeyMissing: a body is encrypted with a key that the client does not have.
    """
    data, end = memoryview(body), 0
    for record in iter_records(body, check_crc=False):
        start, end = end, end + record.total_size
        text = record.properties
        if record.topic != topic or not (has_key(text, key) or key in unpack_ids(text)):
            continue
        messages = decode_messages(data[start:end], MessageQueue(topic, broker_name, record.queue_id), keys=keys)
        own = [message for message in messages if key in message.keys or key == message.message_id]
        # All messages of a batch have the id of the batch, and may have no id of their own.
        yield from messages if not own and key == find_property(text, UNIQUE_KEY) else own
