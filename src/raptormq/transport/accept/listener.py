"""The listening sockets of a server, and the creation of connections for accepted sockets.

:func:`listen` creates the listening sockets for an address of this host.

:class:`Listener` creates the connections. If the server supports TLS, it detects TLS connections by their first byte
(RocketMQ ``TlsModeHandler``). A TLS connection starts with a handshake record, type 0x16. A frame of RocketMQ starts
with the high byte of its length, which is 0 for every frame within the size limit. The byte is read with MSG_PEEK, so
it stays in the socket::

    accept --> first byte there? --no--> wait for it, at most ``silence_seconds``
                  |
                  +-- 0x16 --> handshake, at most 10 s --> Connection
                  `-- else --> Connection; refused where the server enforces TLS

Each peer has its own callback and deadline, so no peer delays another one. Without TLS the first byte is not awaited.

:mod:`~raptormq.transport.accept.acceptor` accepts sockets up to the connection limit.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.transport.accept.acceptor import Acceptor, Refusals, peer_name
from raptormq.transport.connection import TLS_HANDSHAKE, Connection
from raptormq.transport.tls import HANDSHAKE_S, SHUTDOWN_S, ServerTls

logger = get_logger(__name__)


BACKLOG = 1024
_ALL = "::"


async def listen(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for every address of ``host``, all on one port (``port``, or a free one for 0).

    ``::`` means all addresses of the host, including IPv4 ones, as in Java.

    Raises:
        ConfigError: the address is in use or does not belong to this host.
    """
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []
    try:
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            bound = sockets[0].getsockname()[1] if sockets else port
            sockets.append(_listener(family, (address[0], bound, *address[2:]), both=host == _ALL))
    except (OSError, OverflowError, UnicodeError) as error:
        for each in sockets:
            each.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
    return sockets


def _listener(family: int, address: tuple[object, ...], *, both: bool) -> socket.socket:
    # asyncio sets TCP_NODELAY on accepted sockets only if the protocol is IPPROTO_TCP; uvloop always sets it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


class Listener:
    """Creates a :class:`Connection` for each accepted socket; with ``tls`` after its first byte has arrived."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        tls: ServerTls | None,
        make: Callable[[], Connection],
        has_room: Callable[[], bool],
        refusals: Refusals,
        silence_seconds: float,
    ) -> None:
        """``has_room`` returns whether one more connection is allowed.

        Raises:
            ConfigError: the certificate, the key or the CA certificates cannot be used.
        """
        self._contexts = tls.context() if tls is not None else None
        self._enforcing = tls is not None and tls.refuses_plain
        self._make = make
        self._silence_seconds = silence_seconds
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        self._shaking: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(sockets, self._take, has_room, refusals)

    @property
    def waiting_count(self) -> int:
        """Number of accepted sockets that have no connection yet."""
        return len(self._silent) + len(self._shaking)

    async def close(self) -> None:
        """Stop listening and close accepted sockets that have no connection yet."""
        self._acceptor.close()
        for peer in list(self._silent):
            self._drop(peer)
        tasks = list(self._shaking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, peer: socket.socket) -> None:
        if self._contexts is None:
            self._hand_over(peer, tls=False)
        else:
            self._look(peer)

    def _look(self, peer: socket.socket) -> None:
        try:
            first = peer.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            if peer not in self._silent:
                self._silent[peer] = self._loop.call_later(self._silence_seconds, self._drop, peer)
                self._loop.add_reader(peer, self._look, peer)
            return
        except OSError:
            first = b""
        if not first:
            self._drop(peer)
        elif first == TLS_HANDSHAKE:
            self._hand_over(peer, tls=True)
        elif self._enforcing:
            logger.info("refusing %s: its connection is not encrypted", peer_name(peer))
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
        name = peer_name(peer)
        try:
            if tls and self._contexts is not None:
                await self._loop.connect_accepted_socket(
                    self._make,
                    peer,
                    ssl=self._contexts.current(),
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
            else:
                await self._loop.connect_accepted_socket(self._make, peer)
        except OSError as error:  # includes ssl.SSLError
            logger.info("refusing %s: %s", name, error)
            peer.close()
        except BaseException:
            peer.close()
            raise
