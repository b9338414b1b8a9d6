"""A save to a JSON file whose caller is cancelled while its thread writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from raptormq.json_file import JsonFile

LIMIT_S = 60.0


async def cancelled_while_it_writes(
    file: JsonFile, save: Callable[[], Coroutine[Any, Any, None]], following: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Cancel ``save`` during its write of ``file``, and call ``following`` once it has ended. Its write ends as late as
    possible: when ``following`` has ended too, unless that waits for it. On return, all writes have ended.
    """
    write, began, released, ended = file.save, threading.Event(), threading.Event(), threading.Event()

    def held(value: dict[str, Any]) -> None:
        file.save = write  # type: ignore[method-assign]
        began.set()
        assert released.wait(LIMIT_S)
        write(value)
        ended.set()

    file.save = held  # type: ignore[method-assign]

    async def next_save() -> None:
        await asyncio.wait([saving])
        await following()

    saving = asyncio.create_task(save())
    assert await asyncio.to_thread(began.wait, LIMIT_S)
    saving.cancel()
    after = asyncio.create_task(next_save())
    if not await _ends_without_the_write(after):
        assert not saving.done()
    released.set()
    await after
    assert await asyncio.to_thread(ended.wait, LIMIT_S)


async def _ends_without_the_write(task: asyncio.Task[None]) -> bool:
    """Return whether ``task`` ends although the write is held. A task that waits for the write does not take part in
    the hundred calls of a thread meanwhile; one that does not wait ends long before them.
    """
    for _ in range(100):
        if task.done():
            return True
        await asyncio.to_thread(bool)
    return task.done()
