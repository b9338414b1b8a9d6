"""The id of a topic: assigned at its creation, kept until its deletion, and the same after every start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raptormq.broker.tables.topics import TopicTable
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable
from raptormq.protocol.codes import RequestCode
from tests.broker.harness import Peer, assembly_of, bodies, connected, held, running
from tests.broker.slow_disk import SlowDisk, saves_the_topics

DELETE, CREATE, CONFIG = (
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.GET_TOPIC_CONFIG,
)
MADE_AGAIN = 31002
TABLE = Path("config", "topics.json")


def creation(topic: str, **more: object) -> Mapping[str, object]:
    fields: dict[str, object] = {"topic": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    return fields | more


async def id_of(peer: Peer, topic: str) -> str:
    """Return the id in the topic's configuration, which responses with offsets contain, too."""
    config = json.loads((await peer.call(CONFIG, {"topic": topic})).body)
    told = await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0, "topicId": "?"})
    assert config.get("topicId") == told.ext_fields.get("topicId")
    return str(config.get("topicId", ""))


def stored(root: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((root / TABLE).read_bytes())["topicConfigTable"]
    return table


def without_ids(root: Path) -> None:
    """Replace the table by one of a broker without topic ids, or of Apache RocketMQ."""
    contents = json.loads((root / TABLE).read_bytes())
    for config in contents["topicConfigTable"].values():
        del config["attributes"]["topic.id"]
    (root / TABLE).write_text(json.dumps(contents))


async def test_an_id_lives_as_long_as_its_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.call(CREATE, creation("t"))).code == 0
        assert (await peer.send("auto", b"x")).code == 0
        first, auto = await id_of(peer, "t"), await id_of(peer, "auto")
        assert len({first, auto}) == 2
        assert len(first) == 32
        assert (await peer.call(CREATE, creation("t", readQueueNums=2, attributes="+message.type=FIFO"))).code == 0
        listed = {"topicConfigList": [{"topicName": "t", "readQueueNums": 3, "writeQueueNums": 3, "topicId": "mine"}]}
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, json.dumps(listed).encode())).code == 0
        assert await id_of(peer, "t") == first
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await id_of(peer, "t"), await id_of(peer, "auto")) == (first, auto)
        assert (await peer.call(DELETE, {"topic": "t"})).code == 0
        assert (await peer.call(CREATE, creation("t"))).code == 0
        second = await id_of(peer, "t")
        assert second not in ("", first, auto)
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await id_of(peer, "t") == second


async def test_the_file_and_what_tools_copy_are_in_the_form_of_rocketmq(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.call(CREATE, creation("t", attributes="+message.type=FIFO"))
        topic_id = await id_of(peer, "t")
        one = json.loads((await peer.call(CONFIG, {"topic": "t"})).body)
        every = json.loads((await peer.call(RequestCode.GET_ALL_TOPIC_CONFIG)).body)["topicConfigTable"]
    assert stored(tmp_path)["t"]["attributes"] == {"message.type": "FIFO", "topic.id": topic_id}
    assert set(stored(tmp_path)["t"]) == set(every["t"]) == set(one) - {"topicId"}
    assert every["t"]["attributes"] == one["attributes"] == {"message.type": "FIFO"}
    assert all("topic.id" in config["attributes"] for config in stored(tmp_path).values())


async def test_offsets_of_another_topic_are_neither_told_nor_taken(tmp_path: Path) -> None:
    place = {"topic": "t", "queueId": 0, "consumerGroup": "g"}
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.call(CREATE, creation("t"))
        old = await id_of(peer, "t")
        requests: list[tuple[int, dict[str, object]]] = [
            (RequestCode.QUERY_CONSUMER_OFFSET, place),
            (RequestCode.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": 1}),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, place | {"timestamp": 1}),
            (RequestCode.GET_MAX_OFFSET, place),
            (RequestCode.GET_MIN_OFFSET, place),
        ]

        async def codes(topic_id: str) -> list[int]:
            answers = [await peer.call(code, fields | {"topicId": topic_id}) for code, fields in requests]
            pulled = await peer.pull("t", 0, topicId=topic_id)
            for answer in (*answers, pulled):
                assert "topicId" not in answer.ext_fields
            return [answer.code for answer in (*answers, pulled)]

        for _ in range(2):
            await peer.send("t", b"m")
        assert await codes(old) == [0] * 6
        await peer.call(DELETE, {"topic": "t"})
        assert await codes(old) == [17] * 6
        await peer.call(CREATE, creation("t"))
        for _ in range(3):
            await peer.send("t", b"m")
        assert await codes(old) == [MADE_AGAIN] * 6
        new = await id_of(peer, "t")
        told = await peer.pull("t", 0, topicId="?")
        assert (told.ext_fields["topicId"], len(bodies(told))) == (new, 3)
        assert (await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, place | {"topicId": "?"})).ext_fields == {
            "offset": "0",
            "topicId": new,
        }
        assert await codes(new) == [0] * 6
        assert "topicId" not in (await peer.pull("t", 0)).ext_fields


async def test_a_pull_that_waits_is_not_answered_for_the_next_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as admin:
        await peer.call(CREATE, creation("t"))
        old = await id_of(peer, "t")
        waiting = asyncio.create_task(peer.pull("t", 0, wait_ms=20_000, topicId=old))
        await held(peer, 1)
        await admin.call(DELETE, {"topic": "t"})
        await admin.call(CREATE, creation("t"))
        await admin.send("t", b"new")
        assert (await waiting).code in (17, MADE_AGAIN)


async def test_topics_of_an_older_table_get_ids_together_and_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
    without_ids(tmp_path)
    async with running(tmp_path) as broker, connected(broker) as peer:
        await assembly_of(broker).save_tables()
        given = await id_of(peer, "t")
        assert given
        assert stored(tmp_path)["t"]["attributes"]["topic.id"] == given
    contents = json.loads((tmp_path / TABLE).read_bytes())
    contents["topicConfigTable"]["foreign"] = contents["topicConfigTable"]["t"] | {"topicName": "foreign"}
    contents["topicConfigTable"]["foreign"]["attributes"] = {}
    (tmp_path / TABLE).write_text(json.dumps(contents))
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await id_of(peer, "t") == given
        assert await id_of(peer, "foreign") == "", "the topic was created by another broker at an unknown time"
        assert (await peer.pull("foreign", 0, topicId="any")).code != MADE_AGAIN


async def test_topics_that_are_back_from_their_queues_have_no_id(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        before = await id_of(peer, "t")
    for file in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / file).unlink()
    for _ in range(2):
        async with running(tmp_path) as broker, connected(broker) as peer:
            assert await id_of(peer, "t") == ""
            assert bodies(await peer.pull("t", 0, topicId=before)) == [b"x"], "the topic is the same"
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.call(DELETE, {"topic": "t"})
        await peer.send("t", b"y")
        assert (await peer.pull("t", 0, topicId=before)).code == MADE_AGAIN


async def test_an_id_that_is_not_on_disk_is_told_to_nobody(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
    without_ids(tmp_path)
    disk = SlowDisk(saves_the_topics)
    disk.release.clear()
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        assert await id_of(peer, "t") == "", "after a crash the topic would get another id"
        disk.release.set()
        await assembly_of(broker).save_tables()
        given = await id_of(peer, "t")
        disk.release.clear()
        creating = asyncio.create_task(peer.call(CREATE, creation("new")))
        await held(peer, 1)
        assert await id_of(peer, "new") == ""
        disk.release.set()
        assert (await creating).code == 0
        assert await id_of(peer, "new")
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await id_of(peer, "t") == given


def test_ids_are_compared_by_nobody_but_who_asks() -> None:
    numbers = iter(range(100))
    topics = TopicTable(TopicConfigTable(), lambda: 0, lambda: f"id{next(numbers)}")
    topics.put(TopicConfig("t"))
    assert not topics.put(TopicConfig("t", topic_id="forged"))
    topics.put(TopicConfig("t", 4, 4, topic_id="forged"))
    assert topics.configs["t"].topic_id == "id0"
    assert topics.assign_missing_ids() == 0
    saved = set[str]()
    topics.publish_ids_when(saved.__contains__)
    assert topics.published_id("t") is None
    saved.add("t")
    assert topics.published_id("t") == "id0"
    topics.delete("t")
    topics.put(TopicConfig("t"))
    assert topics.published_id("t") == "id1"
