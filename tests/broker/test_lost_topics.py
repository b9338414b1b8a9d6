"""A broker whose table of topics is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.harness import bodies, connected, running


@pytest.mark.parametrize("contents", [None, b""])
async def test_topics_are_made_again_from_their_queues(tmp_path: Path, contents: bytes | None) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"first", 2)
    table = tmp_path / "config" / "topics.json"
    for file in (table, table.with_name("topics.json.bak")):
        file.unlink()
    if contents is not None:
        table.write_bytes(contents)
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
