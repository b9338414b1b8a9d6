"""Sends over a real socket: stored records, responses, and the effect of an invalid request on others."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.errors import StoreReadOnly
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, decode, encode
from raptormq.protocol.frame import FrameDecoder
from raptormq.protocol.message_id import decode_host, parse_offset_id
from raptormq.protocol.properties import decode_properties
from raptormq.storage.fs.real import RealFileSystem
from tests.broker.harness import Peer, assembly_of, bodies, connected, messages, running, send_fields, settings
from tests.broker.slow_disk import SlowDisk, saves_the_topics
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem

V1_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
}


async def test_a_message_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        sent = await peer.send("t", b"body", 3, "TAGS\x01A\x02KEYS\x01k\x02UNIQ_KEY\x01U1\x02")
        (stored,) = messages(await peer.pull("t", 0, 3))
        viewed = await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0, "topic": "t"})
    assert sent.code == 0
    assert {name: sent.ext_fields[name] for name in ("queueId", "queueOffset", "transactionId")} == {
        "queueId": "3",
        "queueOffset": "0",
        "transactionId": "U1",
    }
    assert (sent.ext_fields["MSG_REGION"], sent.ext_fields["TRACE_ON"]) == ("DefaultRegion", "true")
    place = parse_offset_id(sent.ext_fields["msgId"])
    assert (place.host, place.port, place.physical_offset) == ("127.0.0.1", broker.port, stored.physical_offset)
    assert (stored.body, stored.queue_id, stored.flag, stored.born_timestamp) == (b"body", 3, 7, 1_700_000_000_000)
    assert decode_host(stored.born_host)[0] == "127.0.0.1"
    assert decode_properties(stored.properties) == {
        "TAGS": "A",
        "KEYS": "k",
        "UNIQ_KEY": "U1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert messages(viewed) == [stored]


async def test_properties_without_a_final_separator_or_a_unique_key(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        sent = await peer.send("t", b"x", 0, "own\x01value")
        (stored,) = messages(await peer.pull("t", 0))
    found = decode_properties(stored.properties)
    assert found["own"] == "value"
    assert found["UNIQ_KEY"] == sent.ext_fields["transactionId"]
    assert len(found["UNIQ_KEY"]) == 32


@pytest.mark.parametrize("binary", [False, True])
async def test_both_versions_and_both_header_encodings(tmp_path: Path, binary: bool) -> None:
    fields = send_fields("t") | {"i": 'UNIQ_KEY\x01é "\x02'}
    old = {V1_NAMES[letter]: value for letter, value in fields.items()}
    async with running(tmp_path) as broker, connected(broker) as peer:
        answers = [
            await peer.call(RequestCode.SEND_MESSAGE_V2, fields, b"new", binary=binary),
            await peer.call(RequestCode.SEND_MESSAGE, old, b"old", binary=binary),
        ]
        assert bodies(await peer.pull("t", 0)) == [b"new", b"old"]
    assert [answer.code for answer in answers] == [0, 0]
    assert [answer.ext_fields["queueOffset"] for answer in answers] == ["0", "1"]
    assert [answer.ext_fields["transactionId"] for answer in answers] == ['é "'] * 2
    assert [answer.serialize_type for answer in answers] == [int(binary)] * 2


async def test_a_batch_becomes_ordinary_messages_in_one_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"first", 2)
        sent = await peer.send_list("t", [b"a", b"", b"c"], 2, tags="T")
        stored = messages(await peer.pull("t", 1, 2))
    assert (sent.code, sent.ext_fields["queueOffset"]) == (0, "1")
    assert "batchUniqId" not in sent.ext_fields
    places = [parse_offset_id(text).physical_offset for text in sent.ext_fields["msgId"].split(",")]
    assert places == [message.physical_offset for message in stored]
    assert [message.body for message in stored] == [b"a", b"", b"c"]
    broker_adds = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
    assert {message.properties for message in stored} == {"TAGS\x01T\x02" + broker_adds}
    assert {message.flag for message in stored} == {7}


async def test_oneway_sends_are_stored_and_never_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        peer.oneway(RequestCode.SEND_MESSAGE_V2, send_fields("t"), b"1")
        peer.oneway(RequestCode.SEND_MESSAGE_V2, send_fields("no topic!"), b"refused in silence")
        assert (await peer.send("t", b"2")).ext_fields["queueOffset"] == "2"
        assert bodies(await peer.pull("t", 0)) == [b"0", b"1", b"2"]
    assert peer.notices.empty()


async def test_a_refused_send_leaves_the_others_of_its_read_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        commands = [_command(1, "t", 0), _command(2, "bad topic", 0), _command(3, "t", 99), _command(4, "t", 0)]
        writer.write(b"".join(encode(command) for command in commands))
        codes = await _codes_by_opaque(reader, len(commands))
        writer.close()
        assert bodies(await peer.pull("t", 0)) == [b"0", b"1", b"4"]
    assert codes == {1: 0, 2: ResponseCode.INVALID_PARAMETER, 3: ResponseCode.INVALID_PARAMETER, 4: 0}


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"b": None}, 1, "required field b of SendMessageRequestHeaderV2 is missing"),
        ({"g": None}, 1, "required field g of SendMessageRequestHeaderV2 is missing"),
        ({"a": None}, 1, "required field a of SendMessageRequestHeaderV2 is missing"),
        ({"e": "two"}, 1, "the field e of SendMessageRequestHeaderV2 is not a 64-bit integer: 'two'"),
        ({"h": 1 << 31}, 1, "out of range"),
        ({"f": -1}, 1, "out of range"),
        (
            {"e": 8},
            29,
            "request queueId[8] is illegal, TopicConfig [topicName=t, readQueueNums=4,",
        ),
        ({"b": "no such topic"}, 29, "contains illegal characters"),
        ({"b": "x" * 128}, 29, "longer than topic max length"),
        ({"b": "unknown", "c": "t"}, 17, "topic[unknown] not exist"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16, "is forbidden"),
        ({"i": "p\x01" + "x" * 32_767 + "\x02"}, 13, "msg properties length limit 32KB"),
        ({"i": "DELAY\x01x\x02"}, 13, "expected the number of a delay level"),
        ({"i": "TIMER_DELAY_SEC\x01x\x02"}, 13, "timer message illegal"),
        ({"f": 4}, 13, "needs the property TRAN_MSG=true"),
        ({"f": 12}, 13, "needs the property TRAN_MSG=true"),
        ({"f": 0x80}, 13, "accepted only for BatchCQ topics"),
        ({"i": "INNER_NUM\x013\x02"}, 13, "accepted only for BatchCQ topics"),
    ],
)
async def test_refusals(tmp_path: Path, change: dict[str, object], code: int, remark: str) -> None:
    fields = {name: value for name, value in (send_fields("t") | change).items() if value is not None}
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"first")
        refused = await peer.call(RequestCode.SEND_MESSAGE_V2, fields, b"x")
        assert bodies(await peer.pull("t", 0)) == [b"first"]
    assert refused.code == code
    assert remark in (refused.remark or "")


async def test_property_names_that_only_look_like_later_features_pass(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        sent = await peer.send(
            "t", b"x", 0, "MY_DELAY\x013\x02XTRAN_MSG\x01true\x02MY_UNIQ_KEY\x01u\x02TIMER_DAY\x011\x02"
        )
    assert sent.code == 0
    assert sent.ext_fields["transactionId"] != "u"


async def test_the_largest_message_and_one_byte_more(tmp_path: Path) -> None:
    limit = 4_194_304
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.send("t", b"x" * limit)).code == 0
        refused = await peer.send("t", b"x" * (limit + 1))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert f"msg body length limit {limit}B" in (refused.remark or "")
        (stored,) = messages(await peer.pull("t", 0))
        assert len(stored.body) == limit


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"", "empty"),
        (b"\0\0", "is truncated"),
        (b"\0\0\0\x16" + b"\0" * 12 + b"\0\0\1\0" + b"\0\0", "is truncated or has a wrong size"),
    ],
)
async def test_damaged_batches_are_refused_whole(tmp_path: Path, body: bytes, remark: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        refused = await peer.call(RequestCode.SEND_BATCH_MESSAGE, send_fields("t"), body)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert remark in (refused.remark or "")


async def test_the_properties_of_a_message_in_a_batch_have_a_limit(tmp_path: Path) -> None:
    largest = b"large\x01" + b"v" * (32_767 - 62 - 1 - 6)  # the broker needs 62 bytes and a separator
    async with running(tmp_path) as broker, connected(broker) as peer:
        batches = [encode_batch([(0, b"x", text)]) for text in (b"", largest, largest + b"v")]
        codes = [(await peer.call(RequestCode.SEND_BATCH_MESSAGE, send_fields("t"), body)).code for body in batches]
        stored = messages(await peer.pull("t", 0))
    assert codes == [0, 0, ResponseCode.MESSAGE_ILLEGAL]
    assert len(stored[1].properties) == 32_767


async def test_a_batch_to_a_retry_topic_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.send_list("%RETRY%g", [b"x"])).code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_negative_queue_is_the_brokers_choice(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        chosen = {(await peer.send("t", b"x", -1)).ext_fields["queueId"] for _ in range(100)}
    assert chosen == {"0", "1", "2", "3"}


async def test_auto_creation(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        config = await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})
    assert b'"readQueueNums":4' in config.body
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})).body == config.body
        assert bodies(await peer.pull("t", 0)) == [b"x"]


async def test_without_auto_creation(tmp_path: Path) -> None:
    async with running(tmp_path, {"autoCreateTopicEnable": "false"}) as broker, connected(broker) as peer:
        assert (await peer.send("t", b"x")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_without_auto_creation_only_groups_have_retry_topics(tmp_path: Path) -> None:
    pairs = {"autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false"}
    async with running(tmp_path, pairs) as broker, connected(broker) as peer:
        await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName": "g"}')
        own = await peer.send("%RETRY%g", b"again", 0, "DELAY\x011\x02", j=1)
        unknown = [await peer.send(topic, b"x") for topic in ("%RETRY%nosuch", "%DLQ%nosuch")]
        topics = assembly_of(broker).topics.configs
    assert own.code == ResponseCode.SUCCESS
    assert [each.code for each in unknown] == [
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.TOPIC_NOT_EXIST,
    ]
    assert [topic for topic in topics if topic.startswith(("%RETRY%", "%DLQ%"))] == ["%RETRY%g"]


@pytest.mark.parametrize("topic", ["t", "%RETRY%g", "%DLQ%g"])
async def test_topics_created_by_sends_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        parts = assembly_of(broker)
        monkeypatch.setattr("raptormq.broker.send.auto_create.MAX_TOPICS", len(parts.topics.configs) + 1)
        assert (await peer.send("last", b"x")).code == ResponseCode.SUCCESS
        refused = await peer.send(topic, b"x")
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        assert f"topic[{topic}] not exist, and the limit of" in (refused.remark or "")
        assert topic not in parts.topics.configs
        assert parts.groups.get("g") is None


async def test_a_read_only_broker_and_a_read_only_topic(tmp_path: Path) -> None:
    async with running(tmp_path, {"brokerPermission": "4"}) as broker, connected(broker) as peer:
        refused = await peer.send("t", b"x")
        assert (refused.code, "brokerPermission" in (refused.remark or "")) == (ResponseCode.NO_PERMISSION, True)
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("readable", perm=4))
        assert (await peer.send("readable", b"x")).code == ResponseCode.NO_PERMISSION


def topic_fields(topic: str, perm: int = 6) -> dict[str, object]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": perm,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }


async def test_sync_flush_answers_after_the_flush(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with running(tmp_path, {"flushDiskType": "SYNC_FLUSH"}, disk) as broker, connected(broker) as peer:
        assert (await peer.send("t", b"0")).code == 0
        disk.release.clear()
        waiting = asyncio.ensure_future(peer.send("t", b"1"))
        await asyncio.sleep(0)  # its request is sent first
        unpatient = await peer.send("t", b"2", 0, "WAIT\x01false\x02")
        assert not waiting.done()
        # Consumers must not see records that a power failure can remove.
        assert bodies(await peer.pull("t", 0)) == [b"0"]
        disk.release.set()
        assert (await waiting).ext_fields["queueOffset"] == "1"
        assert unpatient.ext_fields["queueOffset"] == "2"
        assert bodies(await peer.pull("t", 1, wait_ms=5_000)) in ([b"1"], [b"1", b"2"])


async def test_a_slow_flush_is_answered_with_its_own_code_and_the_offsets(tmp_path: Path) -> None:
    disk = SlowDisk()
    pairs = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "50"}
    async with running(tmp_path, pairs, disk) as broker, connected(broker) as peer:
        await peer.send("t", b"0")  # a real disk may also be too slow
        disk.release.clear()
        late = await peer.send("t", b"1")
        disk.release.set()
    assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert late.ext_fields["queueOffset"] == "1"


async def test_a_disk_that_stops_answering_makes_the_broker_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raptormq.broker.send.pending_answers.MAX_PENDING_GROUPS", 2)
    disk = SlowDisk()
    async with running(tmp_path, {"flushDiskType": "SYNC_FLUSH"}, disk) as broker, connected(broker) as peer:
        assert (await peer.send("t", b"0")).code == 0
        disk.release.clear()
        waiting = []
        for body in (b"1", b"2"):
            waiting.append(asyncio.ensure_future(peer.send("t", body)))
            await asyncio.sleep(0)
            await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": 0})
        busy = await peer.send("t", b"3")
        assert (busy.code, "wait for the disk" in (busy.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)
        disk.release.set()
        assert [(await answer).code for answer in waiting] == [0, 0]
        assert (await peer.send("t", b"4")).ext_fields["queueOffset"] == "3"


async def test_sends_to_a_new_topic_are_answered_when_the_topic_is_saved(tmp_path: Path) -> None:
    disk = SlowDisk(saves_the_topics)
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        assert (await peer.send("old", b"0")).code == 0
        disk.release.clear()
        first = asyncio.ensure_future(peer.send("new", b"1"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(peer.send("new", b"2"))
        await asyncio.sleep(0)
        await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": "new", "queueId": 0})
        assert not first.done()
        assert not second.done()
        disk.release.set()
        assert [(await answer).ext_fields["queueOffset"] for answer in (first, second)] == ["0", "1"]


@pytest.mark.parametrize(
    "properties",
    ["TRAN_MSG\x01true\x02PGROUP\x01p\x02", "DELAY\x013\x02", "TIMER_DELAY_SEC\x0130\x02"],
    ids=["half", "level", "timer"],
)
async def test_what_waits_in_another_topic_is_answered_when_its_own_topic_is_saved(
    tmp_path: Path, properties: str
) -> None:
    """After a crash the topic would be unknown, and its due or committed messages would be dropped."""
    disk = SlowDisk(saves_the_topics)
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        assert (await peer.send("old", b"0", properties=properties)).code == 0
        disk.release.clear()
        first = asyncio.ensure_future(peer.send("new", b"1", properties=properties))
        await asyncio.sleep(0)
        await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": "new", "queueId": 0})
        assert not first.done()
        disk.release.set()
        assert (await first).code == 0


async def test_a_topic_that_cannot_be_saved_fails_its_sends(tmp_path: Path) -> None:
    disk = FaultyFileSystem(RealFileSystem())
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        assert (await peer.send("old", b"0")).code == 0
        disk.faults.append(Fault(kind="write", path="topics.json", error=errno.ENOSPC))
        failed = await peer.send("new", b"1")
        assert failed.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "No space left on device" in (failed.remark or "")
        assert (await peer.send("new", b"2")).code == 0


async def test_sends_to_a_topic_whose_change_could_not_be_saved_wait_for_it_too(tmp_path: Path) -> None:
    change = {"defaultTopic": "TBW102", "readQueueNums": 6, "writeQueueNums": 6, "perm": 6}
    change |= {"topic": "t", "topicFilterType": "SINGLE_TAG", "order": "false"}
    disk = FaultyFileSystem(RealFileSystem())
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        assert [(await peer.send(topic, b"0")).code for topic in ("t", "other")] == [0, 0]
        disk.faults.append(Fault(kind="write", path="topics.json", error=errno.ENOSPC, repeats=True))
        refused = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, change)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await peer.send("t", b"1", 5)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await peer.send("other", b"1")).code == 0
        disk.faults.clear()
        assert (await peer.send("t", b"2", 5)).code == 0
        table = json.loads((tmp_path / "config" / "topics.json").read_bytes())["topicConfigTable"]
        assert table["t"]["writeQueueNums"] == 6


async def test_a_failed_flush_answers_with_10_and_stops_writes(tmp_path: Path) -> None:
    disk = FaultyFileSystem(RealFileSystem())
    broker = Broker(settings(tmp_path, {"flushDiskType": "SYNC_FLUSH"}), filesystem=disk)
    await broker.start()
    async with connected(broker) as peer:
        assert (await peer.send("t", b"0")).code == 0
        disk.faults.append(Fault(kind="sync", path="/commitlog/", error=errno.EIO))
        assert (await peer.send("t", b"1")).code == ResponseCode.FLUSH_DISK_TIMEOUT
        refused = await peer.send("t", b"2")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "could not be flushed" in (refused.remark or "")
        assert bodies(await peer.pull("t", 0)) == [b"0"]
    with pytest.raises(StoreReadOnly, match="could not be flushed"):
        await broker.stop()


def _command(opaque: int, topic: str, queue_id: int) -> RemotingCommand:
    fields = {name: str(value) for name, value in send_fields(topic, queue_id).items()}
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, str(opaque).encode(), opaque)


async def _codes_by_opaque(reader: asyncio.StreamReader, count: int) -> dict[int, int]:
    codes: dict[int, int] = {}
    decoder = FrameDecoder()
    while len(codes) < count:
        assert not reader.at_eof()
        for frame in decoder.feed(await reader.read(65_536)):
            answer = decode(frame)
            codes[answer.opaque] = answer.code
    return codes


async def test_messages_of_many_connections_do_not_mix(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as one, connected(broker) as two:

        async def produce(peer: Peer, queue_id: int) -> None:
            await asyncio.gather(*(peer.send("t", b"%d:%d" % (queue_id, n), queue_id) for n in range(200)))

        await one.send("t", b"0:first", 0)
        await asyncio.gather(produce(one, 0), produce(two, 1))
        await two.send("t", b"1:last", 1)
        for queue_id in (0, 1):
            seen: list[bytes] = []
            while len(seen) < 201:
                seen += bodies(await one.pull("t", len(seen), queue_id))
            assert all(body.startswith(b"%d:" % queue_id) for body in seen)
            assert len(set(seen)) == 201
