"""Statistics (315), items of a queue (321) and waiting pops (200055, 402)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from raptormq.protocol.bodies.tolerant_json import dumps, loads_object
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.tags import tag_hash
from tests.broker.batches.batch_peer import create_topic, named, send_batch
from tests.broker.harness import Peer, connected, running

CLUSTER = "DefaultCluster"


async def statistic(peer: Peer, name: str, key: str) -> RemotingCommand:
    return await peer.call(315, {"statsName": name, "statsKey": key})


async def test_a_batch_counts_as_its_messages(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"1", queue_id=1)
        await peer.send_list("t", [b"2", b"3", b"4"])
        put = loads_object((await statistic(peer, "TOPIC_PUT_NUMS", "t")).body)
        assert [put[window]["sum"] for window in ("statsMinute", "statsHour", "statsDay")] == [4, 4, 4]
        assert put["statsMinute"]["tps"] > 0
        await peer.pull("t", 0)
        got = loads_object((await statistic(peer, "GROUP_GET_NUMS", "t@consumers")).body)
        assert (got["statsDay"]["sum"], got["statsDay"]["avgpt"]) == (3, 3.0)


async def test_the_bytes_of_a_topic_are_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x" * 1000, queue_id=1)
        await peer.send_list("t", [b"x" * 500, b"x" * 500])
        await peer.send("u", b"x")
        put = loads_object((await statistic(peer, "TOPIC_PUT_SIZE", "t")).body)["statsDay"]
        assert put["sum"] == await stored_bytes(peer, "t") > 2000
        assert put["avgpt"] == put["sum"] / 3
        deleted = await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
        assert deleted.code == 0
        assert (await statistic(peer, "TOPIC_PUT_SIZE", "t")).code == 1


async def stored_bytes(peer: Peer, topic: str) -> int:
    """Return the total size of the records in a topic's queues, according to the items."""
    found = 0
    for queue_id in (0, 1):
        asked = {"topic": topic, "queueId": queue_id, "index": 0, "count": 100}
        found += sum(
            each["physicSize"] for each in loads_object((await peer.call(321, asked)).body).get("queueData", [])
        )
    return found


async def test_a_batch_that_is_stored_whole_counts_as_its_messages(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await create_topic(peer)).code == 0
        assert (await send_batch(peer, named("a", "b", "c"))).code == 0
        await peer.pull("b", 0)
        for name, key in (("TOPIC_PUT_NUMS", "b"), ("GROUP_GET_NUMS", "b@consumers"), ("BROKER_PUT_NUMS", CLUSTER)):
            assert loads_object((await statistic(peer, name, key)).body)["statsDay"]["sum"] == 3


async def test_a_statistic_that_nothing_was_counted_for_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        refused = await statistic(peer, "TOPIC_PUT_NUMS", "t")
        assert (refused.code, refused.remark) == (1, "The stats <TOPIC_PUT_NUMS> <t> not exist")
        assert (await peer.call(315, {"statsName": "TOPIC_PUT_NUMS"})).code == 1


async def test_what_was_stored_before_a_restart_or_a_deletion_does_not_count(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"1")
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await statistic(peer, "TOPIC_PUT_NUMS", "t")).code == 1
        await peer.send("t", b"2")
        assert loads_object((await statistic(peer, "TOPIC_PUT_NUMS", "t")).body)["statsDay"]["sum"] == 1
        assert (await peer.call(215, {"topic": "t"})).code == 0
        assert (await statistic(peer, "TOPIC_PUT_NUMS", "t")).code == 1


async def test_messages_sent_back_count_for_the_topic_that_they_came_from(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"1")
        await peer.heartbeat("client-1", "workers", "t")
        back = {"offset": 0, "group": "workers", "delayLevel": 1, "originTopic": "t"}
        assert (await peer.call(36, back)).code == 0
        counted = loads_object((await statistic(peer, "SNDBCK_PUT_NUMS", "t@workers")).body)
        assert counted["statsDay"]["sum"] == 1


async def test_items_of_a_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for body in (b"1", b"2", b"3"):
            await peer.send("t", body, properties="TAGS\x01A\x02")
        asked = {"topic": "t", "queueId": 0, "index": 1, "count": 10, "consumerGroup": "workers"}
        found = loads_object((await peer.call(321, asked)).body)
        assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
        assert [item["tagsCode"] for item in found["queueData"]] == [tag_hash("A")] * 2
        first, second = found["queueData"]
        assert second["physicOffset"] == first["physicOffset"] + first["physicSize"]
        assert found["filterData"] == "workers@t is not online!"
        await peer.heartbeat("client-1", "workers", "t")
        found = loads_object((await peer.call(321, asked | {"count": 1})).body)
        assert (found["subscriptionData"]["topic"], len(found["queueData"])) == ("t", 1)


async def test_items_outside_of_a_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        asked = {"topic": "t", "queueId": 0, "index": 1, "count": 10}
        assert (await peer.call(321, asked)).code == 1
        await peer.send("t", b"1")
        beyond = await peer.call(321, asked)
        assert (beyond.code, beyond.remark) == (0, "Index 1 of 0@t is not exist!")
        assert loads_object(beyond.body) == {"maxQueueIndex": 1, "minQueueIndex": 0}
        assert (await peer.call(321, asked | {"index": 0, "count": -1})).code == 0
        assert (await peer.call(321, asked | {"queueId": 7})).code == 1


async def test_pops_that_wait_are_counted_by_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as asker:
        await peer.send("t", b"1", queue_id=3)
        asked = {"consumerGroup": "workers", "topic": "t", "queueId": -1}
        assert (await asker.call(200055, asked)).ext_fields["pollingNum"] == "0"
        now = broker._clock()
        pop = asked | {"maxMsgNums": 1, "invisibleTime": 60_000, "pollTime": 25_000, "bornTime": now, "initMode": 0}
        assert (await peer.call(200050, pop)).code == 0
        waiting = asyncio.create_task(peer.call(200050, pop))
        async with asyncio.timeout(20):
            while (await asker.call(200055, asked)).ext_fields["pollingNum"] == "0":
                await asyncio.sleep(0.01)
        assert (await asker.call(200055, asked | {"queueId": 2})).ext_fields["pollingNum"] == "0"
        await asker.send("t", b"2", queue_id=3)
        assert (await waiting).code == 0
        assert (await asker.call(200055, asked | {"topic": "nowhere"})).code == 17
        assert (await asker.call(200055, asked | {"queueId": 99})).code == 29


async def test_how_groups_consume_is_listed(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert loads_object((await peer.call(402)).body) == {"messageRequestModeMap": {}}
        await peer.send("t", b"1")
        await peer.heartbeat("client-1", "workers", "t")
        mode = {"topic": "t", "consumerGroup": "workers", "mode": "POP", "popShareQueueNum": 2}
        assert (await peer.call(401, None, dumps(mode))).code == 0
        assert loads_object((await peer.call(402)).body)["messageRequestModeMap"]["t"]["workers"] == mode
