"""Members of a JSON body: types of names, and the flags that fastjson accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raptormq.errors import BodyError
from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from raptormq.protocol.bodies.members import flag_at, text_at
from raptormq.protocol.bodies.queues import queue_from_dict
from raptormq.protocol.bodies.route import BrokerData, QueueData
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.bodies.topic_config import TopicConfig

QUEUE = {"topic": "t", "brokerName": "b", "queueId": 0}
QUEUES = {"brokerName": "b", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}


def heartbeat(value: Any) -> HeartbeatData:
    return HeartbeatData.from_json(dumps(value))


def producer(value: Any) -> HeartbeatData:
    return heartbeat({"clientID": "i", "producerDataSet": [value]})


def test_text() -> None:
    assert text_at({"name": "a"}, "name") == text_at({}, "name", "a") == text_at({"name": ""}, "name", "a") == "a"
    assert text_at({"name": ""}, "name") == ""


@pytest.mark.parametrize("value", [{}, {"name": None}, {"name": 1}, {"name": ["a"]}])
def test_what_is_no_text(value: dict[str, Any]) -> None:
    with pytest.raises(BodyError, match="name is not a string"):
        text_at(value, "name")


@pytest.mark.parametrize(
    ("value", "flag"),
    [
        *[(each, True) for each in (True, 1, 1.0, "true", "True", "1", "Y", "t")],
        *[(each, False) for each in (False, 0, 2, "false", "FALSE", "0", "n", "F")],
    ],
)
def test_flags_are_read_as_fastjson_reads_them(value: Any, flag: bool) -> None:
    assert flag_at({"flag": value}, "flag", default=not flag) is flag


@pytest.mark.parametrize("value", [{}, {"flag": None}, {"flag": ""}, {"flag": "null"}])
@pytest.mark.parametrize("default", [True, False])
def test_no_flag_is_the_default(value: dict[str, Any], default: bool) -> None:
    assert flag_at(value, "flag", default) is default


@pytest.mark.parametrize("value", ["yes", "off", [], {}, ["true"]])
def test_what_is_no_flag(value: Any) -> None:
    with pytest.raises(BodyError, match="flag is neither true nor false"):
        flag_at({"flag": value}, "flag")


@pytest.mark.parametrize(
    ("read", "value", "name"),
    [
        (heartbeat, {"clientID": "i"}, "clientID"),
        (producer, {"groupName": "p"}, "groupName"),
        (ConsumerData.from_dict, {"groupName": "g"}, "groupName"),
        (Subscription.from_dict, {"topic": "t"}, "topic"),
        (TopicConfig.from_dict, {"topicName": "t"}, "topicName"),
        (queue_from_dict, QUEUE, "topic"),
        (queue_from_dict, QUEUE, "brokerName"),
        (BrokerData.from_dict, {"brokerName": "b"}, "brokerName"),
        (QueueData.from_dict, QUEUES, "brokerName"),
    ],
)
@pytest.mark.parametrize("other", [None, 7, ["x"]])
def test_a_name_is_never_made_of_something_else(
    read: Callable[[Any], Any], value: dict[str, Any], name: str, other: Any
) -> None:
    read(value)
    with pytest.raises(BodyError, match=f"{name} is not a string"):
        read(value | {name: other})


def test_flags_that_are_text() -> None:
    assert not TopicConfig.from_dict({"topicName": "t", "order": "false"}).order
    assert not heartbeat({"clientID": "i", "withoutSub": "false"}).without_sub
    assert not Subscription.from_dict({"topic": "t", "classFilterMode": "false"}).class_filter_mode
