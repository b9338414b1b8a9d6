"""One TCP connection that carries requests and responses in both directions.

Apache RocketMQ multiplexes: either end may send requests at any time, and a response is matched by its opaque.
:class:`Connection` feeds received bytes to the frame decoder, completes the futures of outgoing requests
(:mod:`~raptormq.transport.requests`), and passes incoming requests to a :class:`RequestHandler`. All requests of one
read are passed as one group, and everything sent in one event loop iteration is written with one system call. Both
reduce the cost per message.

Limits: every request has a timeout. With ``hold_reading``, the connection stops reading requests while the peer does
not read its responses. Beyond ``max_unsent_bytes`` of unsent bytes the connection is aborted.
:func:`unacknowledged_bytes` returns the bytes in the kernel that the peer has not acknowledged (SIOCOUTQ of Linux,
``tcp(7)``).
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable, Sequence
from socket import IPPROTO_TCP, TCP_USER_TIMEOUT, socket
from ssl import SSLError
from typing import Protocol, cast

from raptormq.errors import BufferFull, ConnectionClosed, ProtocolError, TextError
from raptormq.logs import get_logger
from raptormq.protocol import command
from raptormq.protocol.command import CommandFlag, RemotingCommand
from raptormq.protocol.frame import PIECE_BYTES, FrameDecoder
from raptormq.transport.lazy_reader import LazyReader
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.memory import ReceiveBudget, SendBudget
from raptormq.transport.requests import OutgoingRequests
from raptormq.transport.tls import SHUTDOWN_S, Buffer, PacedTransport

logger = get_logger(__name__)


_INT = struct.Struct("i")


def unacknowledged_bytes(descriptor: int) -> int:
    """Return the number of sent bytes that the peer has not acknowledged; 0 for a closed socket."""
    try:
        (size,) = _INT.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(_INT.size)))
    except (OSError, ValueError):
        return 0
    return int(size)


TLS_HANDSHAKE = b"\x16"
"""First byte of a TLS connection. No frame starts with it, because its length would exceed every limit."""
_RESPONSE, _ONEWAY = int(CommandFlag.RESPONSE), int(CommandFlag.ONEWAY)
_LARGE_BODY_BYTES = 8192
"""Body size from which a separate buffer in the write is cheaper than a copy."""
_BYTES_PER_TURN = 256_000
"""Bytes that are read from one connection before other connections are served: one read of uvloop. libuv reads up to 32
times in a row from a fast sender, and all other connections would wait until these reads are handled."""


class RequestHandler(Protocol):
    """Handles the requests of a connection's peer."""

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Handle the requests of one read, in order. Must not block and must not raise."""

    def closed(self, connection: Connection) -> None:
        """Called exactly once, after the connection has ended."""


class Connection(asyncio.Protocol):
    """One end of a connection, client or server."""

    def __init__(
        self,
        handler: RequestHandler,
        limits: ConnectionLimits | None = None,
        on_made: Callable[[Connection], bool] | None = None,
        lazy_reader: LazyReader | None = None,
        budget: ReceiveBudget | None = None,
        answers: SendBudget | None = None,
    ) -> None:
        self.last_read = 0.0
        """Loop time (seconds) of the last read that returned data."""
        self.peer: tuple[str, int] = ("", 0)
        """Host and port of the peer."""
        self.local_port = 0
        """This end's port."""
        self.has_failed = False
        """Whether the peer has sent bytes that are not a frame."""
        self.has_received = False
        """Whether the peer has sent bytes that may be a frame."""
        self.waits_for_room = False
        """Whether reading is paused because incomplete frames of all connections take too much memory."""
        self.answers = answers
        """Budget for the unread responses of all connections of the server; None without a limit."""
        self.reads_answers = False
        """Whether the peer had read every earlier response when the budget last checked."""
        self.is_encrypted = False
        """Whether the connection uses TLS. Encryption takes memory even for slices of the mapped log."""
        self._handler = handler
        self._limits = limits or ConnectionLimits()
        self._on_made = on_made
        self._lazy_reader = lazy_reader
        self._is_lazy = False
        self.frames = FrameDecoder(self._limits.max_frame_bytes)
        """Decodes the stream and buffers the incomplete frame."""
        self._budget = budget
        self._requests = OutgoingRequests(self, self._limits)
        self._read_in_turn = 0
        self._out: list[Buffer] = []
        self._out_bytes = 0  # bytes of the large bodies in _out
        self._sent_bytes = 0  # bytes of the bodies passed to the transport
        self._flush_scheduled = False
        self._closed = False
        self._is_reading_held = False
        self._drained: asyncio.Event | None = None
        self._disconnected: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._transport: asyncio.Transport

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport. Abort the connection if ``on_made`` returns False."""
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self.is_encrypted = transport.get_extra_info("sslcontext") is not None
        if self.is_encrypted:
            self._transport = PacedTransport(self._transport, self, SHUTDOWN_S)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_water_bytes)
        if self._limits.unacknowledged_ms:
            own: socket = transport.get_extra_info("socket")
            own.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, self._limits.unacknowledged_ms)
        self._disconnected = self._loop.create_future()
        self.last_read = self._loop.time()
        peer = transport.get_extra_info("peername")
        self.peer = (_unmapped(str(peer[0])), int(peer[1])) if peer else ("", 0)
        own_name = transport.get_extra_info("sockname")
        self.local_port = int(own_name[1]) if own_name else 0
        if self._on_made is not None and not self._on_made(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Decode frames, complete outgoing requests with their responses, and pass requests to the handler."""
        self.last_read = self._loop.time()
        self._requests.unanswered_since = None
        self._read_in_turn += len(data)
        if self._read_in_turn >= _BYTES_PER_TURN:
            self._yield_to_others()
        requests: list[RemotingCommand] = []
        try:
            for frame in self.frames.feed(data):
                try:
                    received = command.decode(frame)
                except TextError as error:
                    self._answer_unreadable(error, frame[0])
                    continue
                if received.flag & _RESPONSE:
                    self._requests.answered(received)
                else:
                    requests.append(received)
        except ProtocolError as error:
            is_tls = data[:1] == TLS_HANDSHAKE and not self.is_encrypted
            reason = "it sent a TLS handshake, but TLS is not enabled here" if is_tls else error
            logger.info("closing the connection from %s: %s", self.peer_name, reason)
            self.has_failed = True
            self.close()
            return
        self.has_received = True
        if self._requests.is_doubtful:
            self._requests.close_if_unused()
        if self.frames.missing_bytes and self._budget is not None:
            self._budget.kept(min(len(data) + PIECE_BYTES, self.frames.held_bytes))
        if requests:
            scheduled, self._flush_scheduled = (
                self._flush_scheduled,
                True,
            )  # responses sent by the handler are flushed below
            try:
                self._handler.handle(self, requests)
            finally:
                self._flush_scheduled = scheduled
            if self._out:
                self._flush()

    def _answer_unreadable(self, error: TextError, serialize_type: int) -> None:
        if error.flag & _RESPONSE:
            self._requests.failed(error.opaque, error)
        elif not error.flag & _ONEWAY:
            self.send(command.undecodable_text_response(error, serialize_type))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests with ConnectionClosed and notify the handler."""
        self._closed = True
        self._stop_lazy_reading()
        self.frames.clear()
        self._out.clear()
        self._requests.close()
        reason = f": {exc.reason}" if isinstance(exc, SSLError) and exc.reason else ""
        self._requests.fail(ConnectionClosed, f"the connection to {self.peer_name} ended before the response{reason}")
        if self._drained is not None:
            self._drained.set()
        if self._disconnected is not None and not self._disconnected.done():
            self._disconnected.set_result(None)
        self._handler.closed(self)

    def pause_writing(self) -> None:
        """Called when the write buffer has exceeded the high-water mark."""
        self._drained = asyncio.Event()
        self._update_reading()

    def resume_writing(self) -> None:
        """Called when the write buffer has fallen below the low-water mark."""
        if self._drained is not None:
            self._drained.set()
            self._drained = None
        self._update_reading()

    def read_lazily(self) -> None:
        """Read with the server's lazy reader, if there is one, until `read_promptly`. Adds latency."""
        is_open = not (
            self._is_reading_held or self.waits_for_room or self._drained is not None or self._transport.is_closing()
        )
        if is_open and not self._is_lazy and self._lazy_reader is not None and not self.is_encrypted:
            self._is_lazy = True
            self._lazy_reader.add(self, self._transport)

    def read_promptly(self, *, for_good: bool = False) -> None:
        """Return to reads by the event loop. ``for_good`` disables lazy reading of this connection permanently."""
        if self._is_lazy:
            self._update_reading()
        if for_good:
            self._lazy_reader = None

    def _stop_lazy_reading(self) -> None:
        if self._is_lazy and self._lazy_reader is not None:
            self._is_lazy = False
            self._lazy_reader.discard(self)

    def hold_reading(self, *, hold: bool) -> None:
        """Pause or resume reading on behalf of the handler, while earlier requests are not handled yet."""
        self._is_reading_held = hold
        self._update_reading()

    def wait_for_room(self, *, wait: bool) -> None:
        """Pause or resume reading on behalf of the budget for incomplete frames."""
        if wait != self.waits_for_room:
            self.waits_for_room = wait
            self._update_reading()

    def _update_reading(self) -> None:
        self._stop_lazy_reading()
        if self._transport.is_closing():
            return
        if self._is_reading_held or self.waits_for_room or self.is_held_back:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _yield_to_others(self) -> None:
        """Pause reading until the next event loop iteration."""
        self._stop_lazy_reading()
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        self._read_in_turn = 0
        self._update_reading()

    # --- sending ---

    def send(self, message: RemotingCommand, *body: Buffer) -> None:
        """Queue a command. If ``body`` buffers are given, they are its body and are not copied."""
        if not body:
            if len(message.body) < _LARGE_BODY_BYTES:
                self.send_raw(command.encode(message))
                return
            body = (message.body,)
        self.send_slices(message, body, sum(map(len, body)))

    def send_slices(self, message: RemotingCommand, body: Sequence[Buffer], copied: int) -> None:
        """Queue a command whose body consists of slices of a mapped file, except ``copied`` bytes that take memory."""
        size = sum(map(len, body))
        self.send_raw(command.encode_head(message, size), *body)
        self._out_bytes += size
        if copied or self.is_encrypted:
            self._count_unread(copied)
        if self._out_bytes >= self._limits.write_high_water_bytes:
            self._flush_early()

    def _count_unread(self, size: int) -> None:
        if (size or self.is_encrypted) and self.answers is not None and not self._closed:
            self.answers.add(self, size)

    def send_raw(self, *buffers: Buffer) -> None:
        """Queue encoded frames. All queued frames are written together at the end of the event loop iteration."""
        if self._closed:
            return
        self._out += buffers
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush_early(self) -> None:
        """Pass queued frames to the transport immediately, so that it can report that its buffer is full."""
        scheduled = self._flush_scheduled
        self._flush()
        self._flush_scheduled = scheduled

    def _flush(self) -> None:
        self._flush_scheduled = False
        large, self._out_bytes = self._out_bytes, 0
        self._sent_bytes += large
        out = self._out
        if not out or self._closed:
            return
        self._out = []
        owed = self._transport.get_write_buffer_size()
        if owed and self._exceeds_limit(owed, out, large):
            self._transport.abort()
        elif len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)

    def _exceeds_limit(self, owed: int, out: list[Buffer], large: int) -> bool:
        """Count the small frames in ``out``. Return whether the connection is to be aborted because unsent bytes exceed
        a limit.
        """
        if owed > self._limits.max_unsent_bytes:
            logger.warning("closing the connection to %s: it does not read, %d bytes are unsent", self.peer_name, owed)
            self._requests.fail(BufferFull, f"{self.peer_name} does not read the data sent to it")
            return True
        small = sum(map(len, out)) - large
        self._sent_bytes += small
        self._count_unread(small)
        return self._closed

    @property
    def sent_bytes(self) -> int:
        """Bytes passed to the connection for sending, including queued ones. Small responses to a peer that had read
        everything before are not counted."""
        return self._sent_bytes + self._out_bytes

    @property
    def taken_bytes(self) -> int:
        """Lower bound of the bytes of ``sent_bytes`` that the kernel has taken."""
        return self._sent_bytes - self._transport.get_write_buffer_size()

    @property
    def read_bytes(self) -> int:
        """Lower bound of the bytes of ``sent_bytes`` that the peer's machine has acknowledged. Unlike ``taken_bytes``
        it advances with every read of a slow peer. Costs a system call.
        """
        own: socket | None = self._transport.get_extra_info("socket")  # None if TLS has ended before connection_lost
        return self.taken_bytes - (0 if own is None else unacknowledged_bytes(own.fileno()))

    @property
    def is_clogged(self) -> bool:
        """True while more bytes than the high-water mark are unsent. Do not queue bulk data then."""
        return self._drained is not None

    @property
    def is_held_back(self) -> bool:
        """True while reading is paused because the peer does not read its responses."""
        return self._drained is not None and self._limits.hold_reading

    @property
    def is_closed(self) -> bool:
        """True once no more data can be sent."""
        return self._closed

    @property
    def takes_requests(self) -> bool:
        """Whether new requests should use this connection: it is open, and no request has timed out in silence."""
        return not (self._closed or self._requests.is_doubtful)

    @property
    def is_disconnected(self) -> bool:
        """True once the socket is closed. All queued data is sent or lost by then."""
        return self._disconnected is not None and self._disconnected.done()

    @property
    def peer_name(self) -> str:
        """``host:port`` of the peer."""
        host, port = self.peer
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def drained(self) -> None:
        """Wait until the write buffer is below the low-water mark or the connection is closed."""
        while self._drained is not None and not self._closed:
            await self._drained.wait()

    # --- outgoing requests ---

    def request(self, message: RemotingCommand, timeout: float) -> asyncio.Future[RemotingCommand]:
        """Send a request. The future completes with the response, :class:`RequestTimeout` or :class:`ConnectionClosed`.

        ``timeout`` is in seconds, at most a day, with a resolution of about 0.1 s.

        Raises:
            CommandError: the request cannot be encoded; nothing is sent.
        """
        return self._requests.request(message, timeout)

    def oneway(self, message: RemotingCommand) -> None:
        """Send a request without a response."""
        self._requests.oneway(message)

    # --- ending ---

    def close(self) -> None:
        """Close the connection after all queued data is sent."""
        if not self._closed:
            self._flush()
            self._closed = True
            self.frames.clear()
            self._stop_lazy_reading()
            self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately; queued bytes are lost."""
        self._closed = True
        self.frames.clear()
        self._stop_lazy_reading()
        if not self.is_disconnected:  # a closed transport has no event loop
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        if self._disconnected is not None:
            await asyncio.shield(self._disconnected)


def _unmapped(host: str) -> str:
    """Return the IPv4 address of an IPv4-mapped IPv6 address; any other address unchanged."""
    return host.removeprefix("::ffff:") if "." in host else host
