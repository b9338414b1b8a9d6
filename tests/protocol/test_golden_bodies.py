"""JSON bodies compared with recorded bodies of Apache RocketMQ 5.3.3 (`tests/golden`): round trips keep the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raptormq.protocol.bodies import tolerant_json
from raptormq.protocol.bodies.heartbeat import HeartbeatData, decode_consumer_ids, encode_consumer_ids
from raptormq.protocol.bodies.queues import (
    QueueLockRequest,
    decode_kv_table,
    decode_locked_queues,
    decode_topic_stats,
    encode_kv_table,
    encode_locked_queues,
)
from raptormq.protocol.bodies.route import ClusterInfo, TopicList, TopicRoute, decode_registration
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable
from tests.protocol.golden import all_frames, decode, frames_of

Again = Callable[[bytes], bytes]

REQUESTS: dict[int, Again] = {
    34: lambda body: HeartbeatData.from_json(body).to_json(),
    41: lambda body: QueueLockRequest.from_json(body).to_json(),
    42: lambda body: QueueLockRequest.from_json(body).to_json(),
}
RESPONSES: dict[int, Again] = {
    21: lambda body: TopicConfigTable.from_json(body).to_json(),
    28: lambda body: encode_kv_table(decode_kv_table(body)),
    38: lambda body: encode_consumer_ids(decode_consumer_ids(body)),
    41: lambda body: encode_locked_queues(decode_locked_queues(body)),
    105: lambda body: TopicRoute.from_json(body).to_json(),
    106: lambda body: ClusterInfo.from_json(body).to_json(),
    206: lambda body: TopicList.from_json(body).to_json(),
    351: lambda body: TopicConfig.from_json(body).to_json(),
}


def parameters() -> list[Any]:
    return [
        pytest.param(*each.values, again, id=str(each.id))
        for table, response in ((REQUESTS, False), (RESPONSES, True))
        for code, again in table.items()
        for each in frames_of(code, response=response)
    ]


def comparable(value: Any) -> Any:
    """Return the value without null, false and empty fields and without static topics. Lists that represent sets are
    sorted.
    """
    if isinstance(value, dict):
        items = ((name, comparable(each)) for name, each in value.items() if name != "mappingDataVersion")
        return {name: each for name, each in items if each not in (None, False, {}, [], 0)}
    if isinstance(value, list):
        return sorted((comparable(each) for each in value), key=repr)
    return value


@pytest.mark.parametrize(("frame", "expected", "again"), parameters())
def test_a_body_comes_back_with_the_values_that_java_reads(
    frame: bytes, expected: dict[str, Any], again: Again
) -> None:
    assert comparable(tolerant_json.loads(again(decode(frame).body))) == comparable(expected["json"])


@pytest.mark.parametrize(("frame", "expected"), [each for each in all_frames() if "json" in each.values[1]])
def test_the_tolerant_reader_reads_what_fastjson_writes(frame: bytes, expected: dict[str, Any]) -> None:
    assert tolerant_json.loads_object(decode(frame).body).keys() == expected["json"].keys()


@pytest.mark.parametrize(("frame", "expected"), frames_of(202, response=True))
def test_maps_with_queues_as_keys(frame: bytes, expected: dict[str, Any]) -> None:
    offsets = decode_topic_stats(decode(frame).body)
    sums = sum(offset.max_offset for offset in offsets.values())
    assert {queue.topic for queue in offsets} == {"golden"}
    assert sums == sum(entry["maxOffset"] for entry in expected["json"]["offsetTable"].values())


@pytest.mark.parametrize(("frame", "expected"), frames_of(103, response=False))
def test_a_registration_of_the_reference_is_understood(frame: bytes, expected: dict[str, Any]) -> None:
    table = decode_registration(decode(frame).body)
    wrapper = expected["json"]["topicConfigSerializeWrapper"]
    assert table.data_version.to_dict() == wrapper["dataVersion"]
    assert comparable({name: config.to_dict() for name, config in table.topics.items()}) == comparable(
        wrapper["topicConfigTable"]
    )
