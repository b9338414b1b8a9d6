"""Runs asynchronous administration requests from a synchronous command."""

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
    """Return the result of ``run`` with an administration client.

    Raises:
        CommandFailed: a server cannot be reached. The message contains a hint.
        RaptorMQError: a server refuses the request.
    """
    config = client_config(name_servers, timeout_s)
    # Without a handler, logging writes warnings to standard error. The error line of the command reports a failure.
    get_logger("raptormq").addHandler(logging.NullHandler())

    async def call() -> T:
        async with AdminClient(client_config=config) as admin:
            return await run(admin)

    with explaining(name_servers):
        return asyncio.run(call())
