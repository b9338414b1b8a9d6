"""Runs servers in the foreground for ``dev``, ``namesrv`` and ``broker``: start, print ``ready``, wait for a signal,
stop.

Standard output contains exactly one line, which starts with ``ready``. The log is written to standard error.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

import click
import uvloop

from raptormq.errors import RaptorMQError
from raptormq.transport.descriptors import raise_descriptor_limit

STOP_TIMEOUT_S = 4.5
"""Time limit of a stop in seconds. The process is usually killed 5 s after the signal."""

_YOUNG_OBJECTS = 20_000
"""Threshold of the garbage collector. Servers create few reference cycles, and pending requests are not garbage. With
the default of 700 allocations the collector would visit them too often."""

F = TypeVar("F", bound=Callable[..., Any])

LOG_LEVELS = ("debug", "info", "warning", "error")

Addresses = dict[str, str]
"""Addresses by server, in the order of the ready line: ``{"namesrv": "127.0.0.1:9876"}``."""

Opening = Callable[[], AbstractAsyncContextManager[Addresses]]


class Startable(Protocol):
    """A server: name server or broker."""

    async def start(self) -> None:
        """Start serving."""

    async def stop(self) -> None:
        """Stop serving."""


class StopTimedOut(RaptorMQError):
    """The servers did not stop within :data:`STOP_TIMEOUT_S`."""


def serve(opening: Opening) -> None:
    """Run the servers of ``opening()`` until SIGTERM or SIGINT.

    The soft limit of open files is raised to the hard limit. ``opening()`` returns an asynchronous context manager. On
    entry it starts the servers and returns the addresses to print. On exit it stops the servers.

    Raises:
        RaptorMQError: the servers failed to start or stop.
    """
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(opening))


@asynccontextmanager
async def running(server: Startable) -> AsyncIterator[None]:
    """Run ``server`` during the block."""
    await server.start()
    try:
        yield
    finally:
        await server.stop()


def log_level_option(default: str) -> Callable[[F], F]:
    """Return the decorator for ``--log-level``."""
    return click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        default=default,
        show_default=True,
        envvar="RAPTORMQ_LOG_LEVEL",
        help="Minimum level of log messages.",
    )


async def _serve(opening: Opening) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with asyncio.timeout(None) as limit, opening() as addresses:
            if not stop.is_set():
                gc.freeze()  # exclude the objects of loaded modules from collections
                gc.set_threshold(_YOUNG_OBJECTS)
                _announce(addresses)
                await stop.wait()
            limit.reschedule(loop.time() + STOP_TIMEOUT_S)
    except TimeoutError:
        if not limit.expired():
            raise
        raise StopTimedOut(f"did not stop within {STOP_TIMEOUT_S} s") from None


def _announce(addresses: Addresses) -> None:
    click.echo("ready " + " ".join(f"{name}={address}" for name, address in addresses.items()))
