"""Bodies with an offset for each of several queues: resets (220, 222) and progress (221, 223).

A broadcasting member stores the first kind in its file, with the ids of the topics (:mod:`raptormq.protocol.topic_ids`)
as an additional member: ``"topicIds": {"<topic>": {"<broker name>": "<id>"}}``.

Tables are keyed by queue objects, which is not JSON but is what Java writes and reads (``ResetOffsetBody``,
``GetConsumerStatusBody``). C++ clients expect a list instead (``ResetOffsetBodyForC``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import object_at, text_at
from raptormq.protocol.bodies.queues import keyed_by_queues, queue_from_dict, queue_to_dict
from raptormq.protocol.bodies.tolerant_json import dump_object_keyed, dumps, loads_object
from raptormq.protocol.message import MessageQueue

QueueOffsets = Mapping[MessageQueue, int]
TopicIds = dict[tuple[str, str], str]
"""Keyed by topic and broker name."""


def encode_offsets(offsets: QueueOffsets) -> bytes:
    """Return the body of 220 and of the response to 222."""
    return b'{"offsetTable":' + _dump(offsets) + b"}"


def encode_offset_list(offsets: QueueOffsets) -> bytes:
    """Return the body of 220 for C++ clients."""
    rows = [queue_to_dict(queue) | {"offset": offset} for queue, offset in offsets.items()]
    return dumps({"offsetTable": rows})


def decode_offsets(data: bytes) -> dict[MessageQueue, int]:
    """Decode the body of 220 or of the response to 222, in either form. Raises :class:`BodyError`."""
    return _offsets(loads_object(data))


def encode_offset_file(offsets: QueueOffsets, topic_ids: Mapping[tuple[str, str], str]) -> bytes:
    """Return the contents of the file of a broadcasting member."""
    by_topic: dict[str, dict[str, str]] = {}
    for (topic, broker), topic_id in topic_ids.items():
        by_topic.setdefault(topic, {})[broker] = topic_id
    ids = b',"topicIds":' + dumps(by_topic) if by_topic else b""
    return b'{"offsetTable":' + _dump(offsets) + ids + b"}"


def offset_file_in(body: Mapping[str, Any]) -> tuple[dict[MessageQueue, int], TopicIds]:
    """Decode the offset file of a broadcasting member, also of a Java client. Raises :class:`BodyError`."""
    topics = object_at(body, "topicIds")
    ids = {
        (topic, broker): text_at(object_at(topics, topic), broker)
        for topic in topics
        for broker in object_at(topics, topic)
    }
    return _offsets(body), ids


def _offsets(body: Mapping[str, Any]) -> dict[MessageQueue, int]:
    if isinstance(body.get("offsetTable"), list):
        return {queue_from_dict(row): _offset(row.get("offset")) for row in body["offsetTable"]}
    return _table(body, "offsetTable")


def encode_progress(offsets: QueueOffsets) -> bytes:
    """Return the body of the response to 221."""
    return b'{"consumerTable":{},"messageQueueTable":' + _dump(offsets) + b"}"


def decode_progress(data: bytes) -> dict[MessageQueue, int]:
    """Decode the body of the response to 221. Raises :class:`BodyError`."""
    return _table(loads_object(data), "messageQueueTable")


def encode_group_progress(members: Mapping[str, QueueOffsets]) -> bytes:
    """Return the body of the response to 223: the table of each member by its client id."""
    tables = b",".join(dumps(client_id) + b":" + _dump(offsets) for client_id, offsets in members.items())
    return b'{"consumerTable":{' + tables + b'},"messageQueueTable":{}}'


def _dump(offsets: QueueOffsets) -> bytes:
    return dump_object_keyed((queue_to_dict(queue), offset) for queue, offset in offsets.items())


def _table(body: Mapping[str, Any], name: str) -> dict[MessageQueue, int]:
    return {queue: _offset(offset) for queue, offset in keyed_by_queues(body, name)}


def _offset(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise BodyError(f"not an offset: {value!r:.40}") from error
