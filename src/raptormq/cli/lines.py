"""Cutting an input into lines as it arrives, without waiting for its end.

A pipe that is written slowly is sent as it comes; a file is read in large pieces. Nothing blocks the event loop for
longer than a read from a file does, and an interrupt ends a wait at once (a thread that sits in ``read`` could not be
ended).
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
"""No broker takes a message of this size; an endless line must not fill the memory."""


async def read_lines(source: BinaryIO) -> AsyncIterator[list[bytes]]:
    """Yield the lines that each read completes, without their line feed; at the end also an unfinished last line.

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
    """Files and /dev/null are always readable, and the event loop refuses to watch them."""
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
