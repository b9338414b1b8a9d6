"""One TCP connection that carries requests and responses in both directions.

Apache RocketMQ multiplexes: either end may send requests at any time, and a response is matched by its opaque.
:class:`Connection` is the shell of that. It feeds bytes to the frame decoder, resolves the futures of our own requests
(:mod:`~raptormq.transport.requests`), and hands the peer's requests, *all that one read brought*, to a
:class:`RequestHandler` as one group - that is where a Python broker gets its speed. What is sent within one turn of the
loop leaves with one write.

Limits: every request has a time-out. A peer that does not read what it is owed is not read from either
(``hold_reading``) and is dropped beyond ``max_owed_bytes``. :func:`unacknowledged_bytes` is what the kernel has taken
for a peer that has not taken it itself: SIOCOUTQ of Linux (``tcp(7)``).
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable, Sequence
from socket import socket
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
    """Return how many bytes the kernel has for the other end of a socket, which has not acknowledged them; 0 for one
    that is closed.
    """
    try:
        (size,) = _INT.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(_INT.size)))
    except (OSError, ValueError):
        return 0
    return int(size)


TLS_HANDSHAKE = b"\x16"
"""What a TLS connection starts with; no frame does, as its length would be beyond all limits."""
_RESPONSE, _ONEWAY = int(CommandFlag.RESPONSE), int(CommandFlag.ONEWAY)
_LARGE_BODY_BYTES = 8192
"""Copying so much costs more than another buffer in the write."""
_BYTES_PER_TURN = 256_000
"""What one connection may bring before the others have their turn: one read of uvloop's. libuv reads up to 32 times
from a peer that sends fast, and everybody else would wait until all that is handled."""


class RequestHandler(Protocol):
    """What a connection does with the peer's requests."""

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Take all requests that one read brought, in order. Must not block and must not raise."""

    def closed(self, connection: Connection) -> None:
        """Learn that the connection is gone; called exactly once."""


class Connection(asyncio.Protocol):
    """The protocol object of one connection, either side."""

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
        """Loop time of the last byte received."""
        self.peer: tuple[str, int] = ("", 0)
        """Host and port of the peer."""
        self.has_received = False
        """The peer has sent something that may be a frame."""
        self.waits_for_room = False
        """True while nothing is read because unfinished frames, of whomever, take too much memory."""
        self.answers = answers
        """Counts what the peer has not read yet, with all others."""
        self.reads_answers = False
        """It has taken all that was counted before."""
        self.is_encrypted = False
        """What is sent is encrypted, which takes some memory wherever it comes from."""
        self._handler = handler
        self._limits = limits or ConnectionLimits()
        self._on_made = on_made
        self._lazy_reader = lazy_reader
        self._is_lazy = False
        self.frames = FrameDecoder(self._limits.max_frame_bytes)
        """Holds the unfinished frame."""
        self._budget = budget
        self._requests = OutgoingRequests(self, self._limits)
        self._read_in_turn = 0
        self._out: list[Buffer] = []
        self._out_bytes = 0  # of the large bodies in it
        self._sent_bytes = 0  # of those that the transport got
        self._flush_scheduled = False
        self._closed = False
        self._held = False
        self._drained: asyncio.Event | None = None
        self._gone: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._transport: asyncio.Transport

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; refuse the connection when ``on_made`` says so."""
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self.is_encrypted = transport.get_extra_info("sslcontext") is not None
        if self.is_encrypted:
            self._transport = PacedTransport(self._transport, self, SHUTDOWN_S)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_water_bytes)
        self._gone = self._loop.create_future()
        self.last_read = self._loop.time()
        peer = transport.get_extra_info("peername")
        self.peer = (_unmapped(str(peer[0])), int(peer[1])) if peer else ("", 0)
        if self._on_made is not None and not self._on_made(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Decode what arrived, answer our own requests, hand over the peer's."""
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
            reason = "it speaks TLS here" if data[:1] == TLS_HANDSHAKE and not self.is_encrypted else error
            logger.info("closing the connection from %s: %s", self.peer_name, reason)
            self.close()
            return
        self.has_received = True
        if self.frames.missing_bytes and self._budget is not None:
            self._budget.kept(min(len(data) + PIECE_BYTES, self.frames.held_bytes))
        if requests:
            scheduled, self._flush_scheduled = self._flush_scheduled, True  # what is sent meanwhile leaves below
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
        """Fail what still waits."""
        self._closed = True
        self._stop_lazy_reading()
        self.frames.clear()
        self._out.clear()
        self._requests.close()
        reason = f": {exc.reason}" if isinstance(exc, SSLError) and exc.reason else ""
        self._requests.fail(ConnectionClosed, f"the connection to {self.peer_name} ended before the answer{reason}")
        if self._drained is not None:
            self._drained.set()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        self._handler.closed(self)

    def pause_writing(self) -> None:
        """Note that the peer does not read fast enough."""
        self._drained = asyncio.Event()
        self._update_reading()

    def resume_writing(self) -> None:
        """Note that the peer has caught up."""
        if self._drained is not None:
            self._drained.set()
            self._drained = None
        self._update_reading()

    def read_lazily(self) -> None:
        """Read a little later than at once from now on, until `read_promptly`, where the server has a lazy reader."""
        is_open = not (self._held or self.waits_for_room or self._drained is not None or self._transport.is_closing())
        if is_open and not self._is_lazy and self._lazy_reader is not None and not self.is_encrypted:
            self._is_lazy = True
            self._lazy_reader.add(self, self._transport)

    def read_promptly(self, *, for_good: bool = False) -> None:
        """Read at once what comes; ``for_good``: whatever is said later."""
        if self._is_lazy:
            self._update_reading()
        if for_good:
            self._lazy_reader = None

    def _stop_lazy_reading(self) -> None:
        if self._is_lazy and self._lazy_reader is not None:
            self._is_lazy = False
            self._lazy_reader.discard(self)

    def hold_reading(self, *, hold: bool) -> None:
        """Read nothing more, or go on; for a handler that has not got through what was read."""
        self._held = hold
        self._update_reading()

    def wait_for_room(self, *, wait: bool) -> None:
        """Read nothing more, or go on; for the budget of unfinished frames."""
        if wait != self.waits_for_room:
            self.waits_for_room = wait
            self._update_reading()

    def _update_reading(self) -> None:
        self._stop_lazy_reading()
        if self._transport.is_closing():
            return
        if self._held or self.waits_for_room or self.is_held_back:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _yield_to_others(self) -> None:
        """Read on in the next turn of the loop."""
        self._stop_lazy_reading()
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._read_in_turn = 0
        self._update_reading()

    # --- sending ---

    def send(self, message: RemotingCommand, *body: Buffer) -> None:
        """Queue a command; with ``body`` buffers they are its body and are sent without being copied here."""
        if not body:
            if len(message.body) < _LARGE_BODY_BYTES:
                self.send_raw(command.encode(message))
                return
            body = (message.body,)
        self.send_slices(message, body, sum(map(len, body)))

    def send_slices(self, message: RemotingCommand, body: Sequence[Buffer], copied: int) -> None:
        """The same, where only ``copied`` bytes of the body take memory and the others are slices of a mapped file."""
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
        """Queue finished frames. They leave at the end of this turn of the loop, all in one write."""
        if self._closed:
            return
        self._out += buffers
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush_early(self) -> None:
        """Let the transport have what is queued before the turn ends, so that it can say that it is too much."""
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
        """Judge a peer that has not read all; what is small and adds to that is counted, too."""
        if owed > self._limits.max_owed_bytes:
            logger.warning("dropping %s: it does not read the %d bytes it is owed", self.peer_name, owed)
            self._requests.fail(BufferFull, f"{self.peer_name} does not read what it is owed")
            return True
        small = sum(map(len, out)) - large
        self._sent_bytes += small
        self._count_unread(small)
        return self._closed

    @property
    def sent_bytes(self) -> int:
        """What was sent so far, but for small answers to a peer that had read all."""
        return self._sent_bytes + self._out_bytes

    @property
    def taken_bytes(self) -> int:
        """What the kernel has taken of it, at least."""
        return self._sent_bytes - self._transport.get_write_buffer_size()

    @property
    def read_bytes(self) -> int:
        """What the peer's machine has taken of it, at least: this moves with every read of a slow peer, while a kernel
        whose buffer is full takes nothing more until much of it is free. Costs a system call.
        """
        own: socket | None = self._transport.get_extra_info("socket")  # None when TLS has ended and has not said so yet
        return self.taken_bytes - (0 if own is None else unacknowledged_bytes(own.fileno()))

    @property
    def is_clogged(self) -> bool:
        """True while the peer is owed more than the high-water mark; do not queue bulk data for it."""
        return self._drained is not None

    @property
    def is_held_back(self) -> bool:
        """True while nothing is read from the peer because it does not read either."""
        return self._drained is not None and self._limits.hold_reading

    @property
    def is_closed(self) -> bool:
        """True once nothing can be sent any more."""
        return self._closed

    @property
    def is_gone(self) -> bool:
        """True once all that was queued has left, or is lost, and the socket is closed."""
        return self._gone is not None and self._gone.done()

    @property
    def peer_name(self) -> str:
        """``host:port`` of the peer."""
        host, port = self.peer
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def drained(self) -> None:
        """Wait until the peer has read enough, or is gone."""
        while self._drained is not None and not self._closed:
            await self._drained.wait()

    # --- our own requests ---

    def request(self, message: RemotingCommand, timeout: float) -> asyncio.Future[RemotingCommand]:
        """Send a request; the future gets the response, :class:`RequestTimeout` or :class:`ConnectionClosed`.

        ``timeout`` is in seconds, at most a day, and is kept to about 0.1 s, by one timer for all requests.

        Raises:
            CommandError: the request cannot be encoded; nothing is sent.
        """
        return self._requests.request(message, timeout)

    def oneway(self, message: RemotingCommand) -> None:
        """Send a request that is not answered."""
        self._requests.oneway(message)

    # --- ending ---

    def close(self) -> None:
        """Send what is queued, then close."""
        if not self._closed:
            self._flush()
            self._closed = True
            self.frames.clear()
            self._stop_lazy_reading()
            self._transport.close()

    def abort(self) -> None:
        """Close at once; queued bytes are lost."""
        self._closed = True
        self.frames.clear()
        self._stop_lazy_reading()
        if not self.is_gone:  # a transport that has ended has no loop any more
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        if self._gone is not None:
            await asyncio.shield(self._gone)


def _unmapped(host: str) -> str:
    """An IPv4 peer that came through a socket for both families is meant by the address it has itself."""
    return host.removeprefix("::ffff:") if "." in host else host
