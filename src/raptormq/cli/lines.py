"""Reads lines of an input as they arrive.

The event loop waits for pipes and terminals, so an interrupt takes effect immediately. A thread that blocks in ``read``
could not be interrupted. Files are read in blocks of :data:`READ_BYTES`, each of which blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from typing import BinaryIO

from raptormq.errors import MessageError

READ_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20
"""Maximum length of a line, which limits the memory. It exceeds the maximum message size of brokers."""


async def read_lines(source: BinaryIO) -> AsyncIterator[list[bytes]]:
    """Yield the lines that each read completes, without line feeds. The last line may have no line feed.

    Raises:
        MessageError: a line is longer than :data:`MAX_LINE_BYTES`.
    """
    rest: list[bytes] = []
    rest_bytes = 0
    complete = 0
    async for data in _pieces(source.fileno()):
        first, *others = data.split(b"\n")
        rest.append(first)
        rest_bytes += len(first)
        if rest_bytes > MAX_LINE_BYTES:
            raise MessageError(f"line {complete + 1} is longer than {MAX_LINE_BYTES} bytes")
        if others:
            yield [b"".join(rest), *others[:-1]]
            complete += len(others)
            rest = [others[-1]]
            rest_bytes = len(others[-1])
    if rest_bytes:
        yield [b"".join(rest)]


async def _pieces(descriptor: int) -> AsyncIterator[bytes]:
    wait = _can_be_waited_for(descriptor)
    while True:
        if wait:
            await _readable(descriptor)
        data = os.read(descriptor, READ_BYTES)
        if not data:
            return
        yield data
        if not wait:
            await asyncio.sleep(0)


def _can_be_waited_for(descriptor: int) -> bool:
    """Return whether the event loop can wait for the descriptor. It refuses regular files and /dev/null."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
