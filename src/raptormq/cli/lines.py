"""Reads an input line by line as it arrives.

Lines of a slow pipe are returned as they arrive; files are read in large blocks. The event loop blocks for one read of
a file at most, and an interrupt ends a wait at once, which a thread blocked in ``read`` would not allow.
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
"""Larger than any message that brokers accept. It bounds the memory for an endless line."""


async def read_lines(source: BinaryIO) -> AsyncIterator[list[bytes]]:
    """Yield the lines completed by each read, without line feeds; at the end also an unterminated last line.

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
    """Return whether the event loop can watch the descriptor. Files and /dev/null are always readable, and it refuses
    them.
    """
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
