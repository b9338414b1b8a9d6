"""Requests that are forwarded to the next leader: each one at most once."""

from __future__ import annotations

import asyncio
from typing import Any

from raptormq.broker.replication.forwarding import Forwarding
from raptormq.errors import NotLeader
from raptormq.protocol.bodies.replication import ReplicationState
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.server import Server


class FormerLeader:
    """The member that forwards: it knows the next leader."""

    takes_messages = False
    leader = "n1"

    def not_leader(self) -> NotLeader:
        return NotLeader("member n1 leads the group")


class Client:
    """The connection of a client, which keeps the responses."""

    def __init__(self) -> None:
        self.responses: asyncio.Queue[RemotingCommand] = asyncio.Queue()

    def send(self, response: RemotingCommand) -> None:
        self.responses.put_nowait(response)


class DyingLeader:
    """The next leader: it stores each send, and its connection ends before it responds."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.server = Server(self, "127.0.0.1", 0)

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        self.stored += [bytes(request.body) for request in requests]
        connection.close()

    def closed(self, connection: Connection) -> None: ...


async def test_forwarded_send_without_a_response_is_not_sent_again() -> None:
    """The next leader may have stored it: only the client knows whether it may be sent twice."""
    dying, client = DyingLeader(), Client()
    await dying.server.start()
    address = f"127.0.0.1:{dying.server.port}"

    async def describe(member: str, _restarting: str, _seconds: float) -> ReplicationState:
        return ReplicationState("g", "dledger", member, "leader", 2, member, 0, 0, address)

    def handle(*_: Any) -> None:
        raise AssertionError("this member does not lead")

    sends = Forwarding(FormerLeader(), describe, handle, None)
    try:
        sends.begin()
        connection: Any = client
        assert sends.accept(connection, RemotingCommand(RequestCode.SEND_MESSAGE, {}, b"one"))
        response = await client.responses.get()
        assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert dying.stored == [b"one"]
    finally:
        await sends.stop()
        await dying.server.stop()
