"""Mapping of the log, and the part of it that counts as memory of the broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raptormq.storage import MessageStore, StoreConfig
from raptormq.storage.log.commit_log import IDLE_MS
from raptormq.storage.read.options import ReadOptions
from tests.storage.stores import Clock, bodies, message, open_store, put, read_queue

MIB = 1 << 20


def mapped_kib(root: Path) -> int:
    """Return the size of the resident part of the mapped log below `root`."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            ours = str(root) in line
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


def test_only_hot_bytes_stay_in_the_memory_of_the_process(tmp_path: Path) -> None:
    store = MessageStore(StoreConfig(tmp_path, segment_size=4 * MIB, resident_bytes=MIB))
    store.open()
    slices = []
    for _ in range(10):
        put(store, *(message("x" * 100_000) for _ in range(10)))
        end = store.queue_end("topic", 0)
        result = store.get_messages("topic", 0, end - 5, ReadOptions(5, MIB))
        slices += [bytes(each) and each for each in result.buffers]
    before = mapped_kib(tmp_path)
    assert before > 3 * 1024
    store._log.release_mappings()
    assert mapped_kib(tmp_path) <= 2 * 1024 + 64, "also where slices are still in use"
    del slices[:-1]
    store._log.release_mappings()
    assert mapped_kib(tmp_path) <= 2 * 1024 + 64
    assert bytes(slices[0])[-100:].count(b"x") > 50
    assert len(read_queue(store)) == 100
    store.close()


def test_released_bytes_are_read_again() -> None:
    store = open_store(resident_bytes=2000)
    for number in range(40):
        put(store, message(f"{number:0300d}"))
        store._log.release_mappings()
    assert [int(body) for body in bodies(read_queue(store))] == list(range(40))


def test_a_log_that_does_not_grow_for_long_has_no_hot_bytes_until_it_grows_again(tmp_path: Path) -> None:
    clock = Clock()
    store = MessageStore(StoreConfig(tmp_path, segment_size=4 * MIB), clock=clock)
    store.open()
    put(store, *(message("x" * 100_000) for _ in range(20)))
    log = store._log
    log.release_mappings()
    clock.now += IDLE_MS - 1
    log.release_mappings()
    assert log.is_resident(0)
    assert len(read_queue(store)) == 20
    assert mapped_kib(tmp_path) > 1024
    clock.now += 1
    log.release_mappings()
    assert not log.is_resident(0)
    assert mapped_kib(tmp_path) <= 4, "except for the page that is being written"
    assert len(read_queue(store)) == 20
    assert log.resident_record(0, 500) is None
    put(store, message("y"))
    log.release_mappings()
    assert log.is_resident(log.end_offset - 1)
    assert not log.is_resident(0)
    assert len(read_queue(store)) == 21
    store.close()


def test_a_hot_record_is_the_one_at_its_place() -> None:
    store = open_store(segment_size=2000, resident_bytes=2500)
    for number in range(8):
        put(store, message(f"{number:0500d}"))
    log = store._log
    last = log.segments[-1].base
    size = log.end_offset - last
    record = log.resident_record(last, size)
    assert record is not None
    assert bytes(record) == log.read(last, size, wait=True)


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 600), (-600, 600), (6000, 0), (6000, -1), (7000, 5000), (5800, 600), (1 << 60, 600)]
)
def test_no_hot_record_where_none_can_be(offset: int, size: int) -> None:
    """Non-resident, before the log, empty, after the end, across the end of a segment, far away."""
    store = open_store(segment_size=2000, resident_bytes=2500)
    for number in range(12):
        put(store, message(f"{number:0500d}"))
    assert 7000 < store.end_offset < 9000
    assert store._log.resident_record(offset, size) is None
