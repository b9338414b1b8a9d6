"""Accepts connections on listening sockets up to a limit; connections beyond the limit are closed immediately.

The servers of asyncio and uvloop have no such limit. When a process runs out of descriptors, asyncio retries and logs
thousands of times, and uvloop may silently close the listening socket. :class:`Acceptor` then releases a spare
descriptor for a moment, accepts the connection with it and closes it. If that fails too, or memory is short, it pauses
accepting for a while; new connections wait in the kernel's queue.

:class:`Refusals` counts and logs refused connections. It limits the rate of log lines, so that a peer that opens
thousands of connections cannot fill the disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable, Sequence

from raptormq.logs import get_logger

logger = get_logger(__name__)


QUIET_S = 10.0
"""Minimum time in seconds between two log lines."""


class Refusals:
    """Counts and logs the refused connections of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds."""
        self._clock = clock
        self._logged_at = -QUIET_S
        self._logged_count = 0
        self.count = 0
        """Number of refused connections since the start."""

    def refused(self, peer: str, reason: str) -> None:
        """Count a refused connection of ``peer``. Log it unless a line was logged less than :data:`QUIET_S` ago."""
        self.count += 1
        now = self._clock()
        if now - self._logged_at >= QUIET_S:
            logger.warning(
                "refused %d connections, the last one from %s: %s", self.count - self._logged_count, peer, reason
            )
            self._logged_at, self._logged_count = now, self.count


_ACCEPTS_PER_TURN = 64
_PAUSE_S = 0.5
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Acceptor:
    """Passes each accepted socket, set to non-blocking, to ``take`` on the running event loop."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        take: Callable[[socket.socket], None],
        has_room: Callable[[], bool],
        refusals: Refusals,
    ) -> None:
        """``has_room`` returns whether one more connection is allowed."""
        self._sockets = list(sockets)
        self._take = take
        self._has_room = has_room
        self._refusals = refusals
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._spare = _spare()
        self._trouble = ""
        self._loop = asyncio.get_running_loop()
        for each in self._sockets:
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Stop accepting and close the listening sockets."""
        for pause in self._paused.values():
            pause.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets.clear()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                peer, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue  # the peer closed the connection before it was accepted
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR and self._refuse_next(listener, error):
                    continue
                self._pause(listener, error)
                return
            if not self._has_room():
                self._refusals.refused(peer_name(peer), "the connection limit is reached")
                peer.close()
                continue
            self._trouble = ""
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._take(peer)

    def _refuse_next(self, listener: socket.socket, error: OSError) -> bool:
        """Accept a connection with the spare descriptor and close it. Return False if no descriptor is available."""
        spare, self._spare = self._spare, None
        if spare is None:
            return False
        os.close(spare)
        try:
            peer, _ = listener.accept()
            self._refusals.refused(peer_name(peer), str(error.strerror))
            peer.close()
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._spare = _spare()
        return True

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        """Stop watching the socket for a while, because waiting connections would wake the event loop continuously."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            logger.error("cannot accept connections: %s", error)
        self._loop.remove_reader(listener)
        self._paused[listener] = self._loop.call_later(_PAUSE_S, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        del self._paused[listener]
        self._spare = self._spare if self._spare is not None else _spare()
        self._loop.add_reader(listener, self._accept, listener)


def _spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def peer_name(peer: socket.socket) -> str:
    """Return ``host:port`` of the peer."""
    try:
        return "{}:{}".format(*peer.getpeername()[:2])
    except OSError:
        return "a disconnected peer"
