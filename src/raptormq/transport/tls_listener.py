"""Accepts plain and TLS connections on one port, told apart by their first byte (RocketMQ ``TlsModeHandler``).

A TLS connection starts with a handshake record, type 0x16; a frame of RocketMQ starts with the high byte of its length,
which is 0 for every frame that is not too long. The byte is looked at without being taken out of the socket::

    accept --> first byte there? --no--> wait for it, at most ``idle_seconds``
                  |
                  +-- 0x16 --> handshake, at most 10 s --> Connection
                  `-- else --> Connection; refused where the server enforces TLS

Nothing here waits for a peer: each has a callback and a deadline of its own. Only servers that speak TLS listen this
way; without, the loop's own server accepts faster.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from raptormq.logs import get_logger
from raptormq.transport.connection import TLS_HANDSHAKE, Connection
from raptormq.transport.tls import HANDSHAKE_S, SHUTDOWN_S, ServerTls

logger = get_logger(__name__)

_ACCEPTS_PER_TURN = 64
_PAUSE_S = 1.0


class TlsListener:
    """Makes a :class:`Connection` of every peer that has said its first byte."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        tls: ServerTls,
        make: Callable[[], Connection],
        has_room: Callable[[], bool],
        idle_seconds: float,
    ) -> None:
        """``has_room`` says whether one more connection is allowed.

        Raises:
            ConfigError: certificate, key or authorities cannot be used.
        """
        self._contexts = tls.context()
        self._enforcing = tls.enforcing
        self._sockets = list(sockets)
        self._make = make
        self._has_room = has_room
        self._idle_seconds = idle_seconds
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        self._shaking: set[asyncio.Task[None]] = set()
        self._paused: set[asyncio.TimerHandle] = set()
        self._loop = asyncio.get_running_loop()
        for each in self._sockets:
            self._loop.add_reader(each, self._accept, each)

    @property
    def waiting_count(self) -> int:
        """Peers that have not become connections yet."""
        return len(self._silent) + len(self._shaking)

    async def close(self) -> None:
        """Stop listening and drop who has not become a connection."""
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets.clear()
        for pause in self._paused:
            pause.cancel()
        for peer in list(self._silent):
            self._drop(peer)
        tasks = list(self._shaking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                peer, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue  # gone before it was taken
            except OSError as error:
                self._pause(listener, error)
                return
            if not self._has_room():
                logger.warning("refusing %s: too many connections are open", _name(peer))
                peer.close()
                continue
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._look(peer)

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        """Out of descriptors or memory: what waits in the kernel would wake the loop without end."""
        logger.error("cannot accept connections: %s", error)
        self._loop.remove_reader(listener)
        timer = self._loop.call_later(_PAUSE_S, self._resume, listener)
        self._paused = {each for each in self._paused if not each.cancelled() and each.when() > self._loop.time()}
        self._paused.add(timer)

    def _resume(self, listener: socket.socket) -> None:
        self._loop.add_reader(listener, self._accept, listener)

    def _look(self, peer: socket.socket) -> None:
        try:
            first = peer.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            if peer not in self._silent:
                self._silent[peer] = self._loop.call_later(self._idle_seconds, self._drop, peer)
                self._loop.add_reader(peer, self._look, peer)
            return
        except OSError:
            first = b""
        if not first:
            self._drop(peer)
        elif first == TLS_HANDSHAKE:
            self._hand_over(peer, tls=True)
        elif self._enforcing:
            logger.info("refusing %s: its connection is not encrypted", _name(peer))
            self._drop(peer)
        else:
            self._hand_over(peer, tls=False)

    def _drop(self, peer: socket.socket) -> None:
        self._heard(peer)
        peer.close()

    def _heard(self, peer: socket.socket) -> None:
        timer = self._silent.pop(peer, None)
        if timer is not None:
            timer.cancel()
            self._loop.remove_reader(peer)

    def _hand_over(self, peer: socket.socket, *, tls: bool) -> None:
        self._heard(peer)
        task = self._loop.create_task(self._become_connection(peer, tls=tls))
        self._shaking.add(task)
        task.add_done_callback(self._shaking.discard)

    async def _become_connection(self, peer: socket.socket, *, tls: bool) -> None:
        name = _name(peer)
        try:
            if tls:
                await self._loop.connect_accepted_socket(
                    self._make,
                    peer,
                    ssl=self._contexts.current(),
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
            else:
                await self._loop.connect_accepted_socket(self._make, peer)
        except OSError as error:  # what TLS finds wrong is one, too
            logger.info("refusing %s: %s", name, error)
            peer.close()
        except BaseException:
            peer.close()
            raise


def _name(peer: socket.socket) -> str:
    try:
        return "{}:{}".format(*peer.getpeername()[:2])
    except OSError:
        return "a peer that is gone"
