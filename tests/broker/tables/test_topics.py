"""Topic table: creation, templates, versions, and the system topics of a broker."""

from __future__ import annotations

from itertools import count

from raptormq.broker.config.config import BrokerConfig
from raptormq.broker.tables.topics import TopicTable, system_topics
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable


def table() -> TopicTable:
    ticks = count(1)
    return TopicTable(TopicConfigTable(), lambda: next(ticks))


def names_of(pairs: dict[str, str]) -> dict[str, TopicConfig]:
    config = BrokerConfig.from_pairs({"brokerName": "broker-a", "brokerClusterName": "C"} | pairs)
    return {topic.topic_name: topic for topic in system_topics(config.identity, config.policies)}


def test_every_change_is_a_new_version_and_is_heard() -> None:
    topics, heard = table(), list[str]()
    topics.listen(heard.append)
    assert topics.put(TopicConfig("t"))
    assert not topics.put(TopicConfig("t"))
    assert topics.put(TopicConfig("t", 4, 4))
    assert topics.delete("t")
    assert not topics.delete("t")
    assert heard == ["t", "t", "t"]
    assert (topics.version.counter, topics.version.timestamp) == (3, 3)


def test_auto_creation_copies_the_template_without_inherit_and_attributes() -> None:
    topics = table()
    topics.put(TopicConfig("TBW102", 8, 8, 7, attributes={"message.type": "FIFO"}))
    assert topics.auto_create("t", "TBW102", 4) == TopicConfig("t", 4, 4, 6)
    assert topics.auto_create("u", "TBW102", 100) == TopicConfig("u", 8, 8, 6)
    assert topics.auto_create("v", "TBW102", -1) == TopicConfig("v", 1, 1, 6)


def test_no_auto_creation_from_an_unknown_or_ordinary_topic() -> None:
    topics = table()
    topics.put(TopicConfig("plain", 8, 8, 6))
    assert topics.auto_create("t", "plain", 4) is None
    assert topics.auto_create("t", "TBW102", 4) is None
    assert topics.get("t") is None


def test_retry_topic() -> None:
    topics = table()
    assert topics.ensure_retry_topic("g", 1) == TopicConfig("%RETRY%g", 1, 1, 6)
    assert topics.ensure_retry_topic("g", 5).read_queue_nums == 1


def test_snapshot_round_trip() -> None:
    topics = table()
    topics.put(TopicConfig("t", 2, 3, 6, attributes={"message.type": "FIFO"}))
    topics.put(TopicConfig("gone"))
    topics.delete("gone")
    again = TopicTable(TopicConfigTable.from_json(topics.snapshot().to_json()), lambda: 0)
    assert (again.configs, again.version) == (topics.configs, topics.version)
    assert topics.snapshot().to_dict() == again.snapshot().to_dict()


def test_system_topics() -> None:
    topics = names_of({})
    assert (topics["TBW102"].write_queue_nums, topics["TBW102"].perm) == (8, 7)
    assert (topics["C"].read_queue_nums, topics["C"].perm) == (16, 7)
    assert (topics["broker-a"].read_queue_nums, topics["broker-a"].perm) == (1, 7)
    assert topics["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18
    assert "C_REPLY_TOPIC" in topics
    assert "RMQ_SYS_TRACE_TOPIC" not in topics


def test_without_auto_creation_there_is_no_template() -> None:
    assert "TBW102" not in names_of({"autoCreateTopicEnable": "false"})


def test_the_template_follows_the_default_queue_count() -> None:
    assert names_of({"defaultTopicQueueNums": "3"})["TBW102"].read_queue_nums == 3
