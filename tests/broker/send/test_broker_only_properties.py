"""Properties that only brokers set: what a producer sends under these names is dropped or replaced at every door."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.inner_batch import INNER_BATCH, unwrap
from raptormq.protocol.pop_handle import PopHandle
from raptormq.protocol.properties import (
    BROKER_ONLY,
    POP_PROPERTIES,
    RESERVED,
    SYSTEM,
    decode_properties,
    may_be_broker_only_in,
    without_broker_only,
)
from raptormq.protocol.queue_batches import Part, PartKind
from raptormq.protocol.record import StoredMessage, SysFlag
from raptormq.storage.queue import PendingRecord
from tests.broker.batches.batch_peer import create_topic, send_batch
from tests.broker.handlers.test_pop import ack, come_back, pop
from tests.broker.handlers.test_replies import announce, pushed, reply
from tests.broker.handlers.test_replies import text as reply_text
from tests.broker.handlers.test_send_back import send_back
from tests.broker.harness import Peer, connected, messages, running, send_fields
from tests.broker.send.test_queue_batches import send as send_parts
from tests.broker.staging.staging_peer import STAGES, committed
from tests.broker.transaction.producer import COMMIT, NEVER, end
from tests.client.eventually import eventually

FORGED = "forged"
STALE = "0 1 60000 3 0 broker-a 0 0"
"""A well-formed handle of a pop long ago."""
OWN = {"UNIQ_KEY": "K1", "KEYS": "k", "TAGS": "a", "trace_id": "x_y", "MAX_RECONSUME_TIMES": "3", "INSTANCE_ID": "i"}
SETTINGS = STAGES | NEVER | {"messageDelayLevel": "1s 1s 1s", "timerPrecisionMs": "100"}
Door = Callable[[Broker, Peer, str], Awaitable[list[str]]]


def forged() -> str:
    """Return properties of a client, and all those that only brokers set."""
    return _text(OWN) + _text(dict.fromkeys(sorted(BROKER_ONLY), FORGED))


def _text(pairs: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


async def read(peer: Peer, topic: str = "t", queue_id: int = 0) -> list[str]:
    """Return the properties of all messages of a queue, of which there is at least one, as consumers receive them."""
    found: list[StoredMessage] = []
    for stored in messages(await peer.pull(topic, 0, queue_id, wait_ms=20_000)):
        found += unwrap(stored) if stored.sys_flag & INNER_BATCH else [stored]
    return [message.properties for message in found]


async def single(_: Broker, peer: Peer, text: str) -> list[str]:
    assert (await peer.send("t", b"x", properties=text)).code == 0
    return await read(peer)


async def first_version(_: Broker, peer: Peer, text: str) -> list[str]:
    fields = {
        "producerGroup": "p", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": text, "reconsumeTimes": 0,
    }  # fmt: skip
    assert (await peer.call(RequestCode.SEND_MESSAGE, fields, b"x")).code == 0
    return await read(peer)


async def listed(_: Broker, peer: Peer, text: str) -> list[str]:
    body = encode_batch([(0, b"x", b""), (0, b"y", text.encode())])
    assert (await peer.call(RequestCode.SEND_BATCH_MESSAGE, send_fields("t") | {"m": "true"}, body)).code == 0
    return (await read(peer))[1:]


async def parts(_: Broker, peer: Peer, text: str) -> list[str]:
    body = encode_batch([(0, b"y", text.encode())])
    first = Part(PartKind.MESSAGE, 0, 0, 0, 0, text, b"x")
    answers = await send_parts(peer, first, Part(PartKind.LIST, 0, 0, 0, 0, "", body))
    assert [answer.code for answer in answers] == [0, 0]
    return await read(peer)


async def whole(_: Broker, peer: Peer, text: str) -> list[str]:
    assert (await create_topic(peer)).code == 0
    assert (await send_batch(peer, [(b"x", text), (b"y", text)])).code == 0
    return await read(peer, "b")


async def whole_with_equal_messages(_: Broker, peer: Peer, text: str) -> list[str]:
    """The messages differ only in body and unique key, which is the fast path."""
    assert (await create_topic(peer)).code == 0
    rest = text.replace("UNIQ_KEY\x01K1\x02", "").replace("KEYS\x01k\x02", "")
    batch = [(b"x", f"UNIQ_KEY\x01A{number}\x02{rest}KEYS2\x01k\x02") for number in range(2)]
    assert (await send_batch(peer, batch, "UNIQ_KEY\x01B0\x02WAIT\x01true\x02")).code == 0
    return [each.replace("KEYS2", "KEYS").replace("A0", "K1").replace("A1", "K1") for each in await read(peer, "b")]


async def wrapper(_: Broker, peer: Peer, text: str) -> list[str]:
    """The properties of the batch itself."""
    assert (await create_topic(peer)).code == 0
    assert (await send_batch(peer, [(b"x", "UNIQ_KEY\x01A\x02")], text)).code == 0
    (stored,) = messages(await peer.pull("b", 0, wait_ms=20_000))
    return [stored.properties.replace("INNER_BASE\x010\x02", "")]


async def half(_: Broker, peer: Peer, text: str) -> list[str]:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01producers\x02{text}"
    sent = await peer.send("t", b"x", properties=properties, f=4)
    assert (await end(peer, sent, COMMIT)).code == 0
    return [each.replace("REAL_TOPIC\x01t\x02REAL_QID\x010\x02", "") for each in await read(peer)]


async def delayed(_: Broker, peer: Peer, text: str) -> list[str]:
    assert (await peer.send("t", b"x", properties=f"DELAY\x011\x02{text}")).code == 0
    return await read(peer)


async def timer(_: Broker, peer: Peer, text: str) -> list[str]:
    pairs = decode_properties(text)
    del pairs["TIMER_OUT_MS"]  # as in Apache RocketMQ, a message with this property is not delayed
    assert (await peer.send("t", b"x", properties=f"TIMER_DELAY_MS\x01200\x02{_text(pairs)}")).code == 0
    return await read(peer)


async def retried(_: Broker, peer: Peer, text: str) -> list[str]:
    """A retry that a client sends itself."""
    await peer.heartbeat("c", "g", "t")
    assert (await peer.send("%RETRY%g", b"x", properties=text, j=1)).code == 0
    return await read(peer, "%RETRY%g")


async def answered(_: Broker, peer: Peer, text: str) -> list[str]:
    await announce(peer)
    call = asyncio.ensure_future(reply(peer, reply_text() + text))
    request = await pushed(peer)
    assert (await call).code == 0
    return [request.ext_fields["properties"], *await read(peer, "DefaultCluster_REPLY_TOPIC")]


async def staged(_: Broker, peer: Peer, text: str) -> list[str]:
    assert (await peer.send("t", b"first", properties=_text(OWN))).code == 0
    body = encode_batch([(0, b"x", text.encode())])
    fields = send_fields("t") | {"m": "true", "query": "q", "batch": 0}
    answer = await peer.call(RequestCode.STAGE_BATCH, fields, body)
    await committed(peer, [int(answer.ext_fields["stagedOffset"])])
    found: list[str] = []
    while len(found) < 2:
        found = await read(peer)
    return found


DOORS: tuple[Door, ...] = (
    single, first_version, listed, parts, whole, whole_with_equal_messages, wrapper, half, delayed, timer, retried,
    answered, staged,
)  # fmt: skip


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_a_name_that_only_brokers_set_is_dropped_or_replaced(tmp_path: Path, door: Door) -> None:
    async with running(tmp_path, SETTINGS) as broker, connected(broker) as peer:
        found = await door(broker, peer, forged())
    assert found
    for text in found:
        pairs = decode_properties(text)
        assert {name for name, value in pairs.items() if FORGED in value} == set()
        assert {name: pairs.get(name) for name in OWN} == OWN


async def test_pop_properties_of_a_stored_message_are_not_those_of_its_retry(tmp_path: Path) -> None:
    """Another broker may have stored what its producers sent."""
    async with running(tmp_path, SETTINGS) as broker, connected(broker) as peer:
        await peer.send("t", b"first")
        store(broker, dict.fromkeys(POP_PROPERTIES, FORGED))
        (_, stored) = messages(await peer.pull("t", 0))
        assert (await send_back(peer, stored.physical_offset, delayLevel=1)).code == 0
        (again,) = messages(await peer.pull("%RETRY%g", 0, wait_ms=20_000))
    assert decode_properties(again.properties).keys() & POP_PROPERTIES == set()


def store(broker: Broker, pairs: dict[str, str]) -> None:
    """Store a message with properties that this broker would not accept."""
    broker._store.append([PendingRecord("t", 0, b"x", _text(OWN | pairs).encode())])
    broker._store.dispatch()


@pytest.mark.parametrize("text", [STALE, "no handle", "1 2 3", FORGED])
async def test_the_delivery_replaces_a_handle_that_is_stored_in_a_message(tmp_path: Path, text: str) -> None:
    async with running(tmp_path, SETTINGS) as broker, connected(broker) as peer:
        await peer.send("t", b"first")
        store(broker, {"POP_CK": text})
        await eventually(lambda: broker._store.queue_end("t", 0) == 2)
        popped = await pop(peer, invisibleTime=600)
        first, second = messages(popped)
        assert "POP_CK" not in decode_properties(first.properties)
        handle = decode_properties(second.properties)["POP_CK"]
        assert handle.split(" ")[1] == popped.ext_fields["popTime"]
        assert (await ack(peer, PopHandle(0, 0, 0, 0, ""), 1, extraInfo=handle)).code == 0
        (again,) = await come_back(peer, 1)
        assert again.body == b"first"
        (stored,) = messages(await peer.pull("t", 1))
        assert decode_properties(stored.properties)["POP_CK"] == text, "the log is unchanged"


async def test_the_delivery_of_a_retry_replaces_a_stored_handle(tmp_path: Path) -> None:
    async with running(tmp_path, SETTINGS) as broker, connected(broker) as peer:
        await peer.send("t", b"first")
        store(broker, {"POP_CK": STALE, "1ST_POP_TIME": "1"})
        await eventually(lambda: broker._store.queue_end("t", 0) == 2)
        popped = await pop(peer, invisibleTime=0)
        for again in await come_back(peer, 2):
            pairs = decode_properties(again.properties)
            assert pairs["POP_CK"] != STALE
            assert pairs["1ST_POP_TIME"] == popped.ext_fields["popTime"]


async def test_the_delivery_replaces_a_handle_in_a_compressed_batch(tmp_path: Path) -> None:
    """The broker does not read the messages of a compressed batch when it is sent."""
    async with running(tmp_path, SETTINGS) as broker, connected(broker) as peer:
        assert (await create_topic(peer)).code == 0
        body = zlib.compress(encode_batch([(0, b"x", f"UNIQ_KEY\x01A\x02POP_CK\x01{STALE}\x02".encode())]))
        flags = int(SysFlag.COMPRESSED | SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
        sent = await send_batch(peer, [], "UNIQ_KEY\x01B\x02INNER_NUM\x011\x02", body=body, f=flags)
        assert sent.code == 0, sent.remark
        popped = await pop(peer, topic="b")
        (message,) = messages(popped)
        handle = decode_properties(message.properties)["POP_CK"]
        assert handle.split(" ")[1] == popped.ext_fields["popTime"]


def test_the_reference_lists_the_names() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "requests.md"
    listed = page.read_text(encoding="utf-8").split("- Properties that only brokers set")[1].split(". Apache")[0]
    assert set(re.findall(r"`(\w+#?)`", listed)) == BROKER_ONLY


def test_the_pattern_finds_every_name_of_the_table_and_no_other_name() -> None:
    for name in BROKER_ONLY:
        text = f"a\x01b\x02{name}\x01c\x02d\x01e"
        assert may_be_broker_only_in(text.encode()), name
        assert without_broker_only(text) == "a\x01b\x02d\x01e"
    for name in SYSTEM - BROKER_ONLY:
        text = f"UNIQ_KEY\x01b\x02{name}\x01POP_CK\x02X{name}\x01c\x02"
        assert not may_be_broker_only_in(text.encode()), name
        assert without_broker_only(text) == text
    assert {"INNER_MULTI_QUEUE_OFFSET"} == BROKER_ONLY - RESERVED
