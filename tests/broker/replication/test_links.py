"""Messages between members: they arrive unchanged, and foreign data is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest

from raptormq.broker.replication.codec import decode, encode_head, header_of
from raptormq.broker.replication.copied_ranges import CopiedRanges
from raptormq.broker.replication.fixed_settings import FixedSettings
from raptormq.broker.replication.links import Inbox, Links, LogRange
from raptormq.broker.replication.log_history import LogHistory
from raptormq.errors import BodyError, ServerError, StorageError
from raptormq.protocol.bodies.replication import ReplicationState, Verdict
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import CommandFlag, RemotingCommand
from raptormq.raft import (
    Append,
    AppendResponse,
    Configuration,
    Entry,
    Hello,
    HelloResponse,
    Install,
    Member,
    MemberPromise,
    Message,
    Position,
    Promise,
    ReadIndexRequest,
    ReadIndexResponse,
    Suffrage,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from raptormq.storage.fs import PagesMissing
from raptormq.storage.maintenance import Copy
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.server import Server

HEAD: dict[str, Any] = {
    "sender": "n0",
    "to": "n1",
    "term": 7,
    "incarnation": (1 << 62) + 1,
    "boot": 3,
    "to_incarnation": 9,
    "group": 1 << 61,
}
MEMBERS = Configuration.of([Member("n0", 1 << 62, Suffrage.VOTER, "a:1"), Member("n1", 2, Suffrage.JOINING, "b:1")])
PROMISE = Promise(1 << 40, 7, 6, Position(900, 3))
MESSAGES: list[Message] = [
    Hello(**HEAD, fresh=False, has_data=True, start=PROMISE, lost_power=True, asks=True, outdated=True),
    HelloResponse(**HEAD, asked_boot=5, promise=PROMISE),
    VoteRequest(**HEAD, last_term=6, end=Position(900, 3), pre=True, bootstrap=MEMBERS),
    VoteResponse(**HEAD, asked_term=7, granted=True, recovering=True),
    Append(
        **HEAD,
        previous=Position(5, 1),
        previous_term=6,
        end=Position(5, 2),
        entries=(Entry(7, 5, MEMBERS),),
        round=4,
        promises=(MemberPromise("n2", 1 << 61, PROMISE),),
    ),
    AppendResponse(**HEAD, matched=Position(1, 1), received=Position(2, 1), rejected=True, hint_term=2),
    Install(**HEAD, start=Position(9, 1), entries=(Entry(1, 0),)),
    TimeoutNow(**HEAD),
    ReadIndexRequest(**HEAD, context="a read"),
    ReadIndexResponse(**HEAD, context="a read", position=Position(1, 2)),
]


FIELDS_OF_0_2_0 = {
    "Hello": "fresh has_data start lost_power asks outdated",
    "HelloResponse": "asked_boot promise",
    "VoteRequest": "last_term end pre transfer bootstrap",
    "VoteResponse": "asked_term granted pre recovering",
    "Append": "previous previous_term end entries commit sent round promises",
    "AppendResponse": "matched received lost rejected previous hint_term hint round recovering",
    "Install": "start entries round",
    "TimeoutNow": "",
    "ReadIndexRequest": "context",
    "ReadIndexResponse": "context position",
}


class NoQueries:
    """A member that must not receive requests."""

    def describe(self, restarting: str = "") -> ReplicationState:
        raise AssertionError("there is no request")

    def may_renew(self, member: str, stored: int | None) -> Verdict:
        raise AssertionError("there is no request")

    async def history(self) -> LogHistory:
        raise AssertionError("there is no request")

    async def read_range(self, begin: int, limit: int, most: int) -> bytes:
        raise AssertionError("there is no request")

    async def digest(self, place: LogRange, digest: str) -> str:
        raise AssertionError("there is no request")

    def copied(self, place: LogRange, size: int) -> CopiedRanges | None:
        raise AssertionError("there is no request")


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_in_as_it_went_out(message: Message) -> None:
    found = decode(encode_head(message), header_of(message))
    if isinstance(found, Append):
        assert bytes(found.data) == b""
        found.data = None
    assert found == message


def test_optional_fields_are_header_fields_of_the_frame() -> None:
    append = Append(**HEAD, previous=Position(5, 1), previous_term=7, end=Position(5, 1), begin=4096)
    response = AppendResponse(**HEAD, matched=Position(1, 1), received=Position(1, 1), start=1024)
    request = VoteRequest(**HEAD, last_term=6, end=Position(5, 1), start=0, begin_term=3, begin=1 << 62)
    assert header_of(append) == {"begin": "4096"}
    assert header_of(response) == {"start": "1024"}
    assert header_of(request) == {"start": "0", "begin_term": "3", "begin": "4611686018427387904"}
    for message in (response, request):
        assert decode(encode_head(message), {"group": "g"} | header_of(message)) == message
    with pytest.raises(BodyError):
        decode(encode_head(append), {"begin": "-1"})


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_members_of_0_2_0_accept_the_head_of_a_message(message: Message) -> None:
    """They refuse a head with any other fields."""
    (size,) = struct.unpack_from(">I", encode_head(message))
    kind, values = json.loads(encode_head(message)[4 : 4 + size])
    common = "sender to term incarnation boot to_incarnation group"
    assert set(values) == set(f"{common} {FIELDS_OF_0_2_0[kind]}".split())


def test_the_bytes_of_the_log_are_behind_the_head() -> None:
    message = Append(**HEAD, previous=Position(5, 1), previous_term=7, end=Position(9, 1))
    found = decode(encode_head(message) + b"four", {})
    assert isinstance(found, Append)
    assert bytes(found.data) == b"four"
    for data in (b"", b"thr", b"fiive"):
        with pytest.raises(BodyError, match="bytes for"):
            decode(encode_head(message) + data, {})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0",
        b"\xff\xff\xff\xff[]",
        b"\0\0\0\2[]",
        b'\0\0\0\x11["Hello",{"a":1}]',
        b'\0\0\0\x0d["Reset",{}]',
        encode_head(MESSAGES[0]) + b"?",
        encode_head(MESSAGES[0]).replace(b'"term":7', b'"term":-'),
        encode_head(MESSAGES[0]).replace(b'"boot":3', b'"boot":""'),
        encode_head(MESSAGES[0]).replace(b'"fresh":false', b'"fresh":"no" '),
    ],
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode(body, {})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"code": RequestCode.SEND_MESSAGE}, "not a message between members"),
        ({"flag": 0}, "not a message between members"),
        ({"ext_fields": {"group": "another"}}, "belongs to group 'another', not to 'g'"),
        ({"ext_fields": {}}, "belongs to group None"),
        ({"body": b"?"}, "not a message between members"),
        (
            {"body": encode_head(VoteRequest(**HEAD, last_term=8, end=Position(5, 1)))},
            "is inconsistent: its log",
        ),
        ({"body": encode_head(Hello(**HEAD | {"sender": "n9"}))}, "'n9' is not in dLegerPeers"),
        ({"body": encode_head(Hello(**HEAD | {"to": "n2"}))}, "the message is addressed to member 'n2', this is n1"),
    ],
)
async def test_a_stranger_is_refused_and_told_of_once(
    change: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[Message] = []
    inbox = Inbox("n1", "g", {"n0": "", "n2": ""}, taken.extend, lambda *_: None, NoQueries())
    server = Server(inbox, "127.0.0.1", 0)
    await server.start()
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                pool = ConnectionPool()
                connection = await pool.connection(f"127.0.0.1:{server.port}")
                fields: dict[str, Any] = {
                    "code": RequestCode.REPLICATE,
                    "ext_fields": {"group": "g"},
                    "body": encode_head(MESSAGES[0]),
                    "flag": CommandFlag.ONEWAY,
                    "serialize_type": 1,
                }
                connection.oneway(RemotingCommand(**fields | change))
                await asyncio.wait_for(connection.wait_closed(), 10)
                await pool.close()
        assert taken == []
        assert inbox.refused == 2
        assert [reason in record.getMessage() for record in caplog.records].count(True) == 1
        is_peer_of_other_group = "belongs to group" in reason
        assert ("dLegerGroup is g here and " in inbox.difference) is is_peer_of_other_group
    finally:
        await server.stop()


async def test_what_is_no_frame_is_counted() -> None:
    inbox = Inbox("n1", "g", {"n0": ""}, lambda _: None, lambda *_: None, NoQueries())
    server = Server(inbox, "127.0.0.1", 0)
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\xff" * 64)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        assert inbox.refused == 1
    finally:
        await server.stop()


class Port:
    """The port of a member, with its accepted connections."""

    def __init__(self, number: int) -> None:
        self.accepted: list[Connection] = []
        self.messages: list[Message] = []
        self.heard, self.lost = asyncio.Event(), asyncio.Event()
        self.server = Server(self, "127.0.0.1", number)

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        if connection not in self.accepted:
            self.accepted.append(connection)
        self.messages += [decode(each.body, each.ext_fields) for each in requests]
        self.heard.set()

    def closed(self, connection: Connection) -> None:
        self.lost.set()

    async def receives(self, kind: type[Message]) -> None:
        while not any(isinstance(message, kind) for message in self.messages):
            self.heard.clear()
            await self.heard.wait()

    async def hears(self, links: Links) -> None:
        self.heard.clear()
        while not self.heard.is_set():  # messages without a connection are dropped
            links.send(Hello(**HEAD | {"sender": "n1", "to": "n0"}))
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("process_ends", [True, False])
async def test_the_end_of_a_process_is_told_and_the_end_of_a_connection_is_not(
    process_ends: bool, free_port: int
) -> None:
    port, ended, is_told = Port(free_port), [], asyncio.Event()

    def process_ended(member: str) -> None:
        ended.append(member)
        is_told.set()

    async def in_thread(_: Any) -> None:
        raise AssertionError("nothing is read")

    no_log: Any = None
    await port.server.start()
    address = f"127.0.0.1:{port.server.port}"
    links = Links("g", {"n0": address}, no_log, in_thread, process_ended=process_ended)
    try:
        await port.hears(links)
        if process_ends:
            await port.server.stop()
            await is_told.wait()
            assert ended == ["n0"]
            port.server = Server(port, "127.0.0.1", free_port)
            await port.server.start()
        else:
            port.accepted[0].close()
            await port.lost.wait()
        while not port.server.connection_count:  # although nothing is sent
            await asyncio.sleep(0.01)
        await port.hears(links)
        assert ended == ["n0"] * process_ends
    finally:
        await links.close()
        await port.server.stop()


class ReplacedLog:
    """A log whose pages are not resident, and which is truncated and written again while a thread reads them."""

    def __init__(self) -> None:
        self.data = b"old."
        self.is_read, self.goes_on = asyncio.Event(), asyncio.Event()

    def read(self, begin: int, end: int, *, wait: bool) -> list[bytes]:
        if not wait:
            raise PagesMissing([])
        return [self.data[: end - begin]]

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        self.is_read.set()
        await self.goes_on.wait()
        return work()


async def test_message_that_waits_for_the_disk_is_not_sent_after_a_truncation(free_port: int) -> None:
    """It would carry the bytes that replace the truncated ones, with the old term."""
    port, replaced = Port(free_port), ReplacedLog()
    log: Any = replaced
    await port.server.start()
    links = Links("g", {"n0": f"127.0.0.1:{port.server.port}"}, log, replaced.in_thread)
    own = HEAD | {"sender": "n1", "to": "n0"}
    try:
        await port.hears(links)
        for begin in (5, 9):
            links.send(Append(**own, previous=Position(begin, 1), previous_term=7, end=Position(begin + 4, 1)))
        await replaced.is_read.wait()
        links.discard_pending()
        replaced.data = b"new."
        replaced.goes_on.set()
        links.send(VoteRequest(**own, last_term=7, end=Position(5, 1)))
        await port.receives(VoteRequest)
        assert not [message for message in port.messages if isinstance(message, Append)]
    finally:
        await links.close()
        await port.server.stop()


async def test_messages_of_a_member_with_other_settings_are_dropped_and_those_without_fields_are_not() -> None:
    taken: list[Message] = []
    inbox = Inbox("n1", "g", {"n0": ""}, taken.extend, lambda *_: None, NoQueries(), FixedSettings(1024))
    connection: Any = None

    def receive(fields: dict[str, str]) -> bool:
        """Return whether a message with these header fields is accepted."""
        taken.clear()
        body = encode_head(MESSAGES[0])
        inbox.handle(
            connection,
            [RemotingCommand(RequestCode.REPLICATE, {"group": "g"} | fields, body, flag=CommandFlag.ONEWAY)],
        )
        return bool(taken)

    assert receive({})  # of an earlier release
    assert receive(FixedSettings(1024).to_fields())
    assert receive({"segmentSize": "1024"})  # of a release that states less
    for other in (FixedSettings(2048), FixedSettings(1024, log_format=2)):
        assert not receive(other.to_fields())
        assert not receive({})  # a message with bytes of the log, or a confirmation
        assert "here and 2" in inbox.difference
        assert "on n0, and cannot be changed in a group" in inbox.difference
    assert receive(FixedSettings(1024).to_fields())
    assert receive({})
    assert inbox.difference == ""


class LogOfThree(NoQueries):
    """A member with three bytes of the log, of which it has copied the last one."""

    async def read_range(self, begin: int, limit: int, most: int) -> bytes:
        return b"abc"[begin:limit]

    async def digest(self, place: LogRange, digest: str) -> str:
        if place.log != "g:1:1":
            raise StorageError("its log is another one")
        return f"digest of {place.begin} to {place.limit}"

    def copied(self, place: LogRange, size: int) -> CopiedRanges | None:
        return CopiedRanges([(2, 3)]).within(place.begin, place.begin + size) if place.log == "g:1:1" else None


class InboxOf020(Inbox):
    """The port of a member of version 0.2.0, which ignores the fields of a comparison."""

    async def _range_response(self, request: RemotingCommand) -> RemotingCommand:
        for name in ("log", "digest"):
            request.ext_fields.pop(name, None)
        return await super()._range_response(request)


@pytest.mark.parametrize("kind", [Inbox, InboxOf020])
async def test_copies_are_compared_with_optional_fields_of_the_request_for_a_range(kind: type[Inbox]) -> None:
    inbox = kind("n1", "g", {"n0": ""}, lambda _: None, lambda *_: None, LogOfThree())
    server = Server(inbox, "127.0.0.1", 0)
    await server.start()
    nothing: Any = None
    links = Links("g", {"n1": f"127.0.0.1:{server.port}"}, nothing, nothing)
    try:
        assert await links.read_range("n1", 0, 3) == b"abc"
        for begin, copied in ((0, ((2, 3),)), (2, ((2, 3),))):
            votes = copied if kind is Inbox else None
            assert await links.read_copy("n1", LogRange(begin, 3, "g:1:1")) == Copy(b"abc"[begin:], votes)
        assert await links.read_copy("n1", LogRange(0, 1, "g:1:1")) == Copy(b"a", () if kind is Inbox else None)
        assert await links.read_copy("n1", LogRange(0, 3, "of another group")) == Copy(b"abc", None)
        digest = await links.digest("n1", LogRange(0, 3, "g:1:1"), "own")
        assert digest == ("digest of 0 to 3" if kind is Inbox else "")
        if kind is Inbox:
            with pytest.raises(ServerError, match="its log is another one"):
                await links.digest("n1", LogRange(0, 3, "of another group"), "own")
    finally:
        await links.close()
        await inbox.stop()
        await server.stop()
