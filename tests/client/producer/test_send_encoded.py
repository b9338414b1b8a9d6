"""Batches that a connector has encoded: sent as they are, with the properties that brokers need."""

from __future__ import annotations

import zlib

import pytest

from raptormq.client import ClientConfig, EncodedBatch, Message, Producer, ProducerConfig
from raptormq.errors import MessageError, ServerError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.properties import decode_properties
from tests.client.scripted_peer import ScriptedPeer, refuse, route, stored

BATCH = RequestCode.SEND_BATCH_MESSAGE
BODY = encode_batch(
    [
        (0, b"a", b"KEYS\x01k l\x02TAGS\x01x\x02WAIT\x01true\x02UNIQ_KEY\x01id1\x02"),
        (0, b"b", b"TAGS\x01x\x02WAIT\x01true\x02UNIQ_KEY\x01id2\x02"),
    ]
)
ENCODED = EncodedBatch("t", BODY, ["id1", "id2"], "x", ["k", "l"])


def test_the_messages_are_found_again() -> None:
    assert list(ENCODED.messages()) == [
        Message("t", b"a", "x", ("k", "l"), {"UNIQ_KEY": "id1"}),
        Message("t", b"b", "x", (), {"UNIQ_KEY": "id2"}),
    ]


async def test_an_encoded_batch_is_sent_as_it_is() -> None:
    async with ScriptedPeer() as peer, Producer("g", client_config=ClientConfig(peer.address)) as producer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(BATCH, stored(17))
        result = await producer.send_encoded(ENCODED)
        [request] = peer.received[BATCH]
    assert result.queue_offset == 17
    assert request.body == BODY
    properties = decode_properties(request.ext_fields["i"])
    assert properties.pop("UNIQ_KEY") == result.message_id
    assert properties == {"TAGS": "x", "KEYS": "k l", "WAIT": "true"}


@pytest.mark.parametrize(
    ("body", "compress_over_bytes", "is_compressed"),
    [(b"a" * 4096, 4096, True), (b"a" * 4095, 4096, False), (b"a" * 4096, 0, False)],
)
async def test_the_only_message_of_a_batch_is_sent_as_single_message(
    body: bytes, compress_over_bytes: int, is_compressed: bool
) -> None:
    properties = "KEYS\x01k\x02TAGS\x01x\x02WAIT\x01true\x02UNIQ_KEY\x01id1\x02"
    only = EncodedBatch("t", encode_batch([(0, body, properties.encode())]), ["id1"], "x", ["k"])
    config = ProducerConfig(compress_over_bytes=compress_over_bytes)
    async with (
        ScriptedPeer() as peer,
        Producer("g", config=config, client_config=ClientConfig(peer.address)) as producer,
    ):
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(RequestCode.SEND_MESSAGE_V2, stored(17))
        result = await producer.send_encoded(only)
        [request] = peer.received[RequestCode.SEND_MESSAGE_V2]
    assert (result.queue_offset, result.message_id) == (17, "id1")
    sys_flag = int(request.ext_fields["f"])
    assert bool(sys_flag) is is_compressed
    assert (zlib.decompress(request.body) if is_compressed else request.body) == body
    assert request.ext_fields["i"] == properties


async def test_a_broker_that_does_not_know_batches_is_reported() -> None:
    async with ScriptedPeer() as peer, Producer("g", client_config=ClientConfig(peer.address)) as producer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(BATCH, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        with pytest.raises(ServerError) as caught:
            await producer.send_encoded(ENCODED)
    assert caught.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (EncodedBatch("no topic", BODY, ["id1", "id2"]), "no topic"),
        (EncodedBatch("%RETRY%g", BODY, ["id1", "id2"]), "a batch cannot go to %RETRY%g"),
        (EncodedBatch("%DLQ%g", BODY, ["id1", "id2"]), "a batch cannot go to %DLQ%g"),
        (EncodedBatch("t", BODY, ["id1", "id2"], "a||b"), "several tags"),
        (EncodedBatch("t", bytes(101), ["id1"]), "101 bytes is larger than 100"),
    ],
)
async def test_an_invalid_batch_is_not_sent(batch: EncodedBatch, reason: str) -> None:
    config = ProducerConfig(max_message_bytes=100) if len(batch.body) == 101 else ProducerConfig()
    async with ScriptedPeer() as peer:
        async with Producer("g", config=config, client_config=ClientConfig(peer.address)) as producer:
            with pytest.raises(MessageError, match=reason):
                await producer.send_encoded(batch)
        assert not peer.received[BATCH]
