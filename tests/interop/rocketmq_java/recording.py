"""A TCP proxy on loopback that records every remoting frame of both directions.

client --> RecordingProxy(port) --> target
Frames (4 bytes of big-endian length, then that many bytes) are forwarded unchanged and recorded in the order in which
they were read. To make a client that requests routes from a name server use a proxy for the broker as well, an address
in the returned frames can be replaced by one of the same length. The recorded frame is the original one.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """One recorded frame with its length prefix. `connection` is the number of the TCP connection of a proxy,
    from 0.
    """

    peer: str
    connection: int
    to_server: bool
    data: bytes


class RecordingProxy:
    """Forwards connections on `port` to `target`, and passes each frame to `record` (called from several threads)."""

    def __init__(
        self,
        peer: str,
        target: tuple[str, int],
        record: Callable[[Frame], None],
        *,
        replace: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        """`replace` = (old, new) of the same length, applied to frames of the server."""
        if len(replace[0]) != len(replace[1]):
            raise ValueError("a replacement in a frame must have the same length")
        self._peer, self._target, self._record, self._replace = peer, target, record, replace
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, name=f"proxy of {peer}", daemon=True).start()

    def close(self) -> None:
        """Close the listener and every connection. The threads then end."""
        for each in [self._listener, *self._sockets]:
            _shut(each)

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            for to_server, source, sink in ((True, client, server), (False, server, client)):
                threading.Thread(target=self._pump, args=(number, to_server, source, sink), daemon=True).start()
            number += 1

    def _pump(self, number: int, to_server: bool, source: socket.socket, sink: socket.socket) -> None:
        try:
            with source.makefile("rb") as stream:
                while prefix := stream.read(4):
                    data = prefix + stream.read(int.from_bytes(prefix, "big"))
                    self._record(Frame(self._peer, number, to_server, data))
                    sink.sendall(data if to_server or not self._replace[0] else data.replace(*self._replace))
        except OSError:
            pass  # the other side has closed the connection, so this side closes it, too
        finally:
            _shut(sink)


def _shut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # already closed
    each.close()
