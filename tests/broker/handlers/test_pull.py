"""Pulls over a real socket: codes, long polling, filters and limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.cooperative import steady_ms
from raptormq.broker.pull import service
from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from tests.broker.harness import assembly_of, bodies, connected, held, messages, pull_fields, running, send_fields

LONG = 20_000


def places(response: RemotingCommand) -> tuple[int, ...]:
    return tuple(int(response.ext_fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))


async def test_found(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"%d" % n for n in range(5)])
        found = await peer.pull("t", 1, count=3)
    assert (found.code, found.remark, places(found)) == (0, "FOUND", (4, 0, 5))
    assert found.ext_fields["suggestWhichBrokerId"] == "0"
    assert bodies(found) == [b"1", b"2", b"3"]
    assert [message.queue_offset for message in messages(found)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("queue_id", "offset", "code", "status", "next_offset"),
    [
        (0, 3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (0, 4, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (0, -1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
        (1, 0, ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", 0),
        (1, 7, ResponseCode.PULL_OFFSET_MOVED, "NO_MATCHED_LOGIC_QUEUE", 0),
    ],
)
async def test_nothing_found(
    tmp_path: Path, queue_id: int, offset: int, code: int, status: str, next_offset: int
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        answer = await peer.pull("t", offset, queue_id)
    assert (answer.code, answer.remark, answer.body) == (code, status, b"")
    assert places(answer)[0] == next_offset


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"queueId": 4}, 29, "queueId[4] is illegal, topic:[t] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:"),
        ({"queueId": -1}, 29, "queueId[-1] is illegal"),
        ({"topic": "unknown"}, 17, "topic[unknown] not exist"),
        ({"subscription": " || "}, 23, "has no tag"),
        ({"expressionType": "SQL92"}, 1, "filter message by SQL92"),
        ({"sysFlag": 0}, 24, "the consumer's group info not exist"),
        ({"queueOffset": None}, 1, "required field queueOffset of PullMessageRequestHeader is missing"),
        ({"consumerGroup": "bad group"}, 29, "has characters outside"),
    ],
)
async def test_refusals(tmp_path: Path, change: dict[str, object], code: int, remark: str) -> None:
    fields = {name: value for name, value in (pull_fields("t", 0) | change).items() if value is not None}
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        refused = await peer.call(RequestCode.PULL_MESSAGE, fields)
    assert refused.code == code
    assert remark in (refused.remark or "")


async def test_permissions_name_what_forbids(tmp_path: Path) -> None:
    pairs = {"brokerPermission": "2", "litePullMessageEnable": "false"}
    async with running(tmp_path, pairs) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        refused = await peer.pull("t", 0)
        lite = await peer.call(RequestCode.LITE_PULL_MESSAGE, pull_fields("t", 0))
    assert (refused.code, refused.ext_fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "1")
    assert (lite.code, "litePullMessageEnable" in (lite.remark or "")) == (ResponseCode.NO_PERMISSION, True)


async def test_a_topic_that_is_not_readable(tmp_path: Path) -> None:
    topic: dict[str, object] = {
        "topic": "t",
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 2,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
        refused = await peer.pull("t", 0)
    assert (refused.code, refused.ext_fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "3")


async def test_broadcasting_may_be_forbidden(tmp_path: Path) -> None:
    group = b'{"groupName":"consumers","consumeBroadcastEnable":false}'
    consumer = ConsumerData("consumers", message_model="BROADCASTING", subscriptions=[Subscription.parse("t", "*", 1)])
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
        await peer.call(RequestCode.HEART_BEAT, None, HeartbeatData("me", consumers=[consumer]).to_json())
        refused = await peer.pull("t", 0, sysFlag=0, subVersion=1)
        carries_its_subscription = await peer.pull("t", 0)
    assert carries_its_subscription.code == 0
    assert (refused.code, refused.ext_fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "4")


async def test_a_push_consumer_that_filters_by_sql_is_refused(tmp_path: Path) -> None:
    subscription = Subscription("t", "a > 1", version=1, expression_type="SQL92")
    data = HeartbeatData("me", consumers=[ConsumerData("consumers", subscriptions=[subscription])])
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        assert (await peer.call(RequestCode.HEART_BEAT, None, data.to_json())).code == 0
        refused = await peer.pull("t", 0, sysFlag=0, subVersion=1)
    assert (refused.code, "filter message by SQL92" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_group_that_may_not_consume_and_one_that_does_not_exist(tmp_path: Path) -> None:
    async with running(tmp_path, {"autoCreateSubscriptionGroup": "false"}) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        assert (await peer.pull("t", 0)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        group = b'{"groupName":"consumers","consumeEnable":false}'
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)).code == 0
        refused = await peer.pull("t", 0)
    assert (refused.code, refused.ext_fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "2")


async def test_lite_pull_is_a_pull(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        assert bodies(await peer.call(RequestCode.LITE_PULL_MESSAGE, pull_fields("t", 0))) == [b"x"]


async def test_tags_are_filtered_by_the_broker(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for tag in "ABAC":
            await peer.send("t", tag.encode(), 0, f"TAGS\x01{tag}\x02")
        await peer.send("t", b"none")
        assert bodies(await peer.pull("t", 0, subscription="B || C")) == [b"B", b"C"]
        nothing = await peer.pull("t", 0, subscription="Z")
    assert (nothing.code, nothing.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert places(nothing)[0] == 5


async def test_a_push_consumer_pulls_by_its_heartbeat(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        await peer.heartbeat("me", "consumers", "t")
        by_heartbeat = {"sysFlag": 0, "subVersion": 1}
        assert bodies(await peer.pull("t", 0, **by_heartbeat)) == [b"x"]
        newer = await peer.pull("t", 0, sysFlag=0, subVersion=2)
        other = await peer.pull("TBW102", 0, **by_heartbeat)
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert other.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_pull_commits_when_it_says_so(tmp_path: Path) -> None:
    question = {"consumerGroup": "consumers", "topic": "t", "queueId": 0}
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1"])
        await peer.pull("t", 0, commitOffset=2)
        before = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, question | {"setZeroIfNotFound": "false"})
        await peer.pull("t", 0, commitOffset=2, sysFlag=4 | 1)
        after = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, question)
    assert before.code == ResponseCode.QUERY_NOT_FOUND
    assert after.ext_fields == {"offset": "2"}


@pytest.mark.parametrize(
    ("count", "fields", "expected"),
    [(1000, {}, 32), (1000, {"maxMsgBytes": 1 << 30}, 100), (1000, {"maxMsgBytes": 1}, 1), (0, {}, 1), (7, {}, 7)],
)
async def test_how_many_messages_a_pull_gets(tmp_path: Path, count: int, fields: dict[str, int], expected: int) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"x"] * 100)
        assert len(bodies(await peer.pull("t", 0, count=count, **fields))) == expected


# --- long polling ---


async def test_a_held_pull_is_answered_when_its_message_comes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        await peer.send("t", b"0", 1)
        waiting = [asyncio.ensure_future(peer.pull("t", 0, queue_id, wait_ms=LONG)) for queue_id in (0, 2)]
        await held(peer, 2)
        await producer.send("t", b"mine", 2)
        assert bodies(await waiting[1]) == [b"mine"]
        assert not waiting[0].done()
        await producer.send_list("t", [b"a", b"b"], 0)
        assert bodies(await waiting[0]) == [b"a", b"b"]


async def test_a_held_pull_with_tags_sleeps_through_the_others(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        await producer.send("t", b"0")
        waiting = asyncio.ensure_future(peer.pull("t", 1, wait_ms=LONG, subscription="A"))
        await held(peer, 1)
        for tag in "BBCB":
            await producer.send("t", b"no", 0, f"TAGS\x01{tag}\x02")
        assert not waiting.done()
        await producer.send("t", b"yes", 0, "TAGS\x01A\x02")
        found = await waiting
    assert (bodies(found), places(found)[0]) == ([b"yes"], 6)


async def test_a_held_pull_ends_empty_when_its_time_is_up(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        loop = asyncio.get_running_loop()
        started = loop.time()
        answer = await peer.pull("t", 1, wait_ms=300)
        assert loop.time() - started >= 0.29
    assert (answer.code, places(answer)) == (ResponseCode.PULL_NOT_FOUND, (1, 0, 1))


async def test_a_message_of_another_tag_is_reported_when_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        await producer.send("t", b"0")
        waiting = asyncio.ensure_future(peer.pull("t", 1, wait_ms=LONG, subscription="A"))
        await held(peer, 1)
        await producer.send("t", b"no", 0, "TAGS\x01B\x02")
        monkeypatch.setattr(assembly_of(broker).pulls, "_steady_clock", lambda: steady_ms() + LONG + 5000)
        answer = await waiting
    assert (answer.code, places(answer)[0]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2)


async def test_idle_consumers_are_read_lazily_until_there_is_something_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "IDLE_PULLS", 3)
    monkeypatch.setattr(service, "EXPIRED_AT_A_TIME", 2)
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        assert broker._server is not None
        lazy_reader = broker._server._lazy_reader
        await producer.send("t", b"0")
        waiting = [asyncio.ensure_future(peer.pull("t", 1, wait_ms=LONG)) for _ in range(3)]
        waiting.append(asyncio.ensure_future(producer.pull("t", 1, wait_ms=LONG)))
        await held(peer, 3)
        await held(producer, 1)
        with monkeypatch.context() as patched:
            patched.setattr(assembly_of(broker).pulls, "_steady_clock", lambda: steady_ms() + LONG + 5000)
            assert [(await each).code for each in waiting] == [ResponseCode.PULL_NOT_FOUND] * 4
            assert len(lazy_reader) == 1  # not the producer
        again = asyncio.ensure_future(peer.pull("t", 1, wait_ms=LONG))
        await held(peer, 1)
        assert len(lazy_reader) == 1
        await producer.send("t", b"1")
        assert bodies(await again) == [b"1"]
        assert len(lazy_reader) == 0


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.POP_MESSAGE])
async def test_an_idle_consumer_that_replies_or_pops_is_read_at_once_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: RequestCode
) -> None:
    monkeypatch.setattr(service, "IDLE_PULLS", 1)
    popping = {"consumerGroup": "g", "topic": "t", "queueId": 0, "maxMsgNums": 1, "invisibleTime": 1, "pollTime": 0}
    fields = popping | {"bornTime": 1 << 60, "initMode": 0} if code == RequestCode.POP_MESSAGE else send_fields("t", 3)
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        assert broker._server is not None
        await producer.send("t", b"0")
        for lazy in (1, 0):
            waiting = asyncio.ensure_future(peer.pull("t", 1, wait_ms=LONG))
            await held(peer, 1)
            with monkeypatch.context() as patched:
                patched.setattr(assembly_of(broker).pulls, "_steady_clock", lambda: steady_ms() + LONG + 5000)
                assert (await waiting).code == ResponseCode.PULL_NOT_FOUND
            assert len(broker._server._lazy_reader) == lazy
            assert (await peer.call(code, fields, b"x")).remark is not None
            assert len(broker._server._lazy_reader) == 0


@pytest.mark.parametrize(("wait_ms", "many"), [(200, 1), (LONG, 100)])
async def test_others_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_ms: int, many: int
) -> None:
    monkeypatch.setattr(service, "IDLE_PULLS", many)
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        assert broker._server is not None
        await producer.send("t", b"0")
        waiting = asyncio.ensure_future(peer.pull("t", 1, wait_ms=wait_ms))
        await held(peer, 1)
        monkeypatch.setattr(assembly_of(broker).pulls, "_steady_clock", lambda: steady_ms() + LONG + 5000)
        assert (await waiting).code == ResponseCode.PULL_NOT_FOUND
        assert len(broker._server._lazy_reader) == 0


async def test_without_long_polling_a_pull_waits_shortly(tmp_path: Path) -> None:
    pairs = {"longPollingEnable": "false", "shortPollingTimeMills": "1"}
    async with running(tmp_path, pairs) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        assert (await peer.pull("t", 1, wait_ms=LONG)).code == ResponseCode.PULL_NOT_FOUND


async def test_more_pulls_than_may_be_held_are_answered_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, {"maxHeldPulls": "2"}) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        waiting = [asyncio.ensure_future(peer.pull("t", 1, wait_ms=LONG)) for _ in range(3)]
        done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().code for task in done] == [ResponseCode.PULL_NOT_FOUND]
        await peer.send("t", b"1")
        assert [bodies(await task) for task in pending] == [[b"1"], [b"1"]]


async def test_deleting_a_topic_answers_its_held_pulls(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as admin:
        await peer.send("t", b"0")
        waiting = asyncio.ensure_future(peer.pull("t", 1, wait_ms=LONG))
        await held(peer, 1)
        await admin.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
        assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_stop_answers_held_pulls_and_is_quick(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        waiting = asyncio.ensure_future(peer.pull("t", 1, wait_ms=LONG))
        await held(peer, 1)
        async with asyncio.timeout(LONG / 1000):
            await broker.stop()
        assert (await waiting).code == ResponseCode.PULL_NOT_FOUND
