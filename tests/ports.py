"""Free TCP ports of the loopback interface that no other test process takes meanwhile.

They are below those that Linux assigns to outgoing connections and to port 0, so that they stay free until they are
used. An abstract socket with its number reserves a port among the test processes of this machine.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_FIRST = 20_000
_END = 32_768
_TRIES = 200
BROKER = 2, 1
"""Ports before and after the one of a broker: that of RocketMQ's VIP channel, and that of the replication."""
_numbers = random.SystemRandom()


@contextmanager
def reserved_port() -> Iterator[int]:
    """Return a free port of 127.0.0.1 that is reserved until the end of the block, with those of a broker around it."""
    with ExitStack() as stack:
        port, reservations = _reserve_run(*BROKER)
        for each in reservations:
            stack.enter_context(each)
        yield port


def free_port() -> int:
    """Return a free port of 127.0.0.1 that is reserved until this process ends, with those of a broker around it."""
    return free_port_run(*BROKER)


def free_port_run(before: int, after: int) -> int:
    """Return a port p with free ports p - before … p + after; raises OSError if there is none.

    A broker needs several ports in a fixed arrangement. They are reserved until this process ends, because a broker
    takes seconds to bind all of them, and they must still be free at its restart.
    """
    port, reservations = _reserve_run(before, after)
    for each in reservations:
        each.detach()  # nobody closes it
    return port


def _reserve_run(before: int, after: int) -> tuple[int, list[socket.socket]]:
    for _ in range(_TRIES):
        port = _numbers.randrange(_FIRST, _END - after)
        reservations: list[socket.socket] = []
        for each in range(port - before, port + after + 1):
            if (reservation := _reserve(each)) is None:
                break
            reservations.append(reservation)
        else:
            return port, reservations
        for reservation in reservations:
            reservation.close()
    raise OSError(f"no run of {before + after + 1} free ports found in {_TRIES} tries")


def _reserve(port: int) -> socket.socket | None:
    """Return what holds the reservation of a port until it is closed; None if the port is in use or reserved."""
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0raptormq-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        reservation.close()
        return None
    return reservation
