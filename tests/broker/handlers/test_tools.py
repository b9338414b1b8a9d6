"""What admin tools ask about producers and consumers, and the clean-ups that they order."""

from __future__ import annotations

from pathlib import Path

from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.bodies.tolerant_json import loads_object
from tests.broker.harness import connected, running


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
        broker._assembly.topics.delete("gone")  # type: ignore[union-attr]
        for code in (306, 316, 329):
            assert (await peer.call(code)).code == 0
        assert "gone" not in broker._store.topics()
        assert (await peer.pull("kept", 0)).code == 0


async def test_a_broker_without_replication_is_a_master_without_slaves(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        status = loads_object((await peer.call(907)).body)
        assert (status["master"], status["inSyncSlaveNums"], status["haConnectionInfo"]) == (True, 0, [])
        assert status["masterAddr"] == broker.address
