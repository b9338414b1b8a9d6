"""Free TCP ports of the loopback interface. A broker needs several ports in a fixed arrangement (see `servers`)."""

from __future__ import annotations

import contextlib
import random
import socket
import threading

_TRIES = 200
_BELOW = 32_768
"""First port that Linux assigns to outgoing connections."""
_guard = threading.Lock()
_given: set[int] = set()


def free_port() -> int:
    """Return a free port of 127.0.0.1 below those of outgoing connections."""
    return free_port_run(before=0, after=0)


def free_port_run(before: int, after: int) -> int:
    """Return a port p with free ports p - before … p + after; raises OSError if there is none.

    The ports are below those of outgoing connections, because a broker takes seconds to bind all of them, and they must
    still be free at its restart. A process never returns a port twice.
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
