"""Batched reads of connections that tolerate latency.

Thousands of idle consumers send a small request every few seconds: heartbeats, offset commits and pulls. A server that
wakes up for each of them spends most of its time on wake-ups with cold CPU caches. Connections that are read lazily are
therefore moved from the event loop's epoll to a separate one, which is polled every :data:`REST_S` seconds. All data
received since the last poll is handled together.

The reader only reads bytes. It returns a connection to the event loop when the peer closes it, a read fails, or a read
returns a large amount of data. The handlers of the server select the connections that are read lazily.
"""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import suppress
from typing import Protocol

REST_S = 0.2
"""Polling interval in seconds: the maximum additional latency of a lazy read."""
_READ_BYTES = 16_384
_AT_A_TIME = 256
"""Maximum number of connections that are read in one event loop iteration."""


class LazyConnection(Protocol):
    """The part of :class:`~raptormq.transport.connection.Connection` that the reader uses."""

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""

    def read_promptly(self) -> None:
        """Return to reads by the event loop; calls :meth:`LazyReader.discard`."""


class LazyReader:
    """The lazily read connections of a server."""

    def __init__(self) -> None:
        self._descriptors: dict[LazyConnection, int] = {}
        self._connections: dict[int, LazyConnection] = {}
        self._epoll: select.epoll | None = None
        self._next_look: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._descriptors)

    def add(self, connection: LazyConnection, transport: asyncio.Transport) -> None:
        """Start to read ``connection`` in place of its ``transport``, which must not use TLS."""
        transport.pause_reading()
        descriptor: int = transport.get_extra_info("socket").fileno()
        if self._epoll is None:
            self._epoll = select.epoll()
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLRDHUP)
        self._descriptors[connection] = descriptor
        self._connections[descriptor] = connection
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(REST_S, self._look)

    def discard(self, connection: LazyConnection) -> None:
        """Stop reading ``connection``, if it was added. Call before its descriptor is closed."""
        descriptor = self._descriptors.pop(connection, None)
        if descriptor is not None and self._epoll is not None:
            del self._connections[descriptor]
            # After an error the descriptor may be closed; the kernel has removed it from epoll then.
            with suppress(OSError):
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Stop reading all connections."""
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        if self._epoll is not None:
            self._epoll.close()
            self._epoll = None
        self._descriptors.clear()
        self._connections.clear()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._next_look = None
        ready = [] if self._epoll is None else self._epoll.poll(0, _AT_A_TIME)
        for descriptor, _ in ready:
            connection = self._connections.get(descriptor)  # an earlier read may have closed it
            if connection is not None:
                _read(connection, descriptor)
        if len(ready) == _AT_A_TIME:
            self._next_look = loop.call_soon(self._look)
        elif self._connections:
            self._next_look = loop.call_later(REST_S, self._look)


def _read(connection: LazyConnection, descriptor: int) -> None:
    try:
        data = os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return
    except OSError:
        data = b""
    if not data or len(data) == _READ_BYTES:
        connection.read_promptly()  # the event loop handles the error, or reads the rest
    if data:
        connection.data_received(data)
