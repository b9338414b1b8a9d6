"""A broker whose topic table is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.harness import bodies, connected, running
from tests.clock import Clock


async def test_topics_are_made_again_from_their_queues(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"first", 2)
    table = tmp_path / "config" / "topics.json"
    for file in (table, table.with_name("topics.json.bak")):
        file.unlink()
    async with running(tmp_path, {"autoCreateTopicEnable": "false"}) as broker, connected(broker) as peer:
        assert bodies(await peer.pull("t", 0, 2)) == [b"first"]
        assert (await peer.send("t", b"second", 2)).code == 0
        config = json.loads((await peer.call(351, {"topic": "t"})).body)
        assert (config["readQueueNums"], config["writeQueueNums"], config["perm"]) == (3, 3, 6)
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert bodies(await peer.pull("t", 0, 2)) == [b"first", b"second"]


async def test_a_topic_that_the_table_does_not_know_stays_unknown(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
    table = tmp_path / "config" / "topics.json"
    known = json.loads(table.read_bytes())
    del known["topicConfigTable"]["t"]
    table.write_text(json.dumps(known))
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.pull("t", 0)).code == 17


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_a_topic_that_the_backup_lacks_is_made_again_with_what_is_delayed_for_it(
    tmp_path: Path, queue_type: str
) -> None:
    clock = Clock()
    levels = {"messageDelayLevel": "1s"}
    table = tmp_path / "config" / "topics.json"
    async with running(tmp_path, levels, clock=clock) as broker, connected(broker) as peer:
        clock.hold()
        for topic, attribute in (("older", ""), ("t", f"+queue.type={queue_type}")):
            fields = {"topic": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "attributes": attribute}
            fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
            assert (await peer.call(17, fields)).code == 0
        assert (await peer.send_list("t", [b"1", b"2"])).code == 0
        assert (await peer.send("t", b"late", 0, "DELAY\x011\x02")).code == 0
    backup = json.loads(table.with_name("topics.json.bak").read_bytes())["topicConfigTable"]
    assert "older" in backup
    assert "t" not in backup
    table.write_bytes(bytes(table.stat().st_size))
    clock.run()
    async with running(tmp_path, levels, clock=clock) as broker, connected(broker) as peer:
        assert bodies(await peer.pull("t", 2, wait_ms=20_000)) == [b"late"]
        assert bodies(await peer.pull("t", 0, count=2)) == [b"1", b"2"]
        config = json.loads((await peer.call(351, {"topic": "t"})).body)
        assert config.get("attributes", {}).get("queue.type", "SimpleCQ") == queue_type
