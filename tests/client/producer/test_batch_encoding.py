"""Batches compressed as a whole: only for topics that store batches whole, only if it saves bytes, and never lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raptormq.client import ClientConfig, Compression, Message, MessageQueue, Producer, ProducerConfig, SendResult
from raptormq.client.message import send_request as outgoing_module
from raptormq.client.producer.in_flight import InFlight
from raptormq.errors import ServerError
from raptormq.protocol.batch import decode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.compression import compress, decompress
from raptormq.protocol.headers.send import SendMessageResponseHeader
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.inner_ids import unpack_ids
from raptormq.protocol.properties import decode_properties
from raptormq.transport.connection import Connection
from tests.client.eventually import eventually
from tests.client.producer.test_queue_batches import shipped
from tests.client.scripted_peer import Reply, ScriptedPeer, refuse, route, stored, stored_whole

BATCH, SINGLE = RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2
LISTED = [Message("t", b"again and again " * 30, "T") for _ in range(10)]


@asynccontextmanager
async def producing(peer: ScriptedPeer, *others: ScriptedPeer, **settings: object) -> AsyncIterator[Producer]:
    peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer, *others))
    values = {"compress_batches": True, "retries": 0, **settings}
    config = ProducerConfig(**values)  # type: ignore[arg-type]
    async with Producer("g", config=config, client_config=ClientConfig(peer.address)) as producer:
        yield producer


@pytest.mark.parametrize("compression", list(Compression))
async def test_a_topic_that_stores_batches_whole_gets_them_compressed(compression: Compression) -> None:
    async with ScriptedPeer() as peer, producing(peer, compression=compression) as producer:
        peer.on(BATCH, stored_whole())
        peer.on(SINGLE, stored(17))
        first, second = await producer.send_batch(LISTED), await producer.send_batch(LISTED)
        [plain], [wrapped] = peer.received[BATCH], peer.received[SINGLE]
        assert (first.queue_offset, second.queue_offset) == (7, 17)
        assert plain.ext_fields["f"] == "0"
        sys_flag = int(wrapped.ext_fields["f"])
        assert sys_flag == compression.value | 0xC0
        assert len(wrapped.body) < len(plain.body) / 3
        assert [record.body for record in decode_batch(decompress(wrapped.body, sys_flag))] == [
            message.body for message in LISTED
        ]
        properties = decode_properties(wrapped.ext_fields["i"])
        assert properties["INNER_NUM"] == "10"
        assert properties["TAGS"] == "T"
        assert len(second.message_id.split(",")) == 10


@pytest.mark.parametrize("auto_batch", [False, True], ids=["list", "AutoBatch"])
async def test_a_batch_that_nobody_can_look_into_says_the_ids_of_its_messages(auto_batch: bool) -> None:
    keyed = [Message("t", b"again and again " * 300, keys=(f"k{number}",) if number % 2 else ()) for number in range(6)]
    async with ScriptedPeer() as peer, producing(peer, auto_batch=auto_batch) as producer:
        peer.on(BATCH, stored_whole())
        peer.on(SINGLE, stored(17))
        await producer.send_batch(keyed)
        if auto_batch:
            ids = [(await future).message_id for future in [producer.submit(message) for message in keyed]]
        else:
            ids = (await producer.send_batch(keyed)).message_id.split(",")
        [wrapped] = peer.received[SINGLE]
    assert unpack_ids(wrapped.ext_fields["i"]) == ids
    assert len(decode_properties(wrapped.ext_fields["i"])["__INNER_IDS"]) == len(ids[0]) + len("*6")


async def test_other_topics_and_producers_that_do_not_compress_send_lists_as_they_are() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(BATCH, stored())
        for _ in range(2):
            await producer.send_batch(LISTED)
    async with ScriptedPeer() as peer, producing(peer, compress_batches=False) as producer:
        peer.on(BATCH, stored_whole())
        for _ in range(2):
            await producer.send_batch(LISTED)
        assert (len(peer.received[BATCH]), len(peer.received[SINGLE])) == (2, 0)


LONG = b"again and again " * 300


def several(ids: str = "a,b,c") -> Reply:
    """Respond to a list like a broker that stores its messages individually."""

    def reply(connection: Connection, request: RemotingCommand) -> None:
        header = SendMessageResponseHeader(ids, int(request.ext_fields["e"]), 7)
        connection.send(response_to(request, ResponseCode.SUCCESS, None, header))

    return reply


@pytest.mark.parametrize("compression", list(Compression))
async def test_a_list_of_long_messages_is_compressed_message_by_message_elsewhere(compression: Compression) -> None:
    listed = [Message("t", LONG + b"%d" % number, "T", (f"k{number}",), flag=number) for number in range(3)]
    async with ScriptedPeer() as peer, producing(peer, compression=compression) as producer:
        peer.on(BATCH, several())
        for _ in range(2):
            result = await producer.send_batch(listed)
        plain, smaller = peer.received[BATCH]
    assert (plain.ext_fields["f"], smaller.ext_fields["f"]) == ("0", str(compression.value))
    assert len(smaller.body) < len(plain.body) / 3
    records = decode_batch(smaller.body)
    assert [decompress(record.body, compression.value) for record in records] == [each.body for each in listed]
    assert [record.flag for record in records] == [0, 1, 2]
    ids = [decode_properties(record.properties.decode())["UNIQ_KEY"] for record in records]
    assert result.message_id.split(",") == ids


@pytest.mark.parametrize(
    "bodies",
    [[LONG, LONG, b"short"], [LONG, LONG, os.urandom(8192)], [LONG]],
    ids=["one is short", "one does not shrink", "it is one"],
)
async def test_a_list_stays_as_it_is_when_not_all_of_it_can_be_compressed(bodies: list[bytes]) -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(BATCH, several(), several(",".join("a" for _ in bodies)))
        for listed in ([LONG] * 3, bodies):
            await producer.send_batch([Message("t", body) for body in listed])
    assert [request.ext_fields["f"] for request in peer.received[BATCH]] == ["0", "0"]
    assert [record.body for record in decode_batch(peer.received[BATCH][1].body)] == bodies


@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "stored whole"])
async def test_a_compressed_list_for_a_topic_that_changed_its_type_is_sent_again_as_it_is(refuses: bool) -> None:
    listed = [Message("t", LONG)] * 3
    async with ScriptedPeer() as peer, producing(peer) as producer:
        converted = refuse(ResponseCode.MESSAGE_ILLEGAL) if refuses else stored_whole()
        peer.on(BATCH, several(), converted, stored_whole())
        first, second = await producer.send_batch(listed), await producer.send_batch(listed)
    assert (first.offset_message_id, second.offset_message_id) == ("a,b,c", "offset id")
    assert [int(request.ext_fields["f"]) for request in peer.received[BATCH]] == [0, Compression.ZLIB.value, 0]
    assert [record.body for record in decode_batch(peer.received[BATCH][2].body)] == [LONG] * 3


@pytest.mark.parametrize(
    "messages", [[Message("t", b"short")] * 2, [Message("t", os.urandom(8192))] * 1], ids=["short", "does not shrink"]
)
async def test_what_does_not_shrink_is_sent_plain(messages: list[Message]) -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(BATCH, stored_whole())
        for _ in range(2):
            await producer.send_batch(messages)
        assert (len(peer.received[BATCH]), len(peer.received[SINGLE])) == (2, 0)


async def test_a_broker_that_refuses_the_form_gets_the_plain_batch_and_is_not_asked_again() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(BATCH, stored_whole())
        peer.on(SINGLE, refuse(ResponseCode.MESSAGE_ILLEGAL))
        for _ in range(4):
            assert (await producer.send_batch(LISTED)).queue_offset == 7
        assert (len(peer.received[BATCH]), len(peer.received[SINGLE])) == (4, 1)


async def test_any_other_error_is_that_of_the_batch() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(BATCH, stored_whole())
        peer.on(SINGLE, refuse(ResponseCode.NO_PERMISSION))
        await producer.send_batch(LISTED)
        with pytest.raises(ServerError, match="16"):
            await producer.send_batch(LISTED)
        assert len(peer.received[BATCH]) == 1


async def test_messages_that_are_compressed_one_by_one_are_not_compressed_again_as_a_batch() -> None:
    """The batch was opened while the topic stored single messages, and is sent when the topic stores batches whole.
    Otherwise consumers would get compressed messages in a compressed batch.
    """
    settings = {"auto_batch": True, "batch_max_delay_ms": 30_000.0, "compress_over_bytes": 100}
    async with ScriptedPeer() as peer:
        peer.on(BATCH, stored(), stored_whole(), refuse(ResponseCode.MESSAGE_ILLEGAL))
        peer.on(SINGLE, stored(17))
        async with producing(peer, **settings) as producer:
            await producer.send_batch(LISTED)
            merged = [producer.submit(message) for message in LISTED]
            await producer.send_batch([Message("t", b"short")] * 2)  # the topic is converted now
        assert {(await future).queue_offset for future in merged} == {17}
        assert len(peer.received[SINGLE]) == len(LISTED)
        for request in peer.received[SINGLE]:
            sys_flag = int(request.ext_fields["f"])
            assert "INNER_NUM" not in request.ext_fields["i"]
            assert decompress(request.body, sys_flag) == LISTED[0].body


GOOD, BAD = b"good " * 2000, b"bad " * 2000


def failing_for_some(body: bytes, compression: Compression) -> tuple[bytes, int]:
    """A compressor that fails for bodies with `BAD`."""
    if BAD in body:
        raise MemoryError("no room to compress")
    return compress(body, compression)


@pytest.mark.parametrize(
    ("together", "bodies"),
    [(False, [BAD, GOOD, BAD, GOOD]), (True, [BAD, GOOD, BAD, GOOD]), (True, [BAD] * 4)],
    ids=["by themselves", "together", "all of a request"],
)
async def test_a_compressor_that_fails_fails_the_senders_of_its_batch_and_nothing_stays_of_it(
    monkeypatch: pytest.MonkeyPatch, together: bool, bodies: list[bytes]
) -> None:
    """Each pair, and each single message, is a batch of one tag or one queue."""
    places = [(number, body) for number, body in enumerate(bodies) for _ in range(2 - number // 2)]
    async with ScriptedPeer() as peer, producing(peer, auto_batch=True, batch_max_bytes=1 << 20) as producer:
        peer.on(BATCH, stored_whole())
        peer.on(SINGLE, stored(17))
        peer.on(RequestCode.SEND_QUEUE_BATCHES, shipped())
        await producer.send_batch(LISTED)  # its response tells the client the type of the topic
        monkeypatch.setattr(outgoing_module, "compress", failing_for_some)
        futures = [
            producer.submit(Message("t", body), queue=MessageQueue("t", "broker-0", number))
            if together
            else producer.submit(Message("t", body, f"tag-{number}"))
            for number, body in places
        ]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        expected = [MemoryError if body is BAD else SendResult for _, body in places]
        assert [type(outcome) for outcome in outcomes] == expected
        assert {str(each) for each in outcomes if isinstance(each, MemoryError)} == {"no room to compress"}
        assert producer._batch_queue is not None
        assert producer._instance is not None
        shared, in_flight = producer._batch_queue._shared, producer._instance.shared(InFlight.of)
        await eventually(lambda: (shared.held_bytes, shared.open_groups, in_flight.bytes) == (0, 0, 0))
        assert len(peer.received[RequestCode.SEND_QUEUE_BATCHES]) == (together and GOOD in bodies)


def storing(*, whole: bool, refused: list[RemotingCommand]) -> Reply:
    """Respond like a broker of one of the two types, which refuses requests for the other type."""
    right = stored_whole() if whole else stored()

    def reply(connection: Connection, request: RemotingCommand) -> None:
        is_list, sys_flag = request.code == BATCH, int(request.ext_fields["f"])
        if is_list and sys_flag if whole else not is_list and sys_flag & INNER_BATCH:
            refused.append(request)
            refuse(ResponseCode.MESSAGE_ILLEGAL)(connection, request)
        else:
            (right if is_list else stored())(connection, request)

    return reply


@pytest.mark.parametrize("pinned", [False, True], ids=["any queue", "each its queue"])
async def test_brokers_of_two_kinds_do_not_refuse_in_turns_what_was_made_for_the_other(pinned: bool) -> None:
    """A topic was converted while one of its brokers was away."""
    refused: list[RemotingCommand] = []
    settings = {"auto_batch": True, "batch_max_delay_ms": 2.0}
    long = b"again and again " * 300
    async with ScriptedPeer() as first, ScriptedPeer() as second, producing(first, second, **settings) as producer:
        for peer, whole in ((first, True), (second, False)):
            peer.on(BATCH, storing(whole=whole, refused=refused))
            peer.on(SINGLE, storing(whole=whole, refused=refused))
        queues = await producer.queues("t") if pinned else [None, None]
        for _ in range(10):
            for queue in queues:
                await asyncio.gather(*(producer.submit(Message("t", long), queue=queue) for _ in range(2)))
        compressed_ones = [
            int(request.ext_fields["f"]) != 0 for peer in (first, second) for request in peer.received[BATCH][-1:]
        ]
        wrapped = len(first.received[SINGLE])
    assert len(refused) <= 1  # the first that one of them gets after the other has answered
    assert wrapped == 9 if pinned else wrapped <= 1
    assert compressed_ones == [False, pinned]
