"""Free TCP ports of the loopback interface. A broker needs several in a fixed arrangement (see `servers`)."""

from __future__ import annotations

import contextlib
import random
import socket
import threading

_TRIES = 200
_BELOW = 32_768
"""Where Linux begins with the ports that it gives to outgoing connections."""
_guard = threading.Lock()
_given: set[int] = set()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, of those below."""
    return free_port_run(before=0, after=0)


def free_port_run(before: int, after: int) -> int:
    """A free port p whose neighbours p - before … p + after are free as well; raises OSError when none is found.

    Below those of outgoing connections: it takes a broker seconds until it binds all of them, and when it starts again
    they still have to be free. No port is given out twice by one process.
    """
    numbers = random.SystemRandom()
    for _ in range(_TRIES):
        port = numbers.randrange(10_000, _BELOW - after)
        run = range(port - before, port + after + 1)
        with _guard:
            if _given.isdisjoint(run) and all(map(_is_free, run)):
                _given.update(run)
                return port
    raise OSError(f"no run of {before + after + 1} free ports found in {_TRIES} tries")


def _is_free(port: int) -> bool:
    if not 1024 < port < 65536:
        return False
    with contextlib.closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
