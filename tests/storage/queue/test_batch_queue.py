"""Queues of BatchCQ topics: the format on disk, offsets that count messages, and reads from any offset."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptormq.errors import ConfigError
from raptormq.protocol.inner_batch import INNER_BATCH, unwrap
from raptormq.protocol.properties import INNER_BASE, INNER_NUM, find_property
from raptormq.protocol.record import iter_records
from raptormq.protocol.tags import tag_hash
from raptormq.storage import GetStatus
from raptormq.storage.queue.batch_queue import BatchConsumeQueue, BatchItem
from raptormq.storage.queue.batch_search import BatchSearch
from raptormq.storage.read.options import Boundary, ReadOptions
from tests.storage.batch_stores import batch, items_of, open_batch_store, read_batches
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    Clock,
    bodies,
    message,
    offset_by_time,
    open_store,
    put,
    queue_bounds,
    read_queue,
    small_config,
)


def test_items_are_those_of_the_reference() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = open_batch_store(volume, clock)
    result = store.append([batch(["a", "b", "c"], tag="T"), message("d", "batches")])
    store.dispatch()
    clock.now += 5
    put(store, batch(["e", "f"]))
    store.close()

    first, second, third = items_of(volume)
    places, sizes = result.physical_offsets, result.sizes
    assert first == (places[0], sizes[0], tag_hash("T"), clock.now - 5, 0, 3, -1, 0)
    assert second == (places[1], sizes[1], 0, clock.now - 5, 3, 1, -1, 0)
    assert third[3:] == (clock.now, 4, 2, -1, 0)
    assert result.queue_offsets == [0, 3]
    assert volume.names("/store/consumequeue") == []


def test_the_wrapper_says_where_it_begins() -> None:
    store = open_batch_store()
    put(store, batch(["a", "b"]), batch(["c", "d", "e"]))

    wrappers = read_batches(store, whole=True)

    assert [find_property(each.properties, INNER_BASE) for each in wrappers] == ["0", "2"]
    assert [find_property(each.properties, INNER_NUM) for each in wrappers] == ["2", "3"]
    assert [each.queue_offset for each in wrappers] == [0, 2]
    assert [inner.body for each in wrappers for inner in unwrap(each)] == [b"a", b"b", b"c", b"d", b"e"]


def test_offsets_count_messages() -> None:
    store = open_batch_store()
    put(store, batch(["a", "b", "c"]), message("d", "batches"), batch(["e"]))

    assert queue_bounds(store, "batches", 0) == (0, 5)
    assert bodies(read_batches(store)) == ["a", "b", "c", "d", "e"]
    assert [each.queue_offset for each in read_batches(store)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"), [(5, "OFFSET_OVERFLOW_ONE", 5), (6, "OFFSET_OVERFLOW_BADLY", 5)]
)
def test_offsets_beyond_the_end(offset: int, status: str, next_offset: int) -> None:
    store = open_batch_store()
    put(store, batch(["a", "b", "c"]), batch(["d", "e"]))

    result = store.get_messages("batches", 0, offset, ReadOptions(32, 1 << 20))

    assert (result.status, result.next_offset, result.buffers) == (GetStatus[status], 5, [])


def test_a_read_begins_inside_a_batch_with_exactly_that_message() -> None:
    store = open_batch_store()
    put(store, batch(["a", "b", "c", "d"]), batch(["e", "f"]))

    result = store.get_messages("batches", 0, 2, ReadOptions(32, 1 << 20, whole=True))

    first, second, wrapper = iter_records(b"".join(result.buffers))
    assert (first.queue_offset, first.body, first.sys_flag) == (2, b"c", 0)
    assert (second.queue_offset, second.body) == (3, b"d")
    assert (wrapper.queue_offset, len(unwrap(wrapper))) == (4, 2)
    assert (result.message_count, result.next_offset) == (4, 6)


def test_limits_count_whole_batches_and_messages_of_those_taken_apart() -> None:
    store = open_batch_store()
    put(store, batch([*"abcde"]), batch([*"fgh"]), batch([*"ij"]))

    def read(offset: int, count: int, size: int = 1 << 20, *, whole: bool = True) -> tuple[int, int]:
        result = store.get_messages("batches", 0, offset, ReadOptions(count, size, whole=whole))
        return result.message_count, result.next_offset

    assert read(0, 1) == (5, 5)
    assert read(0, 2) == (8, 8)
    assert read(0, 3) == (10, 10)
    assert read(0, 32, 1) == (5, 5)
    assert read(3, 2) == (2, 5)
    assert read(3, 3) == (5, 8)
    assert read(0, 1, whole=False) == (1, 1)
    assert read(0, 7, whole=False) == (7, 7)
    assert read(3, 32, 1, whole=False) == (1, 4)


def test_a_reader_of_whole_batches_gets_what_is_hot_and_what_is_not() -> None:
    store = open_batch_store(resident_bytes=600)
    names = [f"{number:0100d}" for number in range(12)]
    for name in names:
        put(store, batch([name, "second"]))
    wrappers = read_batches(store, whole=True)
    assert [unwrap(each)[0].body.decode() for each in wrappers] == names
    assert [each.queue_offset for each in wrappers] == list(range(0, 24, 2))


def test_an_item_that_a_disk_has_damaged_is_no_end_for_whole_batches() -> None:
    volume = MemoryFileSystem()
    store = open_batch_store(volume)
    put(store, batch(["a", "b"]), batch(["c", "d"]), batch(["e", "f"]))
    store._queues.flush(10)
    volume.open("/store/batchconsumequeue/batches/0/00000000000000000000").write_at(46, [b"\x7f" * 46], 46)
    assert [each.queue_offset for each in read_batches(store, whole=True)] == [0, 2, 4]


def test_the_end_of_a_queue_is_known_without_a_read() -> None:
    store = open_batch_store()
    assert not store.is_at_end("batches", 0, 0)  # the queue does not exist yet
    put(store, batch(["a", "b", "c"]))
    assert [store.is_at_end("batches", 0, offset) for offset in (0, 2, 3, 4)] == [False, False, True, False]


def test_tags_are_the_batches_or_else_the_messages_own() -> None:
    store = open_batch_store()
    mixed = batch(["a", "b", "c"], own_tags=["red", "blue", "red"])
    put(store, mixed, batch(["d", "e"], tag="blue"), batch(["f"], tag="red"), message("g", "batches"))

    def read(tag: str) -> tuple[list[tuple[int, int]], int]:
        result = store.get_messages("batches", 0, 0, ReadOptions(32, 1 << 20, frozenset({tag_hash(tag)}), whole=True))
        found = [(each.queue_offset, each.sys_flag) for each in iter_records(b"".join(result.buffers))]
        return found, result.next_offset

    assert read("blue") == ([(1, 0), (3, INNER_BATCH)], 7)
    assert read("red") == ([(0, 0), (2, 0), (5, INNER_BATCH)], 7)
    assert read("none") == ([], 7)


class Even:
    """A filter for messages whose unique key ends with an even digit."""

    max_scanned = 3
    max_scanned_bytes = 1_000_000

    def wants(self, properties: bytes) -> bool:
        return int(properties.decode().rstrip("\x02")[-1]) % 2 == 0


def test_filters_by_property_judge_messages_and_keep_to_their_limit() -> None:
    store = open_batch_store()
    put(store, batch(["0", "1", "2", "3"]), batch(["4", "5"]))

    result = store.get_messages("batches", 0, 0, ReadOptions(32, 1 << 20, None, Even(), whole=True))
    assert [each.body for each in iter_records(b"".join(result.buffers))] == [b"0", b"2"]
    assert result.next_offset == 3
    result = store.get_messages("batches", 0, 3, ReadOptions(32, 1 << 20, None, Even(), whole=True))
    assert [each.body for each in iter_records(b"".join(result.buffers))] == [b"4"]
    assert result.next_offset == 6


def test_properties_longer_than_the_limit_are_judged_one_message_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Even, "max_scanned_bytes", 1)
    store = open_batch_store()
    put(store, batch(["0", "1"]), batch(["2"]))
    ends = [store.get_messages("batches", 0, at, ReadOptions(32, 1 << 20, None, Even(), whole=True)) for at in range(3)]
    assert [(end.message_count, end.next_offset) for end in ends] == [(1, 1), (0, 2), (1, 3)]


def test_searches_by_time_find_messages() -> None:
    clock = Clock(1000)
    store = open_batch_store(clock=clock)
    for number in range(12):
        put(store, batch([f"{number}-{each}" for each in range(3)]))
        clock.now += 10
        if number % 5 == 4:
            store._queues.flush(1)

    def at(timestamp: int, boundary: Boundary = Boundary.LOWER) -> int:
        return offset_by_time(store, "batches", 0, timestamp, boundary)

    assert [at(1000), at(999), at(1001), at(1010), at(1110), at(1111)] == [0, 0, 3, 3, 33, 36]
    upper = Boundary.UPPER
    assert [at(999, upper), at(1000, upper), at(1009, upper), at(1010, upper), at(5000, upper)] == [0, 2, 2, 5, 35]


async def test_a_batch_of_the_largest_number() -> None:
    store = open_batch_store(segment_size=1 << 22)
    put(store, batch(["x"] * 32_767), batch(["y"]))

    assert await store.queue_bounds("batches", 0) == (0, 32_768)
    found = await store.load_messages("batches", 0, 32_766, ReadOptions(32, 1 << 20))
    assert bodies(list(iter_records(b"".join(found.buffers)))) == ["x", "y"]


@pytest.mark.parametrize("count", [100, 3000])
def test_a_search_looks_at_few_of_many_items(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Over all files: a binary search, and a check of its result."""
    clock = Clock()
    store = open_batch_store(clock=clock, batch_queue_file_size=46 * 50, segment_size=1 << 22)
    for number in range(count):
        clock.now += 10
        put(store, batch([f"{number}a", f"{number}b"]))
    store._queues.flush(1)
    looked: list[int] = []
    item = BatchSearch.item

    def counted(self: BatchSearch, queue: BatchConsumeQueue, number: int, *, wait: bool = True) -> BatchItem:
        looked.append(number)
        return item(self, queue, number, wait=wait)

    monkeypatch.setattr(BatchSearch, "item", counted)
    for offset in (0, 1, count - 1, count, 2 * count - 1):
        del looked[:]
        assert bodies(read_batches(store, offset=offset, max_count=4 * count))[0] == f"{offset // 2}{'ab'[offset % 2]}"
        assert len(looked) <= count.bit_length() + 3
        del looked[:]
        stored = clock.now - 10 * (count - 1 - offset // 2)
        assert offset_by_time(store, "batches", 0, stored) == offset // 2 * 2
        assert len(looked) <= count.bit_length() + 3


def test_simple_queues_are_as_they_were() -> None:
    volume = MemoryFileSystem()
    store = open_batch_store(volume)
    put(store, batch(["a", "b"]), message("c"), message("d"))
    store.close()

    assert volume.names("/store/consumequeue") == ["topic"]
    store = open_batch_store(volume)
    assert bodies(read_queue(store)) == ["c", "d"]
    assert bodies(read_batches(store)) == ["a", "b"]


@pytest.mark.parametrize(("size", "whole"), [(1, 46), (46, 46), (47, 92), (1 << 20, 1_048_616)])
def test_files_hold_whole_items(size: int, whole: int) -> None:
    config = small_config(batch_queue_file_size=size, queue_file_size=6 << 20)
    assert (config.batch_queue_file_size, config.queue_file_size) == (whole, 6_291_460)


@pytest.mark.parametrize("size", [0, -46])
def test_files_have_room_for_an_item(size: int) -> None:
    with pytest.raises(ConfigError, match=f"mapperFileSizeBatchConsumeQueue={size} is not above 0"):
        small_config(batch_queue_file_size=size)


def test_a_store_opens_again_with_a_size_that_is_rounded() -> None:
    volume = MemoryFileSystem()
    for number in range(2):
        store = open_store(volume, queue_file_size=41)
        put(store, *(message(f"{number}") for _ in range(4)))
        store.close()
    assert len(bodies(read_queue(open_store(volume, queue_file_size=60)))) == 8


groups = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(groups, st.data())
def test_any_offset_of_any_queue_is_served_from_there(counts: list[tuple[int, bool]], data: st.DataObject) -> None:
    clock = Clock(0)
    store = open_batch_store(MemoryFileSystem(), clock)
    sent: list[tuple[str, int]] = []
    for count, flushed in counts:
        names = [f"{len(sent) + each}" for each in range(count)]
        put(store, batch(names) if count > 1 else message(names[0], "batches"))
        sent += [(name, clock.now) for name in names]
        clock.now += 10
        if flushed:
            store._queues.flush(1)
    offset = data.draw(st.integers(0, len(sent) - 1))
    whole = data.draw(st.booleans())
    limit = data.draw(st.integers(1, 40))

    records = read_batches(store, offset=offset, max_count=limit, whole=whole)
    found = [inner for each in records for inner in (unwrap(each) if each.sys_flag else [each])]

    assert bodies(found) == [name for name, _ in sent[offset:]]
    assert [each.queue_offset for each in found] == list(range(offset, len(sent)))
    stored = data.draw(st.integers(-5, clock.now + 5))
    after = next((number for number, (_, at) in enumerate(sent) if at >= stored), len(sent))
    assert offset_by_time(store, "batches", 0, stored) == after
    before = max((number for number, (_, at) in enumerate(sent) if at <= stored), default=0)
    assert offset_by_time(store, "batches", 0, stored, Boundary.UPPER) == before
