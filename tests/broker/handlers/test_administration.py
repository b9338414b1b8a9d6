"""Small handler families: groups, queue locks, consumers, single records, and the runtime info."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.config_file import parse_properties
from raptormq.protocol.bodies.group_progress import decode_consume_stats
from raptormq.protocol.bodies.queues import QueueLockRequest, decode_kv_table, decode_locked_queues
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.message import MessageQueue
from raptormq.storage.fs.real import RealFileSystem
from tests.broker.harness import Peer, connected, expect_answered_once_saved, messages, running, saved
from tests.protocol.golden import decode, frames_of
from tests.storage.faulty_filesystem import FaultyFileSystem

GROUP = b'{"groupName":"g","retryMaxTimes":3,"consumeTimeoutMinute":7}'
Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


async def test_groups_are_kept_and_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, GROUP)).code == 0
    async with running(tmp_path) as broker, connected(broker) as peer:
        found = loads_object((await peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})).body)
        assert (found["retryMaxTimes"], found["consumeTimeoutMinute"], found["retryQueueNums"]) == (3, 7, 1)
        everything = await peer.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert everything.ext_fields == {"totalGroupNum": "1"}
        assert loads_object(everything.body)["subscriptionGroupTable"]["g"] == found
        await peer.heartbeat("me", "g", "t")
        gone: dict[str, object] = {"groupName": "g", "cleanOffset": "true"}
        assert (await peer.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, gone)).code == 0
        missing = await peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
        retry = await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "%RETRY%g"})
    assert missing.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert retry.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_deletion_is_not_answered_for_before_the_table_says_so(tmp_path: Path) -> None:
    disk = FaultyFileSystem(RealFileSystem())
    async with running(tmp_path, filesystem=disk) as broker, connected(broker) as peer:
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, GROUP)).code == 0
        deletion = RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}
        await expect_answered_once_saved(peer, disk, "/subscriptionGroup.json", *deletion)
        assert "g" not in loads_object(saved(tmp_path / "config" / "subscriptionGroup.json"))["subscriptionGroupTable"]


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"{}", 29), (b'{"groupName":"bad group"}', 29), (b'{"groupName":"g","retryQueueNums":-1}', 29), (b"no", 1)],
)
async def test_bad_groups_are_refused(tmp_path: Path, body: bytes, code: int) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        refused = await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    assert refused.code == code


async def test_queue_locks(tmp_path: Path) -> None:
    async def lock(peer: Peer, client: str, *queues: MessageQueue) -> list[MessageQueue]:
        body = QueueLockRequest("g", client, list(queues)).to_json()
        return decode_locked_queues((await peer.call(RequestCode.LOCK_BATCH_MQ, None, body)).body)

    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await lock(peer, "one", Q0) == [Q0]
        assert await lock(peer, "two", Q0, Q1) == [Q1]
        peer.oneway(RequestCode.UNLOCK_BATCH_MQ, None, QueueLockRequest("g", "one", [Q0]).to_json())
        assert await lock(peer, "two", Q0) == [Q0]


async def test_consumer_connections_and_progress(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1"])
        offline = await peer.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        await peer.heartbeat("me", "g", "t")
        online = await peer.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        commit: dict[str, object] = {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 1}
        await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        progress = await peer.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
        of_topic = await peer.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "t"})
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    group = loads_object(online.body)
    (member,) = group["connectionSet"]
    assert (member["clientId"], member["language"], member["version"]) == ("me", "PYTHON", 479)
    assert (group["consumeType"], group["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert list(group["subscriptionTable"]) == ["t"]
    assert progress.body == of_topic.body
    table = {key: value for key, value in loads_object(progress.body)["offsetTable"].items() if '"queueId":0' in key}
    (queue,) = table.values()
    assert (queue["brokerOffset"], queue["consumerOffset"]) == (2, 1)


async def test_progress_is_told_of_what_a_connected_group_still_subscribes_to(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for topic in ("t", "former"):
            await peer.send(topic, b"x")
            place: dict[str, object] = {"consumerGroup": "g", "topic": topic, "queueId": 0}
            await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": 0})
        before = decode_consume_stats((await peer.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})).body)
        await peer.heartbeat("me", "g", "t")
        after = decode_consume_stats((await peer.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})).body)
        former = await peer.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "former"})
    assert {queue.topic for queue in before} == {"t", "former"}
    assert {queue.topic for queue in after} == {"t"}
    assert decode_consume_stats(former.body) == {}


async def test_progress_tells_what_is_under_way_and_when_the_last_message_consumed_was_stored(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        stored = [message.store_timestamp for message in messages(await peer.pull("t", 0, count=2))]
        place: dict[str, object] = {"consumerGroup": "consumers", "topic": "t", "queueId": 0}
        await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": 1})
        of_group = loads_object((await peer.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "consumers"})).body)
        everything = loads_object((await peer.call(RequestCode.GET_BROKER_CONSUME_STATS)).body)
        ordered = loads_object((await peer.call(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "true"})).body)
        await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": 0})
        at_the_start = loads_object((await peer.call(RequestCode.GET_BROKER_CONSUME_STATS)).body)
    first, other = (of_group["offsetTable"][key] for key in sorted(of_group["offsetTable"])[:2])
    assert first == {
        "brokerOffset": 3,
        "consumerOffset": 1,
        "lastTimestamp": stored[0],
        "minOffset": 0,
        "pullOffset": 2,
    }
    assert other == {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0, "minOffset": 0, "pullOffset": 0}
    assert of_group["consumeTps"] > 0
    assert (everything["totalDiff"], everything["totalInflightDiff"]) == (2, 1)
    assert everything["brokerAddr"] == broker.address
    assert (ordered["totalDiff"], ordered["consumeStatsList"]) == (0, [])
    (queues,) = (stats["offsetTable"] for stats in at_the_start["consumeStatsList"][0]["consumers"])
    assert {queue["lastTimestamp"] for queue in queues.values()} == {0}


async def test_a_record_by_its_place(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        for offset in (1, 1 << 40, -1):
            missing = await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
            assert missing.code == ResponseCode.SYSTEM_ERROR
            assert f"can not find message by the offset, {offset}" in (missing.remark or "")


async def test_runtime_figures_have_every_key_of_apache_rocketmq_in_its_form(tmp_path: Path) -> None:
    theirs = decode_kv_table(decode(frames_of(RequestCode.GET_BROKER_RUNTIME_INFO, response=True)[0].values[0]).body)
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        assert (await peer.send("t", b"x", properties="DELAY\x013\x02")).code == ResponseCode.SUCCESS
        await peer.pull("t", 0)
        ours = decode_kv_table((await peer.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body)
    assert {key for key in theirs if "/" not in key} <= ours.keys()  # one of their settings is the name of a folder
    assert "commitLogDiskRatio_" in "".join(ours)
    numbers = {key for key, value in theirs.items() if value.isdecimal()}
    assert [key for key in numbers & ours.keys() if not ours[key].isdecimal()] == []
    assert len([float(each) for each in ours["putTps"].split()]) == 3
    assert len([float(each) for each in ours["getTransferredTps"].split()]) == 3
    assert 0 <= float(ours["commitLogDiskRatio"]) <= 1
    assert (ours["brokerVersionDesc"], ours["brokerActive"]) == ("V5_3_3", "true")
    assert (ours["msgPutTotalTodayNow"], ours["dispatchBehindBytes"]) == ("2", "0")
    assert ours["dispatchBehindMilliseconds"] == "0"
    assert ours["scheduleMessageOffset_3"] == "0,1"
    assert "unknownSettings" not in ours


async def test_runtime_figures_are_read_by_apaches_exporter(tmp_path: Path) -> None:
    """Decode the runtime info like BrokerRuntimeStats, which splits texts at fixed positions and fails if one is
    missing.
    """
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        table = decode_kv_table((await peer.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body)
    words = table["commitLogDirCapacity"].split(" ")
    sizes = [(float(words[at]), words[at + 1].rstrip(".,")) for at in (2, 6)]
    assert all(number > 0 and unit in ("KiB", "MiB", "GiB", "TiB", "PiB") for number, unit in sizes)
    ranges = dict(each.strip("[]").split("]:") for each in table["putMessageDistributeTime"].split())
    assert list(ranges)[:2] == ["<=0ms", "0~10ms"]
    assert sum(map(int, ranges.values())) == 1
    assert float(table["remainHowManyDataToFlush"].split(" ")[0]) >= 0
    assert 0 < float(table["putLatency99"]) <= float(table["putLatency999"])


async def test_runtime_figures_name_settings_that_nobody_knows(tmp_path: Path) -> None:
    async with running(tmp_path, {"fileReservedTim": "48"}) as broker, connected(broker) as peer:
        table = decode_kv_table((await peer.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body)
    assert table["unknownSettings"] == "unknown setting fileReservedTim is ignored, did you mean fileReservedTime?"


async def test_settings_without_effect_are_remembered(tmp_path: Path) -> None:
    given = {"flushCommitLogLeastPages": "8"}
    async with running(tmp_path, given) as broker, connected(broker) as peer:
        changed = await peer.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"sendMessageThreadPoolNums=64\n")
        pairs = parse_properties((await peer.call(RequestCode.GET_BROKER_CONFIG)).body.decode())
    assert (changed.code, changed.remark) == (0, "stored, but without effect in this broker: sendMessageThreadPoolNums")
    assert (pairs["flushCommitLogLeastPages"], pairs["sendMessageThreadPoolNums"]) == ("8", "64")
    assert "transientStorePoolEnable" not in pairs  # the group was not created


async def test_response_to_a_change_names_values_that_count_as_a_limit(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        changed = await peer.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"diskMaxUsedSpaceRatio=100\n")
        pairs = parse_properties((await peer.call(RequestCode.GET_BROKER_CONFIG)).body.decode())
    assert (changed.code, changed.remark) == (
        0,
        "setting diskMaxUsedSpaceRatio = '100' counts as 95, because the range is 10 to 95",
    )
    assert pairs["diskMaxUsedSpaceRatio"] == "95"


async def test_settings_in_force(tmp_path: Path) -> None:
    async with running(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as broker, connected(broker) as peer:
        answer = await peer.call(RequestCode.GET_BROKER_CONFIG)
    pairs = parse_properties(answer.body.decode())
    assert (pairs["flushDiskType"], pairs["brokerName"]) == ("SYNC_FLUSH", "broker-a")
    assert loads_object(answer.ext_fields["version"].encode())["counter"] > 0


async def test_several_groups_at_a_time_all_or_none(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        good = b'{"groupConfigList":[{"groupName":"g1","retryMaxTimes":3},{"groupName":"g2"}]}'
        assert (await peer.call(225, None, good)).code == 0
        found = loads_object((await peer.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert set(found["subscriptionGroupTable"]) >= {"g1", "g2"}
        bad = b'{"groupConfigList":[{"groupName":"g3"},{"groupName":"not a name"}]}'
        assert (await peer.call(225, None, bad)).code == ResponseCode.INVALID_PARAMETER
        assert (await peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g3"})).code == 26
        assert (await peer.call(225, None, b"no list")).code == ResponseCode.SYSTEM_ERROR
        assert (await peer.call(225, None, b"{}")).code == 0


@pytest.mark.parametrize("code", [513, 516, 908, 1001, 1005, 2001, 2002, 2003, 2004])
async def test_static_topics_controllers_and_cold_data_do_not_exist(tmp_path: Path, code: int) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.call(code)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
