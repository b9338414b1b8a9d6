"""Topic attributes: permitted values, immutable ones, and later changes."""

from __future__ import annotations

import pytest

from raptormq.broker.tables.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, EffectNotices
from raptormq.broker.tables.groups import GroupConfig, GroupTable, with_attributes
from raptormq.broker.tables.topics import TopicTable, apply_attributes
from raptormq.errors import MessageError, RaptorMQError
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable


@pytest.mark.parametrize(
    ("text", "current", "expected"),
    [
        (None, None, {}),
        ("", {"message.type": "FIFO"}, {"message.type": "FIFO"}),
        ("+message.type=FIFO", None, {"message.type": "FIFO"}),
        (" +message.type=DELAY , +queue.type=SimpleCQ ", None, {"message.type": "DELAY", "queue.type": "SimpleCQ"}),
        ("+queue.type=BatchCQ", None, {"queue.type": "BatchCQ"}),
        ("+message.type=FIFO", {"message.type": "NORMAL"}, {"message.type": "FIFO"}),
        ("-message.type", {"message.type": "NORMAL", "queue.type": "SimpleCQ"}, {"queue.type": "SimpleCQ"}),
        ("+queue.type=SimpleCQ", {"queue.type": "SimpleCQ"}, {"queue.type": "SimpleCQ"}),
        ("+message.type=PRIORITY", None, {"message.type": "PRIORITY"}),
        ("+message.type=LITE,+lite.topic.expiration=30", None, {"message.type": "LITE", "lite.topic.expiration": "30"}),
        ("+message.type=MIXED", {"message.type": "NORMAL"}, {"message.type": "MIXED"}),
        ("+reserve.time=-1,+lite.topic.expiration=-1", {}, {"reserve.time": "-1", "lite.topic.expiration": "-1"}),
        ("-lite.topic.expiration", {"lite.topic.expiration": "5"}, {}),
        ("+queue.type=SimpleCQ,+cleanup.policy=DELETE", {}, {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}),
    ],
)
def test_accepted(text: str | None, current: dict[str, str] | None, expected: dict[str, str]) -> None:
    assert apply_attributes(text, current) == expected


@pytest.mark.parametrize(
    ("text", "current", "complaint"),
    [
        ("+queue.type=BatchCQ", {}, "cannot be changed after creation"),
        ("+queue.type=SimpleCQ", {"queue.type": "BatchCQ"}, "cannot be changed after creation"),
        ("+cleanup.policy=COMPACTION", None, "not supported by this version"),
        ("+message.type=OTHER", None, "value is not in set: [NORMAL, UNSPECIFIED, FIFO, DELAY, TRANSACTION, PRIORITY,"),
        ("+lite.topic.expiration=43201", None, "value is not in range(-1, 43200) (lite.topic.expiration=43201)"),
        ("+lite.topic.expiration=-2", None, "value is not in range(-1, 43200)"),
        ("+lite.topic.expiration=soon", None, "value is not in range(-1, 43200)"),
        (f"+reserve.time={'9' * 5000}", None, "value is not in range(-1, 9223372036854775807)"),
        ("+queue.type=Other", None, "value is not in set: [SimpleCQ, BatchCQ] (queue.type=Other)"),
        (
            "+colour=red",
            None,
            "unsupported key: colour; a topic may have cleanup.policy, lite.topic.expiration, message.type,",
        ),
        ("queue.type=SimpleCQ", None, "neither +key=value nor -key"),
        ("+queue.type", None, "neither +key=value nor -key"),
        ("-queue.type=SimpleCQ", None, "neither +key=value nor -key"),
        ("-queue.type", None, "cannot be removed from a topic that does not exist"),
        ("+message.type=FIFO,-message.type", {}, "is both set and removed"),
        ("-queue.type", {"queue.type": "SimpleCQ"}, "cannot be changed after creation"),
        ("-queue.type", {}, "cannot be changed after creation"),
    ],
)
def test_refused(text: str, current: dict[str, str] | None, complaint: str) -> None:
    with pytest.raises(RaptorMQError) as caught:
        apply_attributes(text, current)
    assert complaint in str(caught.value)


LITE_GROUP = {
    "priority.factor": "50", "lite.bind.topic": "parent", "lite.sub.model": "Exclusive",
    "lite.sub.reset.offset.exclusive": "true", "lite.sub.reset.offset.unsubscribe": "false",
    "lite.sub.client.quota": "2000", "lite.sub.client.max.event.cnt": "400", "lite.sub.wildcard": "true",
}  # fmt: skip
"""Every attribute of a group in RocketMQ 5.5."""


def group(attributes: dict[str, str]) -> GroupConfig:
    return GroupConfig.from_dict({"groupName": "g", "attributes": attributes})


def test_the_attributes_of_a_group_are_those_of_rocketmq_5_5() -> None:
    assert set(LITE_GROUP) == set(GROUP_ATTRIBUTES)
    created = with_attributes(group({f"+{key}": value for key, value in LITE_GROUP.items()}), None)
    assert created.attributes == LITE_GROUP
    assert created.priority_factor == 50


def test_a_request_changes_only_the_attributes_that_it_names() -> None:
    current = group(LITE_GROUP)
    changed = with_attributes(group({"+priority.factor": "0", "-lite.bind.topic": ""}), current)
    expected = LITE_GROUP | {"priority.factor": "0"}
    del expected["lite.bind.topic"]
    assert changed.attributes == expected
    assert with_attributes(group({}), changed).attributes == expected
    assert with_attributes(group(expected), changed).attributes == expected, "a decoded value can be encoded again"


@pytest.mark.parametrize(
    ("attributes", "current", "complaint"),
    [
        ({"+colour": "red"}, None, "unsupported key: colour; a group may have lite.bind.topic,"),
        ({"+priority.factor": "101"}, None, "value is not in range(0, 100) (priority.factor=101)"),
        ({"+priority.factor": "-1"}, None, "value is not in range(0, 100)"),
        ({"+priority.factor": "\u0665"}, None, "value is not in range(0, 100)"),
        ({"+lite.sub.model": "Alone"}, None, "value is not in set: [Shared, Exclusive]"),
        ({"-priority.factor": ""}, None, "cannot be removed from a group that does not exist"),
        ({"-priority.factor": "", "+priority.factor": "1"}, "g", "is both set and removed"),
    ],
)
def test_a_wrong_attribute_of_a_group_is_refused(
    attributes: dict[str, str], current: str | None, complaint: str
) -> None:
    with pytest.raises(MessageError) as caught:
        with_attributes(group(attributes), None if current is None else group({}))
    assert complaint in str(caught.value)


def test_a_factor_that_a_file_spoils_is_the_default() -> None:
    assert group({"priority.factor": "much"}).priority_factor == group({}).priority_factor == 100


def test_what_is_kept_without_effect_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    notices = EffectNotices("topic", TOPIC_ATTRIBUTES)
    with caplog.at_level("WARNING"):
        notices.log_new("first", {"lite.topic.expiration": "5", "message.type": "LITE", "queue.type": "BatchCQ"})
        notices.log_new("second", {"lite.topic.expiration": "6", "message.type": "LITE"})
        notices.log_new("third", {"message.type": "PRIORITY", "cleanup.policy": "COMPACTION", "novel": "x"})
    assert [record.getMessage() for record in caplog.records] == [
        "topic first has the attribute lite.topic.expiration=5, which has no effect in this version",
        "topic first has the attribute message.type=LITE, which has no effect in this version",
        "topic third has the attribute cleanup.policy=COMPACTION, which has no effect in this version",
        "topic third has the attribute novel=x, which has no effect in this version",
    ]


def test_the_tables_of_a_store_of_rocketmq_5_5_keep_everything_and_say_what_has_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attributes = {"message.type": "LITE", "lite.topic.expiration": "60", "novel": "1"}
    with caplog.at_level("WARNING"):
        topics = TopicTable(TopicConfigTable({"parent": TopicConfig("parent", attributes=attributes)}), lambda: 1)
        groups = GroupTable({"subscriptionGroupTable": {"g": {"groupName": "g", "attributes": LITE_GROUP}}}, lambda: 1)
    assert topics.to_dict()["topicConfigTable"]["parent"]["attributes"] == attributes
    assert groups.to_dict()["subscriptionGroupTable"]["g"]["attributes"] == LITE_GROUP
    for key in attributes.keys() | LITE_GROUP.keys():
        assert (f" {key}=" in caplog.text) is (key != "priority.factor")
