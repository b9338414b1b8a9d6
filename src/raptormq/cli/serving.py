"""Running servers in the foreground: start, say ``ready``, wait for a signal, stop.

Shared by ``dev``, ``namesrv`` and ``broker``. Standard output carries exactly one line, the one that starts with
``ready``; the log goes to standard error.
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
"""A stop that takes longer is cut short: whoever asked for it kills the process after 5 s."""

_YOUNG_OBJECTS = 20_000
"""Objects made and not yet freed before the collector looks at them. Servers make next to no cycles, and what waits
(held pulls, requests under way) is no garbage: by default it would be looked through after every 700."""

F = TypeVar("F", bound=Callable[..., Any])

LOG_LEVELS = ("debug", "info", "warning", "error")

Addresses = dict[str, str]
"""What serves where, in the order of the ready line: ``{"namesrv": "127.0.0.1:9876"}``."""

Opening = Callable[[], AbstractAsyncContextManager[Addresses]]


class Startable(Protocol):
    """A server: the name server's and the broker's service objects."""

    async def start(self) -> None:
        """Serve from now on."""

    async def stop(self) -> None:
        """Stop serving."""


class StopTimedOut(RaptorMQError):
    """The servers did not stop in time."""


def serve(opening: Opening) -> None:
    """Run what ``opening()`` starts until SIGTERM or SIGINT, with as many descriptors as the system allows.

    ``opening()`` is an asynchronous context manager: entered when everything serves, with the addresses to print by
    name, and left to stop it all.

    Raises:
        RaptorMQError: whatever kept the servers from starting or from stopping.
    """
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(opening))


@asynccontextmanager
async def running(server: Startable) -> AsyncIterator[None]:
    """Run ``server`` inside the block."""
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
        help="Least severe messages to write to standard error.",
    )


async def _serve(opening: Opening) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with asyncio.timeout(None) as limit, opening() as addresses:
            if not stop.is_set():
                gc.freeze()  # what was loaded stays: no collection need look at it again
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
