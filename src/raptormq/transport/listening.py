"""Listening sockets for an address of this host."""

from __future__ import annotations

import asyncio
import socket

from raptormq.errors import ConfigError

BACKLOG = 1024
_ALL = "::"


async def listen(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for every address of ``host``, all on one port (``port``, or a free one for 0).

    ``::`` is all addresses of the host, IPv4 ones included, as in Java.

    Raises:
        ConfigError: the address is in use or not ours.
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
    # The protocol is named because asyncio sets TCP_NODELAY only then on what is accepted; uvloop does so in any case.
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
