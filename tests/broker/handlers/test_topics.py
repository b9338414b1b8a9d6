"""Topic administration over a real socket."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raptormq.protocol.bodies.queues import TopicOffset, decode_topic_stats
from raptormq.protocol.bodies.route import TopicList
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable
from raptormq.protocol.bodies.unreadable import Unreadable, unreadable_from_dict
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.message import MessageQueue
from raptormq.storage.fs.real import RealFileSystem
from tests.broker.harness import Peer, bodies, connected, expect_answered_once_saved, messages, running, saved
from tests.broker.retention import SHORT_SEGMENTS, delete_what_is_stored
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem


def wanted(topic: str = "t", **more: object) -> dict[str, object]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    } | more


async def create(peer: Peer, topic: str = "t", **more: object) -> tuple[int, str]:
    answer = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted(topic, **more))
    return answer.code, answer.remark or ""


async def config(peer: Peer, topic: str = "t") -> TopicConfig:
    answer = await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
    assert answer.code == 0
    return TopicConfig.from_json(answer.body)


async def test_create_change_and_restart(tmp_path: Path) -> None:
    attributes = "+message.type=FIFO,+queue.type=SimpleCQ"
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await create(peer, readQueueNums=8, attributes=attributes) == (0, "")
        assert await create(peer, readQueueNums=6, perm=4) == (0, "")
    async with running(tmp_path) as broker, connected(broker) as peer:
        found = await config(peer)
    assert (found.read_queue_nums, found.write_queue_nums, found.perm) == (6, 4, 4)
    assert found.attributes == {"message.type": "FIFO", "queue.type": "SimpleCQ"}


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"topic": "bad topic"}, 29, "contains illegal characters"),
        ({"topic": " "}, 29, "blank"),
        ({"topic": "SELF_TEST_TOPIC"}, 29, "system topic"),
        ({"topic": "DefaultCluster"}, 29, "system topic"),
        ({"readQueueNums": 0}, 29, "0 read queues"),
        ({"writeQueueNums": 65_537}, 29, "65537 write queues"),
        ({"perm": 0}, 29, "permission 0"),
        ({"perm": 16}, 29, "permission 16"),
        ({"topicFilterType": "OTHER"}, 29, "topicFilterType"),
        ({"attributes": "+cleanup.policy=COMPACTION"}, 1, "COMPACTION is not supported by this version"),
        ({"attributes": "queue.type=BatchCQ"}, 1, "neither +key=value nor -key"),
        ({"readQueueNums": "four"}, 1, "readQueueNums of CreateTopicRequestHeader is not a 64-bit integer"),
    ],
)
async def test_refusals(tmp_path: Path, change: dict[str, Any], code: int, remark: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        answer = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted() | change)
        assert (await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})).code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.code == code
    assert remark in (answer.remark or "")


async def test_what_is_fixed_at_creation_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create(peer, attributes="+queue.type=SimpleCQ")
        code, remark = await create(peer, readQueueNums=9, attributes="-queue.type")
        assert (code, "cannot be changed after creation" in remark) == (1, True)
        assert (await config(peer)).read_queue_nums == 4


async def test_a_list_is_created_whole_or_not_at_all(tmp_path: Path) -> None:
    def body(*topics: TopicConfig) -> bytes:
        return dumps({"topicConfigList": [topic.to_dict() for topic in topics]})

    async with running(tmp_path) as broker, connected(broker) as peer:
        good = TopicConfig("one", 2, 2, attributes={"message.type": "FIFO"})
        both = body(good, TopicConfig("bad topic", 2, 2))
        refused = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, both)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert (await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "one"})).code == ResponseCode.TOPIC_NOT_EXIST
        more = body(good, TopicConfig("two", 2, 2))
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, more)).code == 0
        assert await config(peer, "one") == good
        signed = body(
            replace(good, attributes={"+message.type": "NORMAL"}), TopicConfig("two", attributes={"-message.type": ""})
        )
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, signed)).code == 0
        assert (await config(peer, "one")).attributes == {"message.type": "NORMAL"}, "in the format of RocketMQ's tools"
        bad = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, b'{"topicConfigList":1}')
        assert bad.code == ResponseCode.SYSTEM_ERROR


async def test_a_deleted_topic_is_gone_with_its_messages_and_offsets(tmp_path: Path) -> None:
    offset: dict[str, object] = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"old")
        await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, offset | {"commitOffset": 1})
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
        assert (await peer.pull("t", 0)).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
        await peer.send("t", b"new")
        assert bodies(await peer.pull("t", 0)) == [b"new"]
        answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, offset | {"setZeroIfNotFound": "false"})
        assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_what_cannot_be_noted_of_a_deletion_is_not_answered_for(tmp_path: Path) -> None:
    disk = FaultyFileSystem(RealFileSystem())
    async with running(tmp_path, filesystem=disk) as broker, connected(broker) as peer:
        await peer.send("t", b"old")
        disk.faults.append(Fault(kind="write", path="/deletedTopics.json", error=errno.ENOSPC))
        failed = await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
        assert failed.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
        assert "t" in json.loads(saved(tmp_path / "config" / "deletedTopics.json"))["deletedTopics"]


async def test_a_deletion_that_is_not_noted_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    """A crash must not leave queues without a topic, or queues of another type than their topic."""
    disk = FaultyFileSystem(RealFileSystem())
    batches = {"attributes": "+queue.type=BatchCQ"}
    async with running(tmp_path, filesystem=disk) as broker, connected(broker) as peer:
        await peer.send("t", b"old")
        before = saved(tmp_path / "config" / "topics.json")
        disk.faults.append(Fault(kind="write", path="/deletedTopics.json", error=errno.ENOSPC, repeats=True))
        failed = await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
        again = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted("t") | batches)
        assert (failed.code, again.code) == (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE)
        assert "deletedTopics.json: No space left on device" in (again.remark or "")
        assert saved(tmp_path / "config" / "topics.json") == before
        disk.faults.clear()
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted("t") | batches)).code == 0
        assert "t" in json.loads(saved(tmp_path / "config" / "deletedTopics.json"))["deletedTopics"]
        assert b"BatchCQ" in saved(tmp_path / "config" / "topics.json")


async def test_a_deletion_is_not_answered_for_before_the_table_says_so(tmp_path: Path) -> None:
    disk = FaultyFileSystem(RealFileSystem())
    async with running(tmp_path, filesystem=disk) as broker, connected(broker) as peer:
        await create(peer)
        await expect_answered_once_saved(peer, disk, "/topics.json", RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
        assert "t" not in json.loads(saved(tmp_path / "config" / "topics.json"))["topicConfigTable"]


async def test_a_deletion_clears_queues_of_a_topic_that_nobody_has(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"old")
    table = tmp_path / "config" / "topics.json"
    table.write_text(json.dumps({"topicConfigTable": {}}), encoding="utf-8")
    batches = {"attributes": "+queue.type=BatchCQ"}
    async with running(tmp_path) as broker, connected(broker) as peer:
        refused = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted("t") | batches)
        assert "queues of another type" in (refused.remark or "")
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted("t") | batches)).code == 0
        assert bodies(await peer.pull("t", 0)) == []


@pytest.mark.parametrize("topic", ["TBW102", "broker-a", "  "])
async def test_system_topics_cannot_be_deleted(tmp_path: Path, topic: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        answer = await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_all_topics_and_system_topics(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create(peer)
        everything = await peer.call(RequestCode.GET_ALL_TOPIC_CONFIG)
        own = TopicList.from_json((await peer.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body)
    table = TopicConfigTable.from_json(everything.body)
    assert everything.ext_fields["totalTopicNum"] == str(len(table.topics))
    assert {"t", "TBW102", "DefaultCluster", "broker-a"} <= table.topics.keys()
    assert "t" not in own.topics
    assert {"TBW102", "DefaultCluster", "broker-a"} <= set(own.topics)


async def test_statistics(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create(peer, readQueueNums=2, writeQueueNums=2)
        await peer.send_list("t", [b"0", b"1"], 1)
        stored = messages(await peer.pull("t", 0, 1))[-1]
        stats = await peer.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "t"})
        unknown = await peer.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "unknown"})
    assert decode_topic_stats(stats.body) == {
        MessageQueue("t", "broker-a", 0): TopicOffset(0, 0, 0),
        MessageQueue("t", "broker-a", 1): TopicOffset(0, 2, stored.store_timestamp),
    }
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


async def unreadable(peer: Peer) -> dict[str, Unreadable]:
    answer = await peer.call(RequestCode.GET_ALL_TOPIC_CONFIG, {"withUnreadable": "true"})
    assert answer.code == 0
    assert TopicConfigTable.from_json(answer.body).topics["t"].write_queue_nums == 4, "the table is in the response"
    return unreadable_from_dict(json.loads(answer.body))


async def test_messages_in_queues_beyond_the_read_queues_are_counted_until_they_are_readable(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create(peer)
        for queue_id in range(4):
            await peer.send_list("t", [b"x"] * 5, queue_id)
        assert await unreadable(peer) == {}
        await create(peer, readQueueNums=1)
        assert await unreadable(peer) == {"t": Unreadable(15, 4)}
        refused = await peer.pull("t", 0, 3)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        plain = await peer.call(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert json.loads(plain.body).keys() == {"dataVersion", "topicConfigTable"}, "only for those who request it"
        await create(peer, readQueueNums=3)
        assert await unreadable(peer) == {"t": Unreadable(5, 4)}
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await unreadable(peer) == {"t": Unreadable(5, 4)}
        await create(peer, readQueueNums=4)
        assert await unreadable(peer) == {}


async def test_messages_beyond_the_read_queues_are_counted_until_they_expire(tmp_path: Path) -> None:
    async with running(tmp_path, SHORT_SEGMENTS) as broker, connected(broker) as peer:
        await create(peer)
        await peer.send_list("t", [b"x"] * 5, 3)
        await create(peer, readQueueNums=1)
        assert await unreadable(peer) == {"t": Unreadable(5, 4)}
        await delete_what_is_stored(tmp_path, broker, peer)
        assert await unreadable(peer) == {}


async def test_mixed_topics_are_allowed_by_a_setting(tmp_path: Path) -> None:
    fields = {
        "topic": "m", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "order": False,
    }  # fmt: skip
    mixed = fields | {"attributes": "+message.type=MIXED"}
    async with running(tmp_path) as broker, connected(broker) as peer:
        refused = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, mixed)
        pair = b"enableMixedMessageType=true"
        assert (await peer.call(RequestCode.UPDATE_BROKER_CONFIG, None, pair)).code == ResponseCode.SUCCESS
        accepted = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, mixed)
    assert (refused.code, "enableMixedMessageType" in (refused.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)
    assert accepted.code == ResponseCode.SUCCESS, accepted.remark
    async with running(tmp_path) as broker, connected(broker) as peer:  # the setting is disabled again
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == ResponseCode.SUCCESS
