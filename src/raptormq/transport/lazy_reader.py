"""Reading connections that are in no hurry, all of them together.

Thousands of idle consumers say a little every few seconds each: that they are there, where they stand, that they wait
for messages. A server that wakes up for every one of these spends most of its time on waking up, with CPU caches that
others have filled meanwhile. Connections that are read lazily therefore leave the loop's epoll for one of ours, which
is looked at every :data:`REST_S`; what has come by then is handled in one go.

Only bytes are read here. The end of a connection, an error, or much data at once are left to the loop, which gets the
connection back. `connection` is who is read; who is in no hurry is for the server's handlers to say.
"""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import suppress
from typing import Protocol

REST_S = 0.2
"""How much later than at once a lazily read connection is read at most."""
_READ_BYTES = 16_384
_AT_A_TIME = 256
"""Connections that are read before the loop has its turn."""


class LazyConnection(Protocol):
    """What the reader has to know about a connection."""

    def data_received(self, data: bytes) -> None:
        """Take what was read."""

    def read_promptly(self) -> None:
        """Be read by the loop again; the reader is told to `discard` it."""


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
        """Read ``connection`` from now on, in place of its ``transport``, which is not one of TLS."""
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
        """Read ``connection`` no more, if it is one of ours; before its descriptor is closed."""
        descriptor = self._descriptors.pop(connection, None)
        if descriptor is not None and self._epoll is not None:
            del self._connections[descriptor]
            with suppress(OSError):  # an error of the peer's may have closed it: then the kernel has taken it out
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Read nothing more."""
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
            connection = self._connections.get(descriptor)  # one read before may have ended it
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
        connection.read_promptly()  # the loop sees what it is, or goes on reading
    if data:
        connection.data_received(data)
