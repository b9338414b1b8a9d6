"""Checkpoints: what they say is true after a power cut, whatever became durable before them, and whoever makes them."""

from __future__ import annotations

import pytest

from raptormq.storage.filesystem import read_file
from raptormq.storage.memory_filesystem import MemoryFileSystem
from tests.storage.batch_stores import batch
from tests.storage.stores import Clock, Inline, bodies, message, open_store, put, queue_bounds, read_queue


@pytest.mark.parametrize("is_batch", [False, True])
async def test_queues_that_are_durable_before_the_log_are_cut_with_it(is_batch: bool) -> None:
    """The timer that makes checkpoints does not flush the log."""
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
    await store._opened.housekeeping.make_durable(Inline())
    left = volume.after_power_cut()
    folder = f"/store/{'batch' if is_batch else ''}consumequeue/topic/0"
    assert any(read_file(left, f"{folder}/{left.names(folder)[1]}")), "items of what the log has lost"
    for _ in range(2):
        store = open_store(left, clock, batch_queue_file_size=46 * 20, index_enabled=False)
        assert queue_bounds(store, "topic", 0) == (0, 15)
        assert bodies(read_queue(store))[-1] == "14"
        left = left.after_kill()
    send(100)
    assert bodies(read_queue(store)) == [str(number) for number in (*range(15), *range(100, 115))]
