"""Stack traces of threads and tasks as text."""

from __future__ import annotations

import asyncio
import threading

from raptormq.client.consumer.inspection import MAX_TASKS, dump_stacks
from raptormq.client.consumer.listener_call import EagerCoroutine


async def a_long_wait(event: asyncio.Event) -> None:
    await inside(event)


async def inside(event: asyncio.Event) -> None:
    await event.wait()


def blocked(started: threading.Event, end: threading.Event) -> None:
    started.set()
    end.wait()


async def test_threads_and_tasks_are_named_with_what_they_wait_in() -> None:
    started, end, event = threading.Event(), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=blocked, args=(started, end), name="the blocked one")
    thread.start()
    started.wait()
    task = asyncio.create_task(a_long_wait(event), name="the waiting one")
    await asyncio.sleep(0)
    lines = dump_stacks().splitlines()
    end.set()
    event.set()
    thread.join()
    await task
    of_thread = [line for line in lines if line.startswith("the blocked one ")]
    assert of_thread[0].split() == ["the", "blocked", "one", "TID:", str(thread.ident)]
    assert any(" blocked(" in line and __file__ in line for line in of_thread[1:])
    of_task = [line for line in lines if line.startswith("the waiting one ")]
    assert of_task[0].endswith("  TASK")
    calls = [line.removeprefix("the waiting one").split("(")[0].strip() for line in of_task[1:]]
    assert calls == ["Event.wait", "inside", "a_long_wait"]


async def test_what_a_listener_waits_in_is_told() -> None:
    async def works(event: asyncio.Event) -> None:
        await EagerCoroutine(a_long_wait(event))

    event = asyncio.Event()
    task = asyncio.create_task(works(event), name="the worker")
    await asyncio.sleep(0)
    lines = [line for line in dump_stacks().splitlines() if line.startswith("the worker ")]
    event.set()
    await task
    calls = [line.removeprefix("the worker").split("(")[0].strip().split(".")[-1] for line in lines[1:]]
    assert calls == ["wait", "inside", "a_long_wait", "works"]


async def test_very_many_tasks_are_counted() -> None:
    event = asyncio.Event()
    own = len(asyncio.all_tasks())
    tasks = [asyncio.create_task(a_long_wait(event)) for _ in range(MAX_TASKS - own)]
    await asyncio.sleep(0)
    assert "more task" not in dump_stacks()
    tasks.append(asyncio.create_task(a_long_wait(event)))
    await asyncio.sleep(0)
    lines = dump_stacks().splitlines()
    event.set()
    await asyncio.gather(*tasks)
    assert sum(line.endswith("  TASK") for line in lines) == MAX_TASKS
    assert lines[-1] == "and 1 more tasks"
