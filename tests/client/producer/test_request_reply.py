"""Request and reply between two Python clients, with a real broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.client import (
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from raptormq.client.producer.request_reply import PendingReplies
from raptormq.errors import ClientClosed, ConnectError, MessageError, RequestTimeout, ServerError
from raptormq.protocol.codes import RequestCode
from tests.client.embedded_cluster import Cluster
from tests.client.scripted_peer import ScriptedPeer, route, silence, stored

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
SEND = RequestCode.SEND_MESSAGE_V2

EARLIEST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)


async def test_requests_get_their_own_replies(tmp_path: Path) -> None:
    async with (
        Cluster(tmp_path) as cluster,
        Producer("askers", name_servers=cluster.name_servers) as asker,
        Producer("repliers", name_servers=cluster.name_servers) as replier,
    ):
        await cluster.create_topic("questions", 2)

        async def listener(messages: list[MessageExt]) -> ConsumeResult:
            for message in messages:
                await replier.reply(message, message.body * 2, properties={"kind": "double"})
            return ConsumeResult.SUCCESS

        consumer = PushConsumer("workers", name_servers=cluster.name_servers, config=EARLIEST)
        consumer.subscribe("questions", "*", listener)
        async with consumer:
            large = bytes(10_000)
            asked = [b"a", b"b", large]
            replies = await asyncio.gather(*(asker.request(Message("questions", body), timeout=20) for body in asked))
        assert [reply.body for reply in replies] == [body * 2 for body in asked]
        assert replies[0].properties["kind"] == "double"
        assert replies[0].topic == "DefaultCluster_REPLY_TOPIC"


async def test_a_request_that_nobody_answers_ends_in_time(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("askers", name_servers=cluster.name_servers) as asker:
        await cluster.create_topic("questions", 1)
        with pytest.raises(RequestTimeout, match=r"no reply to \w+ within 2 s"):
            await asker.request(Message("questions", b"?"), timeout=2)  # enough time to send it
        assert asker._instance is not None
        assert not asker._instance.shared(PendingReplies)._waiting


async def test_a_reply_to_no_request_or_to_somebody_who_is_gone_is_an_error(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("repliers", name_servers=cluster.name_servers) as replier:
        await cluster.create_topic("questions", 1)
        plain = await replier.send(Message("questions", b"plain"))
        seen: asyncio.Queue[MessageExt] = asyncio.Queue()

        async def listener(messages: list[MessageExt]) -> ConsumeResult:
            for message in messages:
                seen.put_nowait(message)
            return ConsumeResult.SUCCESS

        consumer = PushConsumer("workers", name_servers=cluster.name_servers, config=EARLIEST)
        consumer.subscribe("questions", "*", listener)
        async with consumer:
            first = await seen.get()
            with pytest.raises(MessageError, match=f"{plain.message_id} cannot be replied to"):
                await replier.reply(first, b"!")
            asker = Producer("askers", name_servers=cluster.name_servers)
            await asker.start()
            with pytest.raises(RequestTimeout):
                await asker.request(Message("questions", b"?"), timeout=3)
            request = await seen.get()
            assert (await replier.reply(request, b"late")).queue.broker_name == "broker-0"  # accepted, and dropped
            request.properties["REPLY_TO_CLIENT"] = "nobody"
            with pytest.raises(ServerError, match="channel of <nobody> not found"):
                await replier.reply(request, b"!")
            await asker.close()
            with pytest.raises(ClientClosed):
                await asker.request(Message("questions", b"?"))


async def test_a_stored_request_without_a_reply_may_be_stored() -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, peer))
        peer.on(SEND, stored())
        async with Producer("askers", name_servers=peer.address) as asker:
            with pytest.raises(RequestTimeout, match=r"no reply to \w+ within 0.5 s; 1 attempt: broker-0 ") as caught:
                await asker.request(Message("questions", b"?"), timeout=0.5)
    assert caught.value.may_be_stored


async def test_a_request_that_was_not_answered_by_its_broker_has_its_attempts() -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, peer))
        peer.on(SEND, silence)
        async with Producer("askers", name_servers=peer.address, retries=0) as asker:
            with pytest.raises(RequestTimeout) as caught:
                await asker.request(Message("questions", b"?"), timeout=0.5)
    assert {(each.address, each.error) for each in caught.value.attempts} == {(peer.address, "no response in time")}
    assert caught.value.may_be_stored


async def test_a_request_to_an_unreachable_broker_names_its_address(free_port: int) -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, unreachable=f"127.0.0.1:{free_port}"))
        async with Producer("askers", name_servers=peer.address) as asker:
            with pytest.raises(ConnectError) as caught:
                await asker.request(Message("questions", b"?"), timeout=0.5)
    assert {each.address for each in caught.value.attempts} == {f"127.0.0.1:{free_port}"}
    assert not caught.value.may_be_stored


async def test_a_request_without_a_route_in_time_was_not_sent() -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, silence)
        async with Producer("askers", name_servers=peer.address) as asker:
            with pytest.raises(RequestTimeout, match="was not sent: the route of topic questions") as caught:
                await asker.request(Message("questions", b"?"), timeout=0.3)
    assert not caught.value.may_be_stored


async def test_close_ends_a_request_that_waits_for_its_reply() -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, peer))
        peer.on(SEND, stored())
        config = ClientConfig(peer.address)
        async with Producer("others", client_config=config):  # whose client is still open
            async with Producer("askers", client_config=config) as asker:
                asking = asyncio.create_task(asker.request(Message("questions", b"?"), timeout=600))
                await peer.wait_for(SEND)
            with pytest.raises(ClientClosed, match="before the reply came; 1 attempt: broker-0 ") as caught:
                await asyncio.wait_for(asking, 1)
    assert caught.value.may_be_stored
