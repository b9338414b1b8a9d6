"""`Producer.close` waits for sends in coroutines of the application. Those that take too long get their attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from raptormq.client import (
    ClientConfig,
    EncodedBatch,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    TransactionProducer,
    TransactionState,
)
from raptormq.errors import ClientClosed, ServerError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from tests.client.scripted_peer import ScriptedPeer, refuse, route, silence, stored

SEND = RequestCode.SEND_MESSAGE_V2
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
HELLO = Message("t", b"hello")
TWO = EncodedBatch("t", encode_batch([(0, b"hello", b""), (0, b"hello", b"")]), ["id1", "id2"])


def request_from(method: str) -> MessageExt:
    """Return a message that can be the argument of `reply` and `redeliver`."""
    names = {"CLUSTER": "c", "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "client"} if method == "reply" else {}
    return MessageExt("t", b"hello", names, MessageQueue("t", "broker-0", 0), 0, 0, "id", "offset id", 0, 0)


async def committed(_: Message) -> TransactionState:
    return TransactionState.COMMIT


async def unknown(_: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


SENDS: dict[str, Callable[[TransactionProducer], Awaitable[object]]] = {
    "send": lambda producer: producer.send(HELLO),
    "send with a key": lambda producer: producer.send(HELLO, key="k"),
    "send_batch": lambda producer: producer.send_batch([HELLO, HELLO]),
    "send_encoded": lambda producer: producer.send_encoded(TWO),
    "redeliver": lambda producer: producer.redeliver(request_from("redeliver"), "g"),
    "reply": lambda producer: producer.reply(request_from("reply"), b"hello"),
    "send_in_transaction": lambda producer: producer.send_in_transaction(HELLO, committed),
}
SEND_CODES = SEND, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2


@pytest.mark.parametrize("method", SENDS)
async def test_close_waits_for_pending_sends(method: str) -> None:
    held: asyncio.Queue[tuple[Connection, RemotingCommand]] = asyncio.Queue()

    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, peer))
        for code in SEND_CODES:
            peer.on(code, lambda *request: held.put_nowait(request))
        producer = TransactionProducer("p", unknown, name_servers=peer.address)
        await producer.start()
        sending = asyncio.ensure_future(SENDS[method](producer))
        request = await held.get()
        closing = asyncio.create_task(producer.close())
        await asyncio.wait([closing], timeout=0.2)
        assert not closing.done()
        stored(5)(*request)
        await sending
        await closing


@pytest.mark.parametrize("method", SENDS)
async def test_a_send_that_close_does_not_wait_for_may_be_stored(method: str) -> None:
    held = asyncio.Event()
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, peer))
        for code in SEND_CODES:
            peer.on(code, lambda _connection, _request: held.set())
        config = ClientConfig(peer.address, close_timeout=0.01)
        async with TransactionProducer("p", unknown, client_config=config) as producer:
            sending = asyncio.ensure_future(SENDS[method](producer))
            await held.wait()
        with pytest.raises(ClientClosed, match="1 attempt: broker-0 ") as caught:
            await sending
        assert caught.value.may_be_stored


async def test_a_closed_producer_ends_a_send_that_asks_for_the_route_again() -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, peer), silence)
        peer.on(SEND, refuse(ResponseCode.INVALID_PARAMETER))
        async with Producer("p", client_config=ClientConfig(peer.address, close_timeout=0.01)) as producer:
            sending = asyncio.create_task(producer.send(HELLO, timeout=600))
            await peer.wait_for(ROUTE, 2)
        with pytest.raises(ServerError, match="1 attempt: broker-0 "):
            await sending
