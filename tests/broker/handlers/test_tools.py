"""Requests of administration tools about producers and consumers, and on-demand cleanup."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object
from tests.broker.harness import assembly_of, bodies, connected, running
from tests.broker.retention import age


async def test_producers_of_a_group_and_of_all_groups(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.call(204, {"producerGroup": "makers"})).code == 1
        await peer.call(34, None, HeartbeatData("client-1", ["makers"], []).to_json())
        one = loads_object((await peer.call(204, {"producerGroup": "makers"})).body)
        assert [member["clientId"] for member in one["connectionSet"]] == ["client-1"]
        everyone = loads_object((await peer.call(328)).body)["data"]
        assert [member["clientId"] for member in everyone["makers"]] == ["client-1"]
        assert (await peer.call(204)).code == 1


async def test_groups_of_a_topic_and_the_progress_of_all(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert loads_object((await peer.call(300, {"topic": "t"})).body) == {"groupList": []}
        assert loads_object((await peer.call(317, {"isOrder": "false"})).body)["consumeStatsList"] == []
        await peer.send("t", b"1")
        await peer.send("t", b"2")
        await peer.heartbeat("client-1", "listeners", "t")
        offset = {"consumerGroup": "workers", "topic": "t", "queueId": 0, "commitOffset": 1}
        assert (await peer.call(15, offset)).code == 0
        groups = loads_object((await peer.call(300, {"topic": "t"})).body)["groupList"]
        assert groups == ["listeners", "workers"]
        progress = loads_object((await peer.call(317, {"isOrder": "false"})).body)
        assert (progress["totalDiff"], list(progress["consumeStatsList"][0])) == (1, ["workers"])


async def test_clean_ups_are_answered_when_done_and_keep_what_is_in_use(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("kept", b"1")
        await peer.send("gone", b"1")
        assembly_of(broker).topics.delete("gone")
        for code in (306, 316, 329):
            assert (await peer.call(code)).code == 0
        assert "gone" not in broker._store.topics()
        assert (await peer.pull("kept", 0)).code == 0


async def test_a_broker_without_replication_is_a_master_without_slaves(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        status = loads_object((await peer.call(907)).body)
        assert (status["master"], status["inSyncSlaveNums"], status["haConnectionInfo"]) == (True, 0, [])
        assert status["masterAddr"] == broker.address


async def test_old_segments_go_at_any_hour_and_queues_follow(tmp_path: Path) -> None:
    other_hour = f"{(time.localtime().tm_hour + 12) % 24:02}"
    pairs = {"mappedFileSizeCommitLog": "128K", "deleteWhen": other_hour, "fileReservedTime": "24"}
    log, queue = tmp_path / "commitlog", tmp_path / "consumequeue" / "t" / "0"
    async with running(tmp_path, pairs) as broker, connected(broker) as peer:
        for _ in range(1_500):  # more than the items of a queue file
            await peer.send("t", b"x" * 300)
        while not (queue / f"{0:020}").exists() or broker._store.flushed_offset < broker._store.end_offset:
            await asyncio.sleep(0.01)
        old = age(log, 23)
        assert (await peer.call(329)).code == 0
        assert [segment for segment in old if not segment.exists()] == []
        age(log, 25)
        assert (await peer.call(306)).code == 0  # which deletes files of queues
        assert [segment for segment in old if not segment.exists()] == []
        assert (queue / f"{0:020}").exists()
        assert (await peer.call(329)).code == 0
        assert [segment for segment in old if segment.exists()] == []
        assert (await peer.call(306)).code == 0
        assert not (queue / f"{0:020}").exists()
        moved = await peer.pull("t", 0)
        low = int(moved.ext_fields["minOffset"])
        assert (moved.code, moved.ext_fields["nextBeginOffset"]) == (21, str(low))
        assert 1_000 <= low < 1_500
        assert len(bodies(await peer.pull("t", low, count=100, maxMsgBytes=1 << 20))) == min(100, 1_500 - low)


async def test_the_queues_of_topics_that_are_gone_go(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for topic in ("kept", "gone"):
            await peer.send(topic, b"x")
            await peer.call(15, {"consumerGroup": "g", "topic": topic, "queueId": 0, "commitOffset": 1})
    table = tmp_path / "config" / "topics.json"
    topics = loads_object(table.read_bytes())
    del topics["topicConfigTable"]["gone"]
    table.write_bytes(dumps(topics))
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (tmp_path / "consumequeue" / "gone").exists()
        assert (await peer.call(316)).code == 0
        assert not (tmp_path / "consumequeue" / "gone").exists()
        progress = loads_object((await peer.call(208, {"consumerGroup": "g"})).body)["offsetTable"]
        assert {key.count('"gone"') for key in progress} == {0}
        assert bodies(await peer.pull("kept", 0)) == [b"x"]
