"""Queue files: few are open, all are sparse and of full size, and a queue can have any number of files."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from raptormq.errors import ConfigError, StorageError
from raptormq.storage import MessageStore, StoreConfig
from raptormq.storage.queue.consume_queue import ITEM_BYTES
from raptormq.storage.read.options import ReadOptions
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import bodies, message, open_store, put, queue_bounds, read_queue

MANY = 5000
"""Number of topics. With 8 queues each these are the 40,000 queues that one broker must support."""


def test_a_queue_goes_from_file_to_file() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume, segment_size=1 << 16)
    put(store, *(message(str(number)) for number in range(19)))
    store._queues.flush(1)
    put(store, *(message(str(number)) for number in range(19, 45)))
    assert bodies(read_queue(store)) == [str(number) for number in range(45)]
    store._queues.flush(1)
    assert volume.names("/store/consumequeue/topic/0") == [f"{start:020d}" for start in (0, 400, 800)]
    assert bodies(read_queue(store)) == [str(number) for number in range(45)]
    put(store, message("45"))
    assert bodies(read_queue(store)) == [str(number) for number in range(46)]
    store.close()
    assert len(read_queue(open_store(volume, segment_size=1 << 16))) == 46


def test_a_read_ends_with_its_file_and_the_next_goes_on() -> None:
    store = open_store(segment_size=1 << 16)
    put(store, *(message(str(number)) for number in range(30)))
    store._queues.flush(1)
    result = store.get_messages("topic", 0, 15, ReadOptions(32, 1 << 20))
    assert (result.message_count, result.next_offset) == (5, 20)
    assert store.get_messages("topic", 0, 20, ReadOptions(32, 1 << 20)).message_count == 10


def test_the_least_recently_used_file_is_closed() -> None:
    store = open_store(max_open_queue_files=3)
    for _ in range(3):
        put(store, *(message(str(number), queue_id=number) for number in range(10)))
        store._queues.flush(10)
        assert store.stats().open_queue_files == 3
    for number in range(10):
        assert bodies(read_queue(store, queue_id=number)) == [str(number)] * 3


def test_a_missing_queue_file_is_an_error_and_not_an_end() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, message("a"))
    store.close()
    store = open_store(volume)
    store._queues.files.close()
    volume.remove_tree("/store/consumequeue/topic/0")
    with pytest.raises(StorageError, match=r"cannot read .*/consumequeue/topic/0/0+: No such file"):
        store.get_messages("topic", 0, 0, ReadOptions(32, 1 << 20))


def test_files_are_sparse_and_have_the_size_of_the_reference(tmp_path: Path) -> None:
    store = MessageStore(StoreConfig(tmp_path, segment_size=1 << 20))
    store.open()
    put(store, message("a"))
    store.close()
    stat = (tmp_path / "consumequeue" / "topic" / "0" / ("0" * 20)).stat()
    assert stat.st_size == 6_000_000 == 300_000 * ITEM_BYTES
    assert stat.st_blocks * 512 < 100_000
    log = (tmp_path / "commitlog" / ("0" * 20)).stat()
    assert (log.st_size, log.st_blocks * 512 >= 1 << 20) == (1 << 20, True)


def test_the_size_of_a_file_is_whole_items() -> None:
    assert StoreConfig(Path("/store"), queue_file_size=6_000_001).queue_file_size == 6_000_020
    with pytest.raises(ConfigError, match="mappedFileSizeConsumeQueue=0 is not above 0"):
        StoreConfig(Path("/store"), queue_file_size=0)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_40_000_queues_take_little_memory_and_few_descriptors() -> None:
    store = open_store(segment_size=1 << 25, max_open_queue_files=100)
    put(store, message("first"))
    before = resident_bytes()
    for topic in range(MANY):
        put(store, *(message("x", f"topic-{topic}", queue_id) for queue_id in range(8)))
    queues = store.stats().queues
    assert queues == 8 * MANY + 1
    assert (resident_bytes() - before) / queues < 2000
    assert all(queue_bounds(store, f"topic-{topic}", 7) == (0, 1) for topic in range(MANY))


def test_hundreds_of_queues_on_a_disk_share_few_descriptors(tmp_path: Path) -> None:
    config = StoreConfig(tmp_path, segment_size=1 << 22, max_open_queue_files=20)
    store = MessageStore(config)
    store.open()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        put(store, *(message(str(number), queue_id=number) for number in range(500)))
        store._queues.flush(1000)
    assert len(os.listdir("/proc/self/fd")) - before <= 21
    store.close()
    store = MessageStore(config)
    assert store.open().clean
    assert len(os.listdir("/proc/self/fd")) - before <= 21
    assert all(bodies(read_queue(store, queue_id=number)) == [str(number)] * 2 for number in range(500))
    store.close()
