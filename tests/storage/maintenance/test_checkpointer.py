"""Checkpoints cover only durable data, after a power failure at any point and for every caller."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from raptormq.errors import DiskFull
from raptormq.files import read_file
from raptormq.storage.background import Background
from raptormq.storage.recovery.queue_check import load_ends
from tests.storage.batch_stores import batch
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, Inline, bodies, message, open_store, put, queue_bounds, read_queue, until


@pytest.mark.parametrize("is_batch", [False, True])
async def test_queues_that_are_durable_before_the_log_are_cut_with_it(is_batch: bool) -> None:
    """The timer that writes checkpoints does not flush the log."""
    volume, clock = MemoryFileSystem(), Clock()
    store = open_store(volume, clock, batch_queue_file_size=46 * 20, index_enabled=False)
    assert store._opened is not None
    if is_batch:
        store.set_batch_topic("topic")

    def send(first: int) -> None:
        for number in range(first, first + 15):
            clock.now += 1000
            put(store, batch([str(number)], topic="topic") if is_batch else message(str(number)))

    send(0)
    store.flush()
    send(15)
    await store._opened.maintenance.checkpointer.checkpoint(Inline(), force=True)
    left = volume.after_power_cut()
    folder = f"/store/{'batch' if is_batch else ''}consumequeue/topic/0"
    assert any(read_file(left, f"{folder}/{left.names(folder)[1]}")), "items of records that the log has lost"
    for _ in range(2):
        store = open_store(left, clock, batch_queue_file_size=46 * 20, index_enabled=False)
        assert queue_bounds(store, "topic", 0) == (0, 15)
        assert bodies(read_queue(store))[-1] == "14"
        left = left.after_kill()
    send(100)
    assert bodies(read_queue(store)) == [str(number) for number in (*range(15), *range(100, 115))]


async def test_files_of_a_checkpoint_that_nobody_awaits_any_more_belong_to_the_next_one() -> None:
    """The store is closed during the timer's checkpoint. Changes that this checkpoint could not save would be lost by a
    clean stop.
    """
    disk = MemoryFileSystem()
    volume = FaultyFileSystem(disk, Fault(1, "sync", "consumequeue", errno.ENOSPC))
    store = open_store(volume)
    put(store, message("a"))
    assert store._opened is not None
    failures: list[BaseException] = []

    class Thread(Inline):
        """Continues when its caller is cancelled."""

        async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            try:
                work(*args, **kwargs)
            except DiskFull as error:
                failures.append(error)
            await asyncio.Event().wait()

    checkpoint = asyncio.create_task(store._opened.maintenance.checkpointer.checkpoint(Thread(), force=True))
    await until(lambda: failures)
    checkpoint.cancel()
    store.close()
    left = disk.after_power_cut()
    assert left.names("/store/consumequeue/topic/0") == ["0" * 20]
    assert bodies(read_queue(open_store(left))) == ["a"]


async def test_a_checkpoint_comes_after_one_that_nobody_awaits_any_more() -> None:
    """Both write the same files, and a thread does not end when its caller is cancelled."""
    reached, release = threading.Event(), threading.Event()
    reached.set()

    class Slow(MemoryFileSystem):
        def replace(self, source: str, target: str) -> None:
            if source.endswith("/queueEnds.new") and not reached.is_set():
                reached.set()
                assert release.wait(30)
            super().replace(source, target)

    volume, clock = Slow(), Clock()
    store = open_store(volume, clock, index_enabled=False)
    assert store._opened is not None
    checkpointer = store._opened.maintenance.checkpointer
    background = Background(asyncio.get_running_loop())
    put(store, message("a"))
    reached.clear()
    given_up = asyncio.create_task(checkpointer.checkpoint(background, force=True))
    await until(reached.is_set)
    given_up.cancel()
    clock.now += 1
    put(store, message("b"))
    following = asyncio.create_task(checkpointer.checkpoint(background, force=True))
    await until(lambda: store._queues.files.unsynced and not store._queues._dirty)
    release.set()
    await following
    background.stop()
    assert store.stats().writable
    assert checkpointer.file.saved is not None
    assert checkpointer.file.saved.queue_timestamp == clock.now
    ends = load_ends(volume, "/store/queueEnds")
    assert ends is not None
    assert [end.max_offset for end in ends.queues] == [2]
