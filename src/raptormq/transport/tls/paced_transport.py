"""A TLS transport that passes data to TLS in small pieces, as fast as the peer reads.

The TLS transports of asyncio and uvloop encrypt all data immediately. They count neither the encrypted bytes that wait
for the kernel nor their buffers, which keep the size of the largest write: a response of 8 MiB to a peer that does not
read took 16 MiB of uncounted memory until the connection ended. This transport queues data unencrypted, mostly as
slices of the mapped log, and TLS has at most two pieces. If a peer shuts down its sending side, it receives no more
than these two pieces, because TLS closes both directions.

    connection --write--> queue --a piece--> TLS --> TCP --> kernel
         ^                  |      ^          |
         `--pause, resume---'      `--resume--'
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

Buffer = bytes | bytearray | memoryview

PIECE_BYTES = 131_072
"""Size of a piece in bytes."""
AHEAD_BYTES = 2 * PIECE_BYTES
"""Maximum number of bytes that are encrypted ahead: a piece that is being sent, and the next one."""


class PacedTransport(asyncio.Transport, asyncio.Protocol):
    """A transport to the connection's protocol above, and a protocol to the TLS transport below."""

    def __init__(self, below: asyncio.Transport, protocol: asyncio.Protocol, close_seconds: float) -> None:
        """``close_seconds`` is the maximum time in which :meth:`close` waits for the peer to read the queued data."""
        super().__init__()
        self._below = below
        self._protocol = protocol
        self._close_seconds = close_seconds
        self._queue: deque[Buffer] = deque()
        self._queued_bytes = 0
        self._is_full = False  # whether TLS has paused this transport
        self._high = PIECE_BYTES
        self._is_over = False  # whether the protocol above is paused
        self._is_closing = False
        self._is_closed_below = False
        self._end: asyncio.TimerHandle | None = None
        self.data_received = protocol.data_received  # type: ignore[method-assign] # a call less for each read
        below.set_protocol(self)
        below.set_write_buffer_limits(high=1, low=0)

    # --- as the transport of the protocol above ---

    def write(self, data: Buffer) -> None:
        """See :class:`asyncio.Transport`. Data is not copied before encryption."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """See :class:`asyncio.WriteTransport`. Data is not copied before encryption."""
        for data in list_of_data:
            self._queue.append(data)
            self._queued_bytes += len(data)
        self._go_on()

    def get_write_buffer_size(self) -> int:
        """Return the number of queued bytes, excluding a piece that TLS may not have sent yet."""
        return self._queued_bytes + self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the number of queued bytes above which the protocol is paused; it is resumed at a quarter of it."""
        self._high = PIECE_BYTES if high is None else high

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See :class:`asyncio.BaseTransport`."""
        return self._below.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """True once nothing more can be sent."""
        return self._is_closing or self._below.is_closing()

    def pause_reading(self) -> None:
        """See :class:`asyncio.ReadTransport`."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """See :class:`asyncio.ReadTransport`."""
        self._below.resume_reading()

    def close(self) -> None:
        """Close after the peer has read the queued data, or after ``close_seconds``."""
        if self.is_closing():
            return
        self._is_closing = True
        self._below.pause_reading()
        self._end = asyncio.get_running_loop().call_later(self._close_seconds, self.abort)
        self._go_on()

    def abort(self) -> None:
        """Close immediately; queued data is lost."""
        self._forget()
        self._is_closing = self._is_closed_below = True
        self._below.abort()

    # --- as the protocol of TLS below ---

    def connection_lost(self, exc: Exception | None) -> None:
        """Discard queued data, and notify the protocol above."""
        self._forget()
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Stop passing pieces to TLS until it has sent its data."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Pass the next piece to TLS."""
        self._is_full = False
        self._go_on()

    # --- inside ---

    def _go_on(self) -> None:
        while self._queue and not self._is_full:
            if piece := self._next_piece():
                self._below.write(piece)
        if self._is_closing:
            if not self._queue and not self._is_closed_below:  # TLS treats a second close as an abort
                self._is_closed_below = True
                self._below.close()
        elif not self._is_over and self._queued_bytes > self._high:
            self._is_over = True
            self._protocol.pause_writing()
        elif self._is_over and self._queued_bytes <= self._high // 4:
            self._is_over = False
            self._protocol.resume_writing()

    def _next_piece(self) -> Buffer:
        queue, parts, left = self._queue, list[Buffer](), PIECE_BYTES
        while queue and left:
            first = queue.popleft()
            if len(first) > left:
                view = memoryview(first)
                queue.appendleft(view[left:])
                first = view[:left]
            parts.append(first)
            left -= len(first)
        self._queued_bytes -= PIECE_BYTES - left
        # Each buffer would become a separate TLS record, at twice the cost.
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _forget(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0
        if self._end is not None:
            self._end.cancel()
            self._end = None
