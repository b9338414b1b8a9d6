"""Handles of popped messages: a property POP_CK counts only if the broker has set it, and one unreadable message does
not affect the others of a response.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.broker.pop import pop_service
from raptormq.client import ClientConfig, Message, MessageQueue, PopConsumer, Producer
from raptormq.client.cluster import ClientInstance
from raptormq.client.consumer.pop_requests import PopRequests
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.headers.pop import PopMessageResponseHeader
from raptormq.protocol.record import StoredMessage, encode_record
from raptormq.storage.queue import PendingRecord
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

STALE = "0 1 60000 3 0 broker-0 0 0"
QUEUE = MessageQueue("t", "broker-0", 0)


@pytest.mark.parametrize("text", [STALE, "no handle", "0 1 60000 3 1 broker-0 0 0"])
async def test_a_message_with_a_foreign_handle_is_received_and_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The broker is an older one, which stored and returns what the producer sent."""
    monkeypatch.setattr(pop_service, "_has_handle", lambda _: False)
    async with Cluster(tmp_path) as cluster:
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send(Message("t", b"0"), queue=QUEUE)
            store = cluster.broker()._store
            store.append([PendingRecord("t", 0, b"1", f"UNIQ_KEY\x01k\x02POP_CK\x01{text}\x02".encode())])
            store.dispatch()
            await producer.send(Message("t", b"2"), queue=QUEUE)
        await eventually(lambda: store.queue_end("t", 0) == 3)
        async with PopConsumer("g", "t", name_servers=cluster.name_servers, invisible_time=1.0) as consumer:
            received = await consumer.receive()
            assert [message.body for message in received] == [b"0", b"1", b"2"]
            assert await received[1].ack()
            assert await received[2].ack()
            again = await consumer.receive(timeout=30.0)
            assert [message.body for message in again] == [b"0"]
            assert await again[0].ack()
            assert await consumer.receive(timeout=2.0) == []


def record(body: bytes, offset: int, properties: str = "UNIQ_KEY\x01k\x02", queue_id: int = 0) -> bytes:
    return encode_record(StoredMessage("t", queue_id, body, properties, queue_offset=offset))


def damaged(body: bytes, offset: int) -> bytes:
    """Return a record whose properties are not UTF-8."""
    return record(body, offset, "UNIQ_KEY\x01kkkk\x02").replace(b"kkkk", b"\xff\xfe\xff\xfe")


async def popped(body: bytes, header: PopMessageResponseHeader) -> list[tuple[bytes, str, int]]:
    """Decode a response. Return body, stored topic and start offset of each message."""
    instance = ClientInstance.acquire(ClientConfig(name_servers="127.0.0.1:1"))
    try:
        requests = PopRequests(instance, "g", Subscription.parse("t", "*", 1), 1_000, from_last=False)
        found = requests._popped(memoryview(body), header, "broker-0")
        return [(each.message.body, each.stored_topic, each.handle.start_offset) for each in found]
    finally:
        await instance.release()


async def test_an_unreadable_message_is_left_out_of_a_response(caplog: pytest.LogCaptureFixture) -> None:
    wrong_crc = record(b"wrong CRC", 3).replace(b"wrong CRC", b"wrong-CRC")
    body = record(b"0", 1) + damaged(b"damaged", 2) + wrong_crc + record(b"4", 4)
    header = PopMessageResponseHeader(7, 1_000, 3, 0, "0 0 1", "0 0 1,2,3,4")
    assert await popped(body, header) == [(b"0", "t", 1), (b"4", "t", 1)]
    assert "offset 2 of queue 0 of broker broker-0" in caplog.text
    assert "offset 3 of queue 0 of broker broker-0" in caplog.text


async def test_messages_before_a_record_with_a_wrong_length_are_received(caplog: pytest.LogCaptureFixture) -> None:
    body = record(b"0", 1) + b"\0\0\0\1" + record(b"2", 2)[4:]
    header = PopMessageResponseHeader(7, 1_000, 3, 0, "0 0 1", "0 0 1,2")
    assert await popped(body, header) == [(b"0", "t", 1)]
    assert "cannot read the rest of a response of broker broker-0" in caplog.text


async def test_the_topic_of_a_message_without_a_valid_handle_follows_from_the_offsets_of_the_response() -> None:
    """Apache RocketMQ keeps a handle that a producer sent, also in a message of the retry topic."""
    own = "5 7 1000 3 1 broker-0 2 6"
    bodies = (
        record(b"topic", 9), record(b"forged", 8, f"POP_CK\x01{STALE}\x02"), record(b"retry", 5, "POP_CK\x01x\x02", 2),
        record(b"broker's", 6, f"POP_CK\x01{own}\x02", 2),
    )  # fmt: skip
    header = PopMessageResponseHeader(7, 1_000, 3, 0, "0 0 8;1 2 5", "0 0 8,9;1 2 5,6")
    retry = "%RETRY%g_t"
    expected = [(b"topic", "t", 8), (b"forged", "t", 8), (b"retry", retry, 5), (b"broker's", retry, 5)]
    assert await popped(b"".join(bodies), header) == expected
