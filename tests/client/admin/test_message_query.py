"""`AdminClient.find_messages` and `message`, with real brokers and with responses that RaptorMQ's brokers do not
send.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import AdminClient, ClientConfig, Message, MessageExt, MessageQueue, Producer, ProducerConfig
from raptormq.errors import ConfigError, KeyMissing, MessageError, NoRoute, RecordError, ServerError, TransportError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.bodies.route import BrokerData, QueueData, TopicRoute
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.message_id import encode_host, ids_from, offset_id
from raptormq.protocol.record import StoredMessage, encode_record
from tests.client.embedded_cluster import Cluster
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, hang_up, refuse, route, silence
from tests.client.single_key import OneKey
from tests.client.test_batch_topics import COMPRESSED, ENCRYPTED, PLAIN, client
from tests.clock import Clock

QUEUE = MessageQueue("t", "broker-0", 0)
QUEUE_TYPES = ["SimpleCQ", "BatchCQ"]


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return [message.body for message in messages]


def text(number: int) -> bytes:
    return b"%d again and again " % number * 100


@asynccontextmanager
async def administered(cluster: Cluster, queue_type: str = "SimpleCQ") -> AsyncIterator[AdminClient]:
    """Run an admin client with keys, in a cluster with a topic of one queue on each broker."""
    async with AdminClient(client_config=client(cluster)) as admin:
        await admin.create_topic("t", 1, 1, attributes={"queue.type": queue_type})
        yield admin


async def send_lists(cluster: Cluster, config: ProducerConfig) -> list[str]:
    """Send two lists of five messages and return their ids. The first list tells the client the type of the topic."""
    ids: list[str] = []
    async with Producer("p", config=config, client_config=client(cluster)) as producer:
        for numbers in (range(5), range(5, 10)):
            listed = [Message("t", text(n), "A", (f"k{n}", "all"), {"n": str(n)}) for n in numbers]
            ids += (await producer.send_batch(listed, queue=QUEUE)).message_id.split(",")
    return ids


@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
@pytest.mark.parametrize("config", [PLAIN, COMPRESSED], ids=["plain", "compressed"])
async def test_a_message_of_a_list_is_found_by_key_and_by_both_ids(
    tmp_path: Path, queue_type: str, config: ProducerConfig
) -> None:
    async with Cluster(tmp_path) as cluster, administered(cluster, queue_type) as admin:
        ids = await send_lists(cluster, config)
        for number in (2, 7):
            [by_key] = await admin.find_messages("t", f"k{number}")
            assert (by_key.body, by_key.queue, by_key.queue_offset) == (text(number), QUEUE, number)
            assert (by_key.message_id, by_key.tags, by_key.properties["n"]) == (ids[number], "A", str(number))
            assert await admin.find_messages("t", ids[number]) == [by_key]
            assert await admin.message(by_key.offset_message_id) == by_key
        assert bodies(await admin.find_messages("t", "all")) == [text(n) for n in range(10)]
        assert bodies(await admin.find_messages("t", "all", count=2)) == [text(8), text(9)]


@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
async def test_messages_that_were_merged_are_found_one_by_one(tmp_path: Path, queue_type: str) -> None:
    async with Cluster(tmp_path) as cluster, administered(cluster, queue_type) as admin:
        async with Producer("p", config=PLAIN, client_config=client(cluster)) as producer:
            for first in (0, 5):
                sent = [producer.submit(Message("t", text(n), keys=(f"k{n}",))) for n in range(first, first + 5)]
                results = await asyncio.gather(*sent)
        [found] = await admin.find_messages("t", results[3].message_id)
        assert (found.body, found.keys) == (text(8), ("k8",))
        assert await admin.find_messages("t", "k8") == [found]


async def test_messages_encrypted_one_by_one_are_decrypted(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, administered(cluster) as admin:
        ids = await send_lists(cluster, ENCRYPTED)
        [found] = await admin.find_messages("t", "k7")
        assert (found.body, found.message_id) == (text(7), ids[7])
        assert await admin.message(found.offset_message_id) == found
        async with AdminClient(name_servers=cluster.name_servers) as stranger:
            with pytest.raises(KeyMissing, match="'k1', and this client has no keys"):
                await stranger.find_messages("t", "k7")
            assert await stranger.find_messages("t", "k77") == []


async def test_a_batch_encrypted_as_a_whole_is_taken_apart_by_who_has_the_key(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, administered(cluster, "BatchCQ") as admin:
        ids = await send_lists(cluster, ENCRYPTED)
        for key in ("k7", ids[7]):
            assert bodies(await admin.find_messages("t", key)) == [text(7)]
        assert bodies(await admin.find_messages("t", "all")) == [text(n) for n in range(len(ids))]
        async with AdminClient(name_servers=cluster.name_servers) as stranger:
            with pytest.raises(KeyMissing, match="'k1', and this client has no keys"):
                await stranger.find_messages("t", "k7")


async def test_the_newest_come_from_all_brokers_in_the_order_in_which_they_were_stored(tmp_path: Path) -> None:
    cluster, clock = Cluster(tmp_path, brokers=2), Clock()
    cluster.clock, first = clock, clock.hold()
    async with cluster, administered(cluster) as admin:
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for number in range(6):
                queue = MessageQueue("t", f"broker-{number % 2}", 0)
                await producer.send(Message("t", b"%d" % number, keys=("grün", f"k{number}")), queue=queue)
                clock.move(1000)
        found = await admin.find_messages("t", "grün")
        assert [(each.body, each.store_timestamp) for each in found] == [
            (b"%d" % n, first + n * 1000) for n in range(6)
        ]
        assert [message.queue.broker_name for message in found] == ["broker-0", "broker-1"] * 3
        assert await admin.find_messages("t", "grün", count=3) == found[3:]
        assert await admin.find_messages("t", "grün", begin_ms=first + 2000, end_ms=first + 4000) == found[2:5]
        assert await admin.find_messages("t", "grün", end_ms=first - 1) == []
        assert await admin.find_messages("t", "gr") == []
        for message in found[:2]:
            assert await admin.message(message.offset_message_id) == message


async def test_an_id_may_name_an_address_of_ipv6(tmp_path: Path) -> None:
    async with Cluster(tmp_path, bindAddress="::1", brokerIP1="::1") as cluster, administered(cluster) as admin:
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            sent = await producer.send(Message("t", b"1", keys=("k",)))
        [found] = await admin.find_messages("t", "k")
        assert (len(sent.offset_message_id), found.offset_message_id) == (56, sent.offset_message_id)
        assert await admin.message(sent.offset_message_id) == found


async def test_what_is_not_there(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, administered(cluster) as admin:
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            sent = await producer.send(Message("t", b"1"))
        host = encode_host("127.0.0.1", int(cluster.broker().address.rpartition(":")[2]))
        assert await admin.message(offset_id(host, 1 << 40)) is None
        assert await admin.find_messages("t", "k") == []
        with pytest.raises(NoRoute, match="no route for topic nowhere"):
            await admin.find_messages("nowhere", "k")
        with pytest.raises(MessageError, match="is not an offset message id"):
            await admin.message(sent.message_id)
        with pytest.raises(MessageError, match="32 or 56 hexadecimal digits"):
            await admin.message("k")
        await cluster.stop_broker(0)
        with pytest.raises(TransportError):
            await admin.message(sent.offset_message_id)


@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
async def test_only_what_a_topic_has_since_it_was_made_again_is_found(tmp_path: Path, queue_type: str) -> None:
    async with Cluster(tmp_path) as cluster, administered(cluster, queue_type) as admin:
        old_ids = await send_lists(cluster, PLAIN)
        old = await admin.find_messages("t", "k7")
        await admin.delete_topic("t")
        await admin.create_topic("t", 1, 1, attributes={"queue.type": queue_type})
        assert await admin.find_messages("t", "k7") == []
        new_ids = await send_lists(cluster, PLAIN)
        [found] = await admin.find_messages("t", "k7")
        assert (found.message_id, found.queue_offset) == (new_ids[7], 7)
        assert await admin.find_messages("t", old_ids[7]) == []
        assert bodies(await admin.find_messages("t", "all")) == [text(n) for n in range(10)]
        assert await admin.message(old[0].offset_message_id) is None
        assert await admin.message(found.offset_message_id) == found


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"topic": 1}, "topic must be text"),
        ({"key": b"k"}, "key must be text"),
        ({"begin_ms": -1}, "begin_ms must be"),
        ({"end_ms": "now"}, "end_ms must be"),
        ({"count": 0}, "count must be"),
        ({"count": 65}, "count must be a whole number above 0, at most 64"),
    ],
)
async def test_arguments_that_are_not_what_they_have_to_be(wrong: Any, named: str) -> None:
    async with AdminClient(name_servers="127.0.0.1:1") as admin:
        with pytest.raises(ConfigError, match=named):
            await admin.find_messages(**{"topic": "t", "key": "k"} | wrong)


def record(body: bytes, properties: str, offset: int = 0, *, topic: str = "t", sys_flag: int = 0) -> bytes:
    """Return a stored record at a unique position."""
    return encode_record(
        StoredMessage(topic, 3, body, properties, queue_offset=offset, physical_offset=offset * 1000, sys_flag=sys_flag)
    )


@asynccontextmanager
async def scripted(
    *bodies: bytes, request_timeout: float = 3.0
) -> AsyncIterator[tuple[AdminClient, list[ScriptedPeer]]]:
    """Run an admin client whose brokers respond to every query with these records."""
    async with AsyncExitStack() as stack:
        server, *peers = [await stack.enter_async_context(ScriptedPeer()) for _ in range(len(bodies) + 1)]
        for peer, found in zip(peers, bodies, strict=True):
            for code in (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID):
                peer.on(code, answer(body=found))
        server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(4, *peers))
        server.on(RequestCode.GET_BROKER_CLUSTER_INFO, answer(body=b"{}"))
        config = ClientConfig(server.address, keys=OneKey(), request_timeout=request_timeout)
        yield await stack.enter_async_context(AdminClient(client_config=config)), peers


def place_on(peer: ScriptedPeer) -> str:
    """Return an offset id with the address of the peer."""
    return offset_id(encode_host("127.0.0.1", int(peer.address.rpartition(":")[2])), 40_000)


async def test_an_index_holds_hashes_and_what_has_another_key_is_left_out() -> None:
    damaged = bytearray(record(b"damaged", "KEYS\x01other\x02", 1))
    damaged[-20] ^= 1
    wanted = record(b"wanted", "KEYS\x01a k\x02UNIQ_KEY\x01A\x02", 2)
    elsewhere = record(b"elsewhere", "KEYS\x01k\x02", 3, topic="u")
    async with scripted(bytes(damaged) + wanted + wanted + elsewhere) as (admin, [peer]):
        [found] = await admin.find_messages("t", "k", begin_ms=5, end_ms=6)
        assert (found.body, found.queue, found.queue_offset) == (b"wanted", MessageQueue("t", "broker-0", 3), 2)
        assert await admin.find_messages("t", "A") == [found]
        assert await admin.find_messages("t", "B") == []
        fields = peer.received[RequestCode.QUERY_MESSAGE][0].ext_fields
    assert [fields[name] for name in ("topic", "key", "beginTimestamp", "endTimestamp")] == list("tk56")


async def test_a_topic_that_was_made_again_may_have_two_messages_at_one_offset() -> None:
    """Apache RocketMQ's brokers also return messages from before the deletion of a topic."""
    lives = [
        encode_record(StoredMessage("t", 3, body, "KEYS\x01k\x02", physical_offset=place, store_timestamp=place))
        for body, place in ((b"second life", 2000), (b"first life", 1000))
    ]
    async with scripted(b"".join(lives)) as (admin, _):
        assert bodies(await admin.find_messages("t", "k")) == [b"first life", b"second life"]


PLAIN_BATCH = encode_batch([(0, b"%d" % n, f"KEYS\x01k{n} all\x02".encode()) for n in range(3)])
IDS = ids_from("0A" * 16, 3)
NAMED_BATCH = encode_batch([(0, b"%d" % n, f"UNIQ_KEY\x01{IDS[n]}\x02".encode()) for n in range(3)])
SEALED_BATCH = encrypt_body(NAMED_BATCH, 0, "k1", bytes(32), b"n" * 12)
WRAPPER = "UNIQ_KEY\x01BATCH\x02INNER_NUM\x013\x02"


async def test_a_batch_that_comes_whole_gives_what_was_asked_for() -> None:
    """Apache RocketMQ's brokers do not unpack batches."""
    whole = record(PLAIN_BATCH, f"{WRAPPER}KEYS\x01k0 k1 k2 all\x02", 40, sys_flag=INNER_BATCH)
    async with scripted(whole) as (admin, [peer]):
        [found] = await admin.find_messages("t", "k1")
        assert (found.body, found.queue_offset) == (b"1", 41)
        assert bodies(await admin.find_messages("t", "all")) == [b"0", b"1", b"2"]
        assert bodies(await admin.find_messages("t", "BATCH")) == [b"0", b"1", b"2"]
        first = await admin.message(place_on(peer))
    assert first is not None
    assert (first.body, first.queue) == (b"0", MessageQueue("t", "", 3))  # no name server lists this address


async def test_a_batch_that_comes_encrypted_is_decrypted() -> None:
    properties = f"{WRAPPER}__ENCRYPTION_KEY\x01k1\x02__INNER_IDS\x01{IDS[0]}*3\x02"
    async with scripted(record(SEALED_BATCH, properties, 40, sys_flag=INNER_BATCH)) as (admin, _):
        [found] = await admin.find_messages("t", IDS[2])
    assert (found.body, found.queue_offset, found.message_id) == (b"2", 42, IDS[2])


async def test_a_broker_that_has_only_encrypted_batches_does_not_hide_what_another_has() -> None:
    async with scripted(record(b"1", "KEYS\x01k\x02"), b"") as (admin, [first, second]):
        second.on(RequestCode.QUERY_MESSAGE, refuse(ResponseCode.SERVICE_NOT_AVAILABLE))
        assert bodies(await admin.find_messages("t", "k")) == [b"1"]
        first.on(RequestCode.QUERY_MESSAGE, refuse(ResponseCode.QUERY_NOT_FOUND))
        with pytest.raises(ServerError, match="code 14"):
            await admin.find_messages("t", "k")


@pytest.mark.parametrize("reply", [refuse(ResponseCode.SYSTEM_ERROR), hang_up, silence])
async def test_a_broker_that_fails_is_named_beside_what_another_has(reply: Reply) -> None:
    async with scripted(record(b"1", "KEYS\x01k\x02"), b"", request_timeout=3.0) as (admin, [first, second]):
        second.on(RequestCode.QUERY_MESSAGE, reply)
        found = await admin.find_messages("t", "k")
        assert (bodies(found), list(found.failures)) == ([b"1"], ["broker-1"])
        first.on(RequestCode.QUERY_MESSAGE, refuse(ResponseCode.QUERY_NOT_FOUND))
        nothing = await admin.find_messages("t", "k")
        assert (list(nothing), list(nothing.failures)) == ([], ["broker-1"])


async def test_where_no_broker_has_anything_none_has_failed() -> None:
    async with scripted(b"", b"") as (admin, peers):
        for peer in peers:
            peer.on(RequestCode.QUERY_MESSAGE, refuse(ResponseCode.QUERY_NOT_FOUND))
        nothing = await admin.find_messages("t", "k")
        assert (list(nothing), nothing.failures) == ([], {})


async def test_where_no_broker_answers_that_is_an_error() -> None:
    async with scripted(b"", b"") as (admin, peers):
        for peer in peers:
            peer.on(RequestCode.QUERY_MESSAGE, refuse(ResponseCode.SYSTEM_ERROR))
            peer.on(RequestCode.VIEW_MESSAGE_BY_ID, refuse(ResponseCode.SYSTEM_ERROR))
        with pytest.raises(ServerError, match="as the script says"):
            await admin.find_messages("t", "k")
        with pytest.raises(ServerError, match="as the script says"):
            await admin.message(place_on(peers[1]))
        peers[1].on(RequestCode.VIEW_MESSAGE_BY_ID, answer(body=b"no record at all"))
        with pytest.raises(RecordError):
            await admin.message(place_on(peers[1]))


async def test_without_a_master_a_replica_is_asked() -> None:
    async with ScriptedPeer() as server, ScriptedPeer() as replica:
        brokers = [BrokerData("c", "broker-0", {2: replica.address, 3: "127.0.0.1:1"}), BrokerData("c", "broker-1", {})]
        there = TopicRoute([QueueData("broker-0", 4, 4, 6)], brokers)
        server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, answer(body=there.to_json()))
        replica.on(RequestCode.QUERY_MESSAGE, answer(body=record(b"1", "KEYS\x01k\x02")))
        async with AdminClient(name_servers=server.address) as admin:
            assert bodies(await admin.find_messages("t", "k")) == [b"1"]
