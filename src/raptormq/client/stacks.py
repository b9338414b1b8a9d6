"""Where the threads and tasks of this process stand: what `mqadmin consumerStatus -s` shows of a consumer.

A text as RocketMQ's `UtilAll.jstack` makes it of threads: a line for each, then one for each call, innermost first.
Neighbour: `questions` sends it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable
from types import CoroutineType, FrameType

from raptormq.client.first_step import FirstStep

MAX_TASKS = 500
"""Tasks described; of the others only the number is told."""
_MAX_CALLS = 50


def describe_stacks() -> str:
    """Describe all threads, and the tasks of the running loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines: list[str] = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - nothing else tells
        lines += _described(names.get(ident, "?"), f"TID: {ident}", _callers(frame))
    tasks = asyncio.all_tasks()
    for task in sorted(tasks, key=asyncio.Task.get_name)[:MAX_TASKS]:
        lines += _described(task.get_name(), "TASK", _awaiting(task))
    if len(tasks) > MAX_TASKS:
        lines.append(f"and {len(tasks) - MAX_TASKS} more tasks")
    return "\n".join(lines) + "\n"


def _callers(frame: FrameType | None) -> Iterable[FrameType]:
    for _ in range(_MAX_CALLS):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _awaiting(task: asyncio.Task[object]) -> Iterable[FrameType]:
    """The coroutines of a task that await each other, which `Task.get_stack` does not follow."""
    frames: list[FrameType] = []
    awaited: object = task.get_coro()
    while isinstance(awaited, CoroutineType) and awaited.cr_frame is not None and len(frames) < _MAX_CALLS:
        frames.append(awaited.cr_frame)
        awaited = awaited.cr_await
        if isinstance(awaited, FirstStep):  # a listener's
            awaited = awaited.coroutine
    return reversed(frames)


def _described(name: str, kind: str, frames: Iterable[FrameType]) -> list[str]:
    calls = [f"{name:<40}  {frame.f_code.co_qualname}({frame.f_code.co_filename}:{frame.f_lineno})" for frame in frames]
    return [f"{name:<40}  {kind}", *calls, ""]
