"""Bodies that hold queues: locks (41, 42), topic statistics (202), key-value tables (28, 219).

Source: Apache RocketMQ ``LockBatchRequestBody``, ``LockBatchResponseBody``, ``TopicStatsTable``, ``KVTable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import list_at, object_at, text_at
from raptormq.protocol.bodies.steps import Steps, run_steps
from raptormq.protocol.bodies.tolerant_json import dump_object_keyed, dumps, loads_object, loads_request
from raptormq.protocol.message import MessageQueue


def queue_to_dict(queue: MessageQueue) -> dict[str, Any]:
    """Return the JSON object of a queue, for use as key or value."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queue_from_dict(value: Any) -> MessageQueue:
    """Decode the JSON object of a queue. Raises :class:`BodyError`."""
    try:
        return MessageQueue(text_at(value, "topic"), text_at(value, "brokerName"), int(value["queueId"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BodyError(f"not a queue: {value!r:.80}") from error


@dataclass(slots=True)
class QueueLockRequest:
    """Body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

    consumer_group: str
    client_id: str
    queues: list[MessageQueue]

    def to_json(self) -> bytes:
        """Return the body."""
        return dumps(
            {
                "clientId": self.client_id,
                "consumerGroup": self.consumer_group,
                "mqSet": [queue_to_dict(queue) for queue in self.queues],
                "onlyThisBroker": False,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> QueueLockRequest:
        """Decode the body. Raises :class:`BodyError`."""
        return run_steps(cls.read_steps(data))

    @classmethod
    def read_steps(cls, data: bytes) -> Steps[QueueLockRequest]:
        """Decode the body, one queue per step."""
        value = loads_request(data)
        group, client = value.get("consumerGroup"), value.get("clientId")
        if not (isinstance(group, str) and isinstance(client, str)):
            raise BodyError("not a lock request: consumerGroup or clientId is missing")
        read = cls(group, client, [])
        for queue in list_at(value, "mqSet"):
            read.queues.append(queue_from_dict(queue))
            yield
        return read


def encode_locked_queues(queues: Iterable[MessageQueue]) -> bytes:
    """Return the response body of LOCK_BATCH_MQ (41)."""
    return dumps({"lockOKMQSet": [queue_to_dict(queue) for queue in queues]})


def decode_locked_queues(data: bytes) -> list[MessageQueue]:
    """Decode the response body of LOCK_BATCH_MQ (41). Raises :class:`BodyError`."""
    return [queue_from_dict(queue) for queue in list_at(loads_object(data), "lockOKMQSet")]


@dataclass(frozen=True, slots=True)
class TopicOffset:
    """Bounds of a queue and the store time (ms) of its last message, 0 if it is empty."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int = 0


def encode_topic_stats(offsets: dict[MessageQueue, TopicOffset]) -> bytes:
    """Return the body of GET_TOPIC_STATS_INFO (202): a table keyed by queue objects."""
    pairs = (
        (
            queue_to_dict(queue),
            {
                "lastUpdateTimestamp": offset.last_update_timestamp,
                "maxOffset": offset.max_offset,
                "minOffset": offset.min_offset,
            },
        )
        for queue, offset in offsets.items()
    )
    return b'{"offsetTable":' + dump_object_keyed(pairs) + b',"topicPutTps":0.0}'


def keyed_by_queues(body: Mapping[str, Any], name: str) -> Iterator[tuple[MessageQueue, Any]]:
    """Yield key and value of each entry of the object ``name`` of ``body``, whose keys are queues. Raises
    :class:`BodyError`.
    """
    for key, value in object_at(body, name).items():
        yield queue_from_dict(loads_object(key.encode())), value


def decode_topic_stats(data: bytes) -> dict[MessageQueue, TopicOffset]:
    """Decode the body of GET_TOPIC_STATS_INFO (202). Raises :class:`BodyError`."""
    offsets: dict[MessageQueue, TopicOffset] = {}
    for queue, value in keyed_by_queues(loads_object(data), "offsetTable"):
        try:
            offsets[queue] = TopicOffset(
                int(value["minOffset"]), int(value["maxOffset"]), int(value.get("lastUpdateTimestamp") or 0)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BodyError(f"not a topic offset: {value!r:.80}") from error
    return offsets


def encode_kv_table(table: dict[str, str]) -> bytes:
    """Return a KVTable body (28, 219)."""
    return dumps({"table": table})


def decode_kv_table(data: bytes) -> dict[str, str]:
    """Decode a KVTable body (28, 219). Raises :class:`BodyError`."""
    return {key: str(value) for key, value in object_at(loads_object(data), "table").items()}
