"""A TLS transport that gets what is to be sent piece by piece, as the peer takes it.

The transports of TLS encrypt whatever they are given at once, and count neither what is encrypted and waits for the
kernel nor the buffers that they keep at the size of the largest write: an answer of 8 MiB to a peer that does not read
took 16 MiB until the connection ended, and counted for nothing. Here it waits as it came, for the most part as slices
of the mapped log, and TLS has two pieces at most. (A peer that ends its own side and reads on gets no more than these:
TLS ends both.)

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
"""What TLS gets at a time."""
AHEAD_BYTES = 2 * PIECE_BYTES
"""What is encrypted before the peer takes it, at most: a piece on its way to the kernel, and one behind it."""


class PacedTransport(asyncio.Transport, asyncio.Protocol):
    """Stands between a protocol and its transport of TLS, for either of them in the place of the other."""

    def __init__(self, below: asyncio.Transport, protocol: asyncio.Protocol, close_seconds: float) -> None:
        """``close_seconds`` is how long a peer has to take the rest of what it was sent before a close."""
        super().__init__()
        self._below = below
        self._protocol = protocol
        self._close_seconds = close_seconds
        self._queue: deque[Buffer] = deque()
        self._queued_bytes = 0
        self._is_full = False  # TLS waits for the peer
        self._high = PIECE_BYTES
        self._is_over = False  # and the protocol was told so
        self._is_closing = False
        self._is_closed_below = False
        self._end: asyncio.TimerHandle | None = None
        self.data_received = protocol.data_received  # type: ignore[method-assign] # a call less for each read
        below.set_protocol(self)
        below.set_write_buffer_limits(high=1, low=0)

    # --- as the transport of the protocol above ---

    def write(self, data: Buffer) -> None:
        """See :class:`asyncio.Transport`; nothing is copied before it is encrypted."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """The same."""
        for data in list_of_data:
            self._queue.append(data)
            self._queued_bytes += len(data)
        self._go_on()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait for the peer, but for a piece that may wait for the kernel."""
        return self._queued_bytes + self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Let the protocol pause above ``high`` bytes, and go on below a quarter of it."""
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
        """Close when the peer has taken the rest, or its time is up."""
        if self.is_closing():
            return
        self._is_closing = True
        self._below.pause_reading()
        self._end = asyncio.get_running_loop().call_later(self._close_seconds, self.abort)
        self._go_on()

    def abort(self) -> None:
        """Close at once; what waits is lost."""
        self._forget()
        self._is_closing = self._is_closed_below = True
        self._below.abort()

    # --- as the protocol of TLS below ---

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the protocol."""
        self._forget()
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Keep the rest until TLS has got rid of what it has."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Let TLS have the next piece."""
        self._is_full = False
        self._go_on()

    # --- inside ---

    def _go_on(self) -> None:
        while self._queue and not self._is_full:
            if piece := self._next_piece():
                self._below.write(piece)
        if self._is_closing:
            if not self._queue and not self._is_closed_below:  # a second close would be taken for an abort
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
        # Every buffer would become a record of its own, at twice the cost.
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _forget(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0
        if self._end is not None:
            self._end.cancel()
            self._end = None
