"""Accepts connections on listening sockets, as long as there is room for them; who comes beyond that is closed at once.

Servers of asyncio and uvloop know no such limit. When a process runs out of descriptors the one tries, and logs,
thousands of times, and the other may close the listening socket for good without a word. :class:`Acceptor` gives up a
spare descriptor for a moment then, so that the newcomer can be accepted and closed. Where that fails, too, or memory is
short, the socket is left alone for a while, and what waits in the kernel's queue goes on waiting.

:class:`Refusals` counts the connections that are refused, and tells of them in the log, but not of each: whoever opens
thousands must not fill the disk with lines, too.
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
"""At least so long between two lines."""


class Refusals:
    """The refused connections of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` counts seconds."""
        self._clock = clock
        self._told_at = -QUIET_S
        self._told_count = 0
        self.count = 0
        """Since the start."""

    def refused(self, peer: str, reason: str) -> None:
        """A connection of ``peer`` was closed at once."""
        self.count += 1
        now = self._clock()
        if now - self._told_at >= QUIET_S:
            logger.warning(
                "refused %d connections, the last one of %s: %s", self.count - self._told_count, peer, reason
            )
            self._told_at, self._told_count = now, self.count


_ACCEPTS_PER_TURN = 64
_PAUSE_S = 0.5
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Acceptor:
    """Hands each accepted socket, which does not block, to ``take``, on the loop that runs."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        take: Callable[[socket.socket], None],
        has_room: Callable[[], bool],
        refusals: Refusals,
    ) -> None:
        """``has_room`` says whether one more connection is allowed."""
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
        """Accept nothing more; the sockets are closed."""
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
                continue  # gone before it was taken
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR and self._refuse_next(listener, error):
                    continue
                self._pause(listener, error)
                return
            if not self._has_room():
                self._refusals.refused(peer_name(peer), "as many are open as may be")
                peer.close()
                continue
            self._trouble = ""
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._take(peer)

    def _refuse_next(self, listener: socket.socket, error: OSError) -> bool:
        """Accept with the spare descriptor, and close; False when there is none, or another thread has got it."""
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
        """What waits in the kernel would wake the loop without end."""
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
    """Return ``host:port`` of the other end."""
    try:
        return "{}:{}".format(*peer.getpeername()[:2])
    except OSError:
        return "a peer that is gone"
