"""Each node of a valid body is replaced or removed: the body is decoded, or a BodyError is raised."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from raptormq.errors import BodyError
from raptormq.protocol.bodies import conversion, group_progress, heartbeat, pop, queue_offsets, queues, route
from raptormq.protocol.bodies import topic_config as topics
from raptormq.protocol.bodies.tolerant_json import loads

QUEUE = {"brokerName": "b", "queueId": 0, "topic": "t"}
KEY = orjson.dumps(QUEUE).decode()
VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 5}
TOPIC = {
    "attributes": {"queue.type": "BatchCQ"},
    "order": False,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "t",
    "topicSysFlag": 0,
    "writeQueueNums": 4,
}
SUBSCRIPTION = {
    "classFilterMode": False,
    "codeSet": [65],
    "expressionType": "TAG",
    "subString": "A",
    "subVersion": 5,
    "tagsSet": ["A"],
    "topic": "t",
}
CONSUMER = {
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "consumeType": "CONSUME_PASSIVELY",
    "groupName": "g",
    "messageModel": "CLUSTERING",
    "subscriptionDataSet": [SUBSCRIPTION],
    "unitMode": False,
}
BROKER = {"brokerAddrs": {"0": "a:1"}, "brokerName": "b", "cluster": "c", "enableActingMaster": False}
CHECK_POINT = {"bm": 0, "bn": "b", "c": "g", "it": 1, "n": 1, "pt": 5, "q": 0, "ro": 0, "so": 7, "t": "t"}
ACK = {"ao": 7, "bn": "b", "c": "g", "pt": 5, "q": 0, "so": 7, "t": "t"}
BODIES: list[tuple[Callable[[bytes], Any], Any]] = [
    (
        conversion.QueueConversionState.from_json,
        loads(conversion.QueueConversionState("t", "BatchCQ", "done").to_json()),
    ),
    (
        group_progress.GroupConnections.from_json,
        {
            "connectionSet": [{"clientAddr": "a:1", "clientId": "i", "language": "JAVA", "version": 495}],
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "subscriptionTable": {"t": SUBSCRIPTION},
        },
    ),
    (group_progress.decode_group_configs, {"subscriptionGroupTable": {"g": {"groupName": "g"}}}),
    (
        group_progress.decode_consume_stats,
        {
            "consumeTps": 0.5,
            "offsetTable": {KEY: {"brokerOffset": 9, "consumerOffset": 7, "lastTimestamp": 5, "pullOffset": 8}},
        },
    ),
    (
        heartbeat.HeartbeatData.from_json,
        {
            "clientID": "i",
            "consumerDataSet": [CONSUMER],
            "heartbeatFingerprint": 0,
            "producerDataSet": [{"groupName": "p"}],
            "withoutSub": False,
        },
    ),
    (heartbeat.decode_consumer_ids, {"consumerIdList": ["i"]}),
    (pop.CheckPoint.from_json, CHECK_POINT),
    (pop.CheckPoint.from_json, CHECK_POINT | {"d": [1]}),
    (pop.Ack.from_json, ACK),
    (pop.Ack.from_json, ACK | {"aol": [7]}),
    (
        pop.decode_batch_acks,
        {"acks": [{"b": "AQ==", "c": "g", "it": 1, "pt": 5, "q": 0, "r": "0", "rq": 0, "so": 7, "t": "t", "bn": "b"}]},
    ),
    (queue_offsets.decode_offsets, {"offsetTable": {KEY: 7}}),
    (queue_offsets.decode_offsets, {"offsetTable": [QUEUE | {"offset": 7}]}),
    (queue_offsets.decode_progress, {"consumerTable": {}, "messageQueueTable": {KEY: 7}}),
    (queues.QueueLockRequest.from_json, {"clientId": "i", "consumerGroup": "g", "mqSet": [QUEUE]}),
    (queues.decode_locked_queues, {"lockOKMQSet": [QUEUE]}),
    (
        queues.decode_topic_stats,
        {"offsetTable": {KEY: {"lastUpdateTimestamp": 5, "maxOffset": 9, "minOffset": 7}}, "topicPutTps": 0.0},
    ),
    (queues.decode_kv_table, {"table": {"a": "1"}}),
    (
        route.TopicRoute.from_json,
        {
            "brokerDatas": [BROKER],
            "filterServerTable": {"b": ["a:1"]},
            "orderTopicConf": "b:4",
            "queueDatas": [
                {"brokerName": "b", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4},
            ],
            "topicQueueMappingByBroker": None,
        },
    ),
    (route.ClusterInfo.from_json, {"brokerAddrTable": {"b": BROKER}, "clusterAddrTable": {"c": ["b"]}}),
    (route.TopicList.from_json, {"brokerAddr": "a:1", "topicList": ["t"]}),
    (
        route.decode_registration,
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": VERSION,
                "mappingDataVersion": VERSION,
                "topicConfigTable": {"t": TOPIC},
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            },
        },
    ),
    (topics.TopicConfig.from_json, TOPIC),
    (topics.TopicConfigTable.from_json, {"dataVersion": VERSION, "topicConfigTable": {"t": TOPIC}}),
]
GONE = object()
OTHERS: tuple[Any, ...] = (
    GONE,
    None,
    True,
    7,
    -1,
    1 << 63,
    0.5,
    "",
    "x",
    "7",
    [],
    [1],
    [[]],
    [None],
    {},
    {"x": 1},
    {"x": None},
    {"": {}},
)


def _damaged(value: Any) -> Iterator[Any]:
    """Yield ``value`` with one node of it replaced, for each node and each replacement."""
    yield from OTHERS
    if isinstance(value, dict):
        for key, inner in value.items():
            rest = {name: each for name, each in value.items() if name != key}
            yield rest | {"x": inner}
            for other in _damaged(inner):
                yield rest if other is GONE else rest | {key: other}
            if key == KEY:
                for other in _damaged(QUEUE):
                    if other is not GONE:
                        yield rest | {orjson.dumps(other).decode(): inner}
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            for other in _damaged(inner):
                yield value[:at] + ([] if other is GONE else [other]) + value[at + 1 :]


@pytest.mark.parametrize(("decode", "body"), BODIES, ids=[decode.__qualname__ for decode, _ in BODIES])
def test_a_node_that_is_something_else_is_read_or_refused(decode: Callable[[bytes], Any], body: Any) -> None:
    decode(orjson.dumps(body))
    refused = 0
    for damaged in _damaged(body):
        if damaged is not GONE:
            with contextlib.suppress(BodyError):
                decode(orjson.dumps(damaged))
                continue
            refused += 1
    assert refused
