"""Running one administrative call from a command that is not asynchronous."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from raptormq.cli.connecting import client_config
from raptormq.cli.hints import explaining
from raptormq.client import AdminClient
from raptormq.logs import get_logger

T = TypeVar("T")


def with_admin(name_servers: str, timeout_s: float, run: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Return what ``run`` returns for an administration client.

    Raises:
        CommandFailed: a server cannot be reached; the text says what to do.
        RaptorMQError: a server refuses.
    """
    config = client_config(name_servers, timeout_s)
    # Without a handler warnings go to the standard error; what fails for good is in the one line of the error.
    get_logger("raptormq").addHandler(logging.NullHandler())

    async def call() -> T:
        async with AdminClient(client_config=config) as admin:
            return await run(admin)

    with explaining(name_servers):
        return asyncio.run(call())
