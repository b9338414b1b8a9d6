"""The pacing of data passed to TLS, with a transport that accepts one piece and then waits for the peer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.tls.paced_transport import PIECE_BYTES, PacedTransport

CLOSE_S = 0.05


class Below(asyncio.Transport):
    """Accepts this number of pieces before it reports that it is full."""

    def __init__(self, room: int) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.room = room
        self.written: list[bytes] = []
        self.calls: list[str] = []
        self.is_over = False
        self._protocol: asyncio.Protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (1, 0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))
        if len(self.written) >= self.room:
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return 7

    def is_closing(self) -> bool:
        return self.is_over

    def __getattribute__(self, name: str) -> Any:
        if name in ("pause_reading", "resume_reading", "close", "abort"):
            return lambda: object.__getattribute__(self, "calls").append(name)
        return super().__getattribute__(name)

    def has_room(self, pieces: int) -> None:
        self.room = len(self.written) + pieces
        self._protocol.resume_writing()


class Above(asyncio.Protocol):
    """Records its calls."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(exc)


def paced(room: int) -> tuple[Below, PacedTransport, Above]:
    below, above = Below(room), Above()
    return below, PacedTransport(below, above, CLOSE_S), above


async def test_small_buffers_leave_together_and_large_ones_in_pieces() -> None:
    below, transport, _ = paced(99)
    large = bytes(range(256)) * (PIECE_BYTES // 100)
    transport.writelines([b"head", memoryview(large), b"tail"])
    transport.write(b"")
    transport.write(b"next")
    assert b"".join(below.written) == b"head" + large + b"tail" + b"next"
    assert [len(piece) for piece in below.written[:2]] == [PIECE_BYTES, PIECE_BYTES]
    assert below.written[-1] == b"next"
    assert transport.get_write_buffer_size() == 7


async def test_the_rest_waits_uncopied_until_there_is_room() -> None:
    below, transport, above = paced(1)
    transport.set_write_buffer_limits(high=3 * PIECE_BYTES)
    log = bytearray(6 * PIECE_BYTES)
    transport.write(memoryview(log))
    assert len(below.written) == 1
    assert transport.get_write_buffer_size() == 5 * PIECE_BYTES + 7
    assert above.told == ["pause"]
    with pytest.raises(BufferError):  # a view of it waits
        log.append(1)
    below.has_room(4)
    assert (len(below.written), above.told) == (5, ["pause"])
    below.has_room(4)
    assert (len(below.written), above.told) == (6, ["pause", "resume"])
    log.append(1)


async def test_data_and_the_end_reach_the_protocol() -> None:
    below, transport, above = paced(1)
    transport.writelines([b"x", bytes(PIECE_BYTES)])
    transport.data_received(b"in")
    reason = ConnectionResetError()
    transport.connection_lost(reason)
    assert above.told == [b"in", reason]
    below.has_room(9)
    assert len(below.written) == 1  # the waiting data is dropped
    assert transport.get_extra_info("peername") == ("127.0.0.1", 1)


async def test_a_close_waits_for_the_rest() -> None:
    below, transport, above = paced(1)
    transport.write(bytes(2 * PIECE_BYTES))
    transport.close()
    transport.close()
    assert (transport.is_closing(), below.calls) == (True, ["pause_reading"])
    below.has_room(9)
    assert (len(below.written), below.calls, above.told) == (2, ["pause_reading", "close"], [])


async def test_what_is_closed_below_is_not_closed_again_and_is_aborted_if_that_does_not_end_it() -> None:
    below, transport, _ = paced(1)
    transport.write(bytes(PIECE_BYTES))
    transport.close()
    below.has_room(1)
    below.has_room(1)
    while "abort" not in below.calls:
        await asyncio.sleep(0.01)
    assert below.calls == ["pause_reading", "close", "abort"]


async def test_a_connection_that_has_ended_below_is_not_asked_for_its_socket() -> None:
    class Nobody:
        def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None: ...

        def closed(self, connection: Connection) -> None: ...

    below = Below(1)
    below._extra.update(socket=None, sslcontext=object())  # like uvloop
    connection = Connection(Nobody())
    connection.connection_made(below)
    connection.send(RemotingCommand(0), memoryview(bytes(10 * PIECE_BYTES)))
    connection._flush()
    assert connection.read_bytes == connection.taken_bytes == PIECE_BYTES - 7


async def test_a_peer_that_takes_nothing_does_not_hold_up_a_close() -> None:
    below, transport, _ = paced(1)
    transport.write(bytes(2 * PIECE_BYTES))
    transport.close()
    while "abort" not in below.calls:
        await asyncio.sleep(0.01)
    assert transport.get_write_buffer_size() == 7
    assert below.calls == ["pause_reading", "abort"]


async def test_an_abort_and_a_close_of_what_is_closed_below() -> None:
    below, transport, _ = paced(1)
    transport.write(bytes(2 * PIECE_BYTES))
    transport.abort()
    assert (transport.is_closing(), below.calls, transport.get_write_buffer_size()) == (True, ["abort"], 7)
    below, transport, _ = paced(1)
    below.is_over = True
    transport.close()
    assert (transport.is_closing(), below.calls) == (True, [])


async def test_reading_is_paused_below() -> None:
    below, transport, _ = paced(1)
    transport.pause_reading()
    transport.resume_reading()
    assert below.calls == ["pause_reading", "resume_reading"]
