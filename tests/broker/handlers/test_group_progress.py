"""Requests of tools about one group (303, 343, 345), the copy of its progress (314), and a topic that is forbidden to
it (353).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.storage.store import now_ms
from tests.broker.harness import Peer, bodies, connected, held, pull_fields, running

SPANS, CLONE = RequestCode.QUERY_CONSUME_TIME_SPAN, RequestCode.CLONE_GROUP_OFFSET
FORBID = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN


async def commit(peer: Peer, group: str, offset: int, topic: str = "t", queue_id: int = 0) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    assert (await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0


async def committed(peer: Peer, group: str, topic: str = "t", queue_id: int = 0) -> int | None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": "false"}
    answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int(answer.ext_fields["offset"]) if answer.code == 0 else None


async def test_time_spans_tell_how_old_is_what_is_not_consumed(tmp_path: Path) -> None:
    now = [now_ms()]
    async with running(tmp_path, clock=lambda: now[0]) as broker, connected(broker) as peer:
        begin = now[0]
        for _ in range(3):
            await peer.send("t", b"x")
            now[0] += 1_000
        await commit(peer, "g", 2)
        answer = await peer.call(SPANS, {"group": "g", "topic": "t"})
        spans = loads_object(answer.body)["consumeTimeSpanSet"]
        first, empty = spans[:2]
        assert [span["messageQueue"]["queueId"] for span in spans] == [0, 1, 2, 3]
        assert (first["minTimeStamp"], first["maxTimeStamp"]) == (begin, begin + 2_000)
        assert (first["consumeTimeStamp"], first["delayTime"]) == (begin + 1_000, 1_000)
        assert first["minTimeStampStr"].endswith(f":{begin % 1000:03}")
        assert (empty["minTimeStamp"], empty["maxTimeStamp"], empty["delayTime"]) == (-1, -1, 0)
        await commit(peer, "g", 3)
        caught_up = loads_object((await peer.call(SPANS, {"group": "g", "topic": "t"})).body)["consumeTimeSpanSet"][0]
        assert (caught_up["consumeTimeStamp"], caught_up["delayTime"]) == (begin + 2_000, 0)
        nobody = loads_object((await peer.call(SPANS, {"group": "nobody", "topic": "t"})).body)["consumeTimeSpanSet"][0]
        assert (nobody["consumeTimeStamp"], nobody["delayTime"]) == (begin, 3_000)


async def test_time_spans_of_a_topic_that_is_not_there_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.call(SPANS, {"group": "g", "topic": "none"})).code == ResponseCode.TOPIC_NOT_EXIST


async def test_topics_and_subscription_of_a_group(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        await peer.heartbeat("c", "g", "t")
        await commit(peer, "g", 1)
        for group, topics in (("g", ["t"]), ("nobody", [])):
            body = loads_object((await peer.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": group})).body)
            assert (body["topicList"], body["brokerAddr"]) == (topics, broker.address)
        asked = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
        found = loads_object((await peer.call(asked, {"group": "g", "topic": "t"})).body)
        assert (found["group"], found["topic"], found["subscriptionData"]["subString"]) == ("g", "t", "*")
        for fields in ({"group": "g", "topic": "u"}, {"group": "nobody", "topic": "t"}):
            assert loads_object((await peer.call(asked, fields)).body) == fields


async def test_a_group_goes_on_where_another_one_is(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for topic in ("t", "u", "gone"):
            await peer.send(topic, b"x")
            await commit(peer, "g", 1, topic)
        await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "gone"})
        assert (await peer.call(CLONE, {"srcGroup": "g", "destGroup": "one", "topic": "t"})).code == 0
        assert [await committed(peer, "one", topic) for topic in ("t", "u")] == [1, None]
        assert (await peer.call(CLONE, {"srcGroup": "g", "destGroup": "all"})).code == 0
        assert [await committed(peer, "all", topic) for topic in ("t", "u", "gone")] == [1, 1, None]
        assert (await peer.call(CLONE, {"srcGroup": "nobody", "destGroup": "none", "topic": "t"})).code == 0
        assert await committed(peer, "none") is None


async def test_topics_that_members_do_not_subscribe_to_are_copied_only_offline(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        await peer.heartbeat("c", "g", "u")
        await commit(peer, "g", 1)
        fields = {"srcGroup": "g", "destGroup": "copy", "topic": "t"}
        for offline, offset in (("false", None), ("true", 1)):
            assert (await peer.call(CLONE, fields | {"offline": offline})).code == 0
            assert await committed(peer, "copy") == offset


async def readable(peer: Peer, **fields: str) -> bool:
    answer = await peer.call(FORBID, {"group": "consumers", "topic": "t"} | fields)
    assert answer.code == 0
    return bool(loads_object(answer.body)["readable"])


@pytest.mark.parametrize("by_heartbeat", [True, False])
async def test_a_group_that_may_not_read_a_topic_is_refused_until_it_may(tmp_path: Path, *, by_heartbeat: bool) -> None:
    asked = pull_fields("t", 0) | ({"sysFlag": 0} if by_heartbeat else {})
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        await peer.heartbeat("c", "consumers", "t")
        assert await readable(peer)
        assert not await readable(peer, readable="false")
        refused = await peer.call(RequestCode.PULL_MESSAGE, asked)
        assert (refused.code, refused.ext_fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "5")
        assert bodies(await peer.pull("t", 0, consumerGroup="others")) == [b"x"]
    async with running(tmp_path) as broker, connected(broker) as peer:  # the prohibition survives a restart
        await peer.heartbeat("c", "consumers", "t")
        assert (await peer.call(RequestCode.PULL_MESSAGE, asked)).code == ResponseCode.NO_PERMISSION
        assert await readable(peer, readable="true")
        assert bodies(await peer.call(RequestCode.PULL_MESSAGE, asked)) == [b"x"]


async def test_a_pull_that_waits_is_answered_when_its_group_may_read_no_more(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as admin:
        await peer.send("t", b"x")
        task = asyncio.ensure_future(peer.pull("t", 1, wait_ms=60_000))
        await held(peer, 1)
        await readable(admin, readable="false")
        assert (await task).code == ResponseCode.PULL_NOT_FOUND
