"""A peer that responds from a script, for failures that a real broker does not produce on request.

    async with ScriptedPeer() as broker:
        broker.on(RequestCode.SEND_MESSAGE_V2, refuse(ResponseCode.SYSTEM_BUSY), stored())

Each code has a list of replies, which are used in order; the last one is used repeatedly. The peer responds to all
other codes with success.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Self

from raptormq.protocol.bodies.route import BrokerData, QueueData, TopicRoute
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.send import SendMessageResponseHeader
from raptormq.protocol.schema import Header
from raptormq.transport.connection import Connection
from raptormq.transport.server import Server

Reply = Callable[[Connection, RemotingCommand], None]


def answer(
    code: int = ResponseCode.SUCCESS, header: Header | None = None, body: bytes = b"", remark: str | None = None
) -> Reply:
    """Respond immediately."""

    def reply(connection: Connection, request: RemotingCommand) -> None:
        connection.send(response_to(request, code, remark, header, body))

    return reply


def refuse(code: int, remark: str = "as the script says") -> Reply:
    """Respond with an error code."""
    return answer(code, remark=remark)


def silence(_connection: Connection, _request: RemotingCommand) -> None:
    """Do not respond."""


def hang_up(connection: Connection, _request: RemotingCommand) -> None:
    """Close the connection instead of a response."""
    connection.abort()


def stored(queue_offset: int = 0, code: int = ResponseCode.SUCCESS) -> Reply:
    """Respond to a send."""

    def reply(connection: Connection, request: RemotingCommand) -> None:
        header = SendMessageResponseHeader(
            "7F00000100002A9F0000000000000000", int(request.ext_fields["e"]), queue_offset
        )
        connection.send(response_to(request, code, None, header))

    return reply


def stored_whole() -> Reply:
    """Respond to a batch like the broker of a BatchCQ topic."""

    def reply(connection: Connection, request: RemotingCommand) -> None:
        header = SendMessageResponseHeader("offset id", int(request.ext_fields["e"]), 7, batch_uniq_id="batch")
        connection.send(response_to(request, ResponseCode.SUCCESS, None, header))

    return reply


def route(topic_queues: int, *peers: ScriptedPeer, perm: int = 6, unreachable: str | None = None) -> Reply:
    """Respond with a route in which each peer is the master of a broker named `broker-0`, `broker-1` and so on."""
    addresses = [peer.address for peer in peers] + ([unreachable] if unreachable else [])
    names = [f"broker-{number}" for number in range(len(addresses))]
    body = TopicRoute(
        [QueueData(name, topic_queues, topic_queues, perm) for name in names],
        [BrokerData("c", name, {0: address}) for name, address in zip(names, addresses, strict=True)],
    ).to_json()
    return answer(body=body)


class ScriptedPeer:
    """A server on a port of 127.0.0.1, by default a free one. A server with a given port can be restarted."""

    def __init__(self, port: int = 0) -> None:
        self.received: dict[int, list[RemotingCommand]] = defaultdict(list)
        self.connections: set[Connection] = set()
        self._script: dict[int, list[Reply]] = {}
        self._reply_received = asyncio.Condition()
        self._notifying: set[asyncio.Task[None]] = set()
        self._server = Server(self, "127.0.0.1", port)

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self._server.port}"

    def on(self, code: RequestCode, *replies: Reply) -> None:
        """Respond to requests of `code` with these replies, in this order, from now on."""
        self._script[code] = list(replies)

    async def wait_for(self, code: RequestCode, count: int = 1) -> list[RemotingCommand]:
        """Return the requests of `code` when `count` of them have arrived."""
        async with self._reply_received:
            await self._reply_received.wait_for(lambda: len(self.received[code]) >= count)
        return self.received[code]

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        self.connections.add(connection)
        for request in requests:
            self.received[request.code].append(request)
            replies = self._script.get(request.code)
            if replies is not None:
                (replies.pop(0) if len(replies) > 1 else replies[0])(connection, request)
            elif not request.is_oneway and not request.is_response:
                connection.send(response_to(request))
        task = asyncio.ensure_future(self._notify())
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)

    async def _notify(self) -> None:
        async with self._reply_received:
            self._reply_received.notify_all()

    async def start(self) -> None:
        """Start to serve."""
        await self._server.start()

    async def stop(self) -> None:
        """Close all connections."""
        await self._server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
