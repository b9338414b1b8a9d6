"""Free TCP ports of the loopback interface that no other test process takes meanwhile.

They are below those that Linux assigns to outgoing connections and to port 0, so that they stay free until they are
used. A lock of one byte of a common file reserves a port among the test processes of a user; the offset of the byte is
the number of the port. One descriptor is enough for all reservations of a process, which end with it. Threads of a
process exclude each other by a lock of their own, because the locks of a file do not.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_FIRST = 20_000
_END = 32_768
_TRIES = 200
BROKER = 2, 1
"""Ports before and after the one of a broker: that of RocketMQ's VIP channel, and that of the replication."""
_numbers = random.SystemRandom()
_own: set[int] = set()
"""Ports that this process has reserved: its own locks do not exclude it."""
_own_guard = threading.Lock()


@contextmanager
def reserved_port() -> Iterator[int]:
    """Return a free port of 127.0.0.1 that is reserved until the end of the block, with those of a broker around it."""
    before, after = BROKER
    port = free_port_run(before, after)
    try:
        yield port
    finally:
        for each in range(port - before, port + after + 1):
            _release(each)


def free_port() -> int:
    """Return a free port of 127.0.0.1 that is reserved until this process ends, with those of a broker around it."""
    return free_port_run(*BROKER)


def free_port_run(before: int, after: int) -> int:
    """Return a port p with free ports p - before … p + after; raises OSError if there is none.

    A broker needs several ports in a fixed arrangement. They are reserved until this process ends, because a broker
    takes seconds to bind all of them, and they must still be free at its restart.
    """
    for _ in range(_TRIES):
        port = _numbers.randrange(_FIRST + before, _END - after)
        reserved: list[int] = []
        for each in range(port - before, port + after + 1):
            if not _reserve(each):
                break
            reserved.append(each)
        else:
            return port
        for each in reserved:
            _release(each)
    raise OSError(f"no run of {before + after + 1} free ports found in {_TRIES} tries")


def _reserve(port: int) -> bool:
    """Reserve a port. Return False if it is in use or reserved."""
    with _own_guard:
        if port in _own:
            return False
        try:
            fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        _own.add(port)
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        _release(port)
        return False
    return True


def _release(port: int) -> None:
    with _own_guard:
        _own.discard(port)
        fcntl.lockf(_locks(), fcntl.LOCK_UN, 1, port)


@cache
def _locks() -> int:
    """Return the descriptor of the common file. It must stay open: closing it would release all locks."""
    path = Path(tempfile.gettempdir()) / f"raptormq-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
