"""Requests of a client instance to brokers: heartbeats, unregistrations, and responses to their requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from raptormq.client import ClientConfig, Message, Producer, PushConsumer
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.consumer.inspection import ConsumerInspection
from raptormq.errors import ClientError
from raptormq.protocol.bodies.heartbeat import HeartbeatData, encode_consumer_ids
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader
from raptormq.protocol.headers.relay import ConsumeMessageDirectlyRequestHeader, ConsumerRunningInfoRequestHeader
from raptormq.transport.connection import Connection
from tests.client.eventually import eventually
from tests.client.member import Member
from tests.client.scripted_peer import ScriptedPeer, answer, refuse, route, silence, stored

HEART_BEAT = RequestCode.HEART_BEAT
LEAVE = RequestCode.UNREGISTER_CLIENT
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


@asynccontextmanager
async def client(peer: ScriptedPeer, request_timeout: float = 3.0) -> AsyncIterator[ClientInstance]:
    peer.on(ROUTE, route(1, peer))
    instance = ClientInstance.acquire(ClientConfig(peer.address, request_timeout=request_timeout))
    try:
        yield instance
    finally:
        await instance.release()


async def test_a_heartbeat_follows_as_soon_as_a_broker_is_known() -> None:
    async with ScriptedPeer() as peer, client(peer) as instance:
        instance.register_producer("p")
        instance.register_consumer("g", Member())
        await instance.routes.find("t")
        [first, *_] = await peer.wait_for(HEART_BEAT)
        heartbeat = HeartbeatData.from_json(first.body)
        assert heartbeat.client_id == instance.client_id
        assert heartbeat.producer_groups == ["p"]
        [consumer] = heartbeat.consumers
        assert (consumer.group, consumer.consume_type, consumer.message_model) == (
            "g",
            "CONSUME_PASSIVELY",
            "CLUSTERING",
        )
        [subscription] = consumer.subscriptions
        assert subscription.topic == "t"
        assert subscription.tags == {"A", "B"}
        assert subscription.code_set == {65, 66}


async def test_a_lost_connection_leads_to_another_heartbeat() -> None:
    async with ScriptedPeer() as peer, client(peer) as instance:
        instance.register_producer("p")
        await instance.routes.find("t")
        await peer.wait_for(HEART_BEAT)
        for connection in list(peer.connections):
            connection.abort()
        await peer.wait_for(HEART_BEAT, 2)


async def test_a_broker_that_was_away_gets_a_heartbeat_as_soon_as_it_is_back(free_port: int) -> None:
    async with ScriptedPeer() as names, client(names) as instance, ScriptedPeer(free_port) as broker:
        names.on(ROUTE, route(1, broker))
        member = Member()
        instance.register_consumer("g", member)
        await instance.routes.find("t")
        await broker.wait_for(HEART_BEAT)
        await broker.stop()
        await eventually(lambda: member.lost == 1)
        await broker.start()
        await broker.wait_for(HEART_BEAT, 2)  # no other request is sent to it
        assert member.made == 2
        for connection in list(names.connections):
            connection.abort()
        await eventually(lambda: instance.pool.open_connection(names.address) is None)
        await instance.routes.refresh("t")
        # The connection to a name server was lost: members are unchanged, but brokers may be missing.
        assert (member.made, member.lost) == (2, 2)


async def test_a_connection_that_another_one_has_made_leads_to_a_heartbeat(free_port: int) -> None:
    async with ScriptedPeer() as names, client(names) as instance, ScriptedPeer(free_port) as broker:
        names.on(ROUTE, route(1, broker))
        instance.register_producer("p")
        await instance.routes.find("t")
        await broker.wait_for(HEART_BEAT)
        assert instance.is_recently_connected(broker.address)
        assert not instance.is_recently_connected(names.address)
        for connection in list(broker.connections):
            connection.abort()
        await instance.pool.connection(broker.address)
        await broker.wait_for(HEART_BEAT, 2)


async def test_who_leaves_while_a_broker_is_connected_to_is_not_said_to_be_there(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedPeer() as names, client(names) as instance, ScriptedPeer(free_port) as broker:
        names.on(ROUTE, route(1, broker))
        connect, may_connect, connecting = instance.pool.connection, asyncio.Event(), asyncio.Event()

        async def slowly(address: str, deadline: float | None = None) -> Connection:
            if address == broker.address:
                connecting.set()
                await may_connect.wait()
            return await connect(address, deadline)

        monkeypatch.setattr(instance.pool, "connection", slowly)
        instance.register_consumer("g", Member())
        instance.register_producer("p")
        await instance.routes.find("t")
        await connecting.wait()
        await instance.unregister_consumer("g")
        may_connect.set()
        [heartbeat] = await broker.wait_for(HEART_BEAT)
        assert not HeartbeatData.from_json(heartbeat.body).consumers


@pytest.mark.parametrize("reply", [silence, refuse(1)], ids=["silent", "refuses"])
async def test_a_broker_that_does_not_take_heartbeats_harms_nothing(reply: object) -> None:
    async with ScriptedPeer() as peer, client(peer, request_timeout=3.0) as instance:
        peer.on(HEART_BEAT, reply)  # type: ignore[arg-type]
        instance.register_producer("p")
        await instance.routes.find("t")
        await instance.heartbeats.send_all()
        assert len((await instance.routes.find("t")).read_queues) == 1


async def test_without_groups_there_is_nothing_to_say() -> None:
    async with ScriptedPeer() as peer, client(peer) as instance:
        await instance.routes.find("t")
        await instance.heartbeats.send_all()
        assert not peer.received[HEART_BEAT]


async def test_leaving_is_told_to_brokers_once_the_last_one_leaves() -> None:
    async with ScriptedPeer() as peer, client(peer) as instance:
        instance.register_producer("p")
        instance.register_producer("p")
        instance.register_consumer("g", Member())
        await instance.routes.find("t")
        await peer.wait_for(HEART_BEAT)
        await instance.unregister_producer("p")
        assert not peer.received[LEAVE]
        await instance.unregister_producer("p")
        await instance.unregister_consumer("g")
        await instance.unregister_consumer("g")
        assert [sorted(leave.ext_fields) for leave in peer.received[LEAVE]] == [
            ["clientID", "producerGroup"],
            ["clientID", "consumerGroup"],
        ]


async def test_a_group_is_joined_once_per_client() -> None:
    async with ScriptedPeer() as peer, client(peer) as instance:
        instance.register_consumer("g", Member())
        with pytest.raises(ClientError, match="group g"):
            instance.register_consumer("g", Member())


async def test_the_last_user_closes_a_shared_instance() -> None:
    async with ScriptedPeer() as peer:
        config = ClientConfig(peer.address)
        first, second = ClientInstance.acquire(config), ClientInstance.acquire(config)
        assert first is second
        await first.release()
        await second.pool.connection(peer.address)
        await second.release()
        third = ClientInstance.acquire(config)
        assert third is not first
        await third.release()


async def test_a_notice_of_the_broker_reaches_the_member_of_the_group_only() -> None:
    async with ScriptedPeer() as peer, client(peer) as instance:
        member = Member()
        instance.register_consumer("g", member)
        await instance.routes.find("t")
        await peer.wait_for(HEART_BEAT)
        member.told.clear()
        [connection] = peer.connections
        notice = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        connection.oneway(request(notice, ConsumerGroupRequestHeader("another"), oneway=True))
        await connection.request(request(notice, ConsumerGroupRequestHeader("another")), 5)
        assert not member.told.is_set()
        connection.oneway(request(notice, ConsumerGroupRequestHeader("g"), oneway=True))
        await member.told.wait()


async def test_what_the_client_does_not_know_is_refused_politely() -> None:
    async with ScriptedPeer() as peer, client(peer) as instance:
        instance.shared(ConsumerInspection)
        instance.register_producer("p")
        await instance.routes.find("t")
        await peer.wait_for(HEART_BEAT)
        [connection] = peer.connections
        refusal = await connection.request(request(4711), 5)
        assert refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "4711" in str(refusal.remark)
        stranger = ConsumerRunningInfoRequestHeader("nobody", "me")
        refusal = await connection.request(request(RequestCode.GET_CONSUMER_RUNNING_INFO, stranger), 5)
        assert (refusal.code, refusal.remark) == (1, "The Consumer Group <nobody> not exist in this consumer")


async def test_closing_is_bounded_even_when_no_one_answers() -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, peer))
        peer.on(RequestCode.SEND_MESSAGE_V2, stored())
        for code in (LEAVE, HEART_BEAT):
            peer.on(code, silence)
        peer.on(RequestCode.GET_CONSUMER_LIST_BY_GROUP, answer(body=encode_consumer_ids([])))
        config = ClientConfig(peer.address, request_timeout=2.0, close_timeout=0.3)
        producer = Producer("p", client_config=config)
        await producer.start()
        await producer.send(Message("t", b"x"))
        consumer = PushConsumer("g", client_config=config)
        await consumer.start()
        started = asyncio.get_running_loop().time()
        await asyncio.gather(producer.close(), consumer.stop())
        assert asyncio.get_running_loop().time() - started < 10


async def test_a_handler_that_ignores_its_cancellation_does_not_hold_up_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such as a listener that an administrator has called."""
    called, go_on = asyncio.Event(), asyncio.Event()

    async def listen() -> None:
        called.set()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()

    async with ScriptedPeer() as peer:
        instance = ClientInstance.acquire(ClientConfig(peer.address))
        instance.router.add(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader, lambda *_: listen()
        )
        await instance.pool.request(peer.address, request(HEART_BEAT), 3.0)
        [connection] = peer.connections
        connection.oneway(request(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader("g")))
        await called.wait()
        ending = asyncio.create_task(instance.release())
        await asyncio.wait([ending], timeout=10)
        is_ended = ending.done()
        go_on.set()
        await ending
    assert is_ended
    assert "is closed without 1 listener calls of administrators" in caplog.text
