"""The facade: appended messages are read in RocketMQ's format and with its results."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from raptormq.errors import StorageError
from raptormq.protocol.batch import encode_batch, scan_batch
from raptormq.protocol.record import StoredMessage, decode_record, encode_record, iter_records
from raptormq.protocol.tags import tag_hash
from raptormq.storage import (
    AppendedLists,
    AppendResult,
    GetStatus,
    MessageStore,
    PendingList,
    PendingRecord,
    StoreConfig,
)
from raptormq.storage.queue.consume_queue import ITEM
from raptormq.storage.read.options import Boundary, ReadOptions
from raptormq.storage.read.queue_reader import SCAN_ITEMS
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    Clock,
    bodies,
    message,
    message_at,
    offset_by_time,
    open_store,
    open_sync_store,
    put,
    queue_bounds,
    read_queue,
    small_config,
)

V6 = bytes(range(16)) + b"\0\0\x2a\x9f"


def test_records_have_the_layout_of_the_protocol() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = open_store(volume, clock, store_host=b"\x0a\0\0\1\0\0\x2a\x9f")
    record = PendingRecord(
        "topic", 3, b"body", b"TAGS\x01A\x02", 65, 1_600_000_000_000, b"\x0a\0\0\2\0\0\0\7", 42, 1, 5, 77
    )
    result = store.append([record, record])
    expected = [
        StoredMessage(
            "topic", 3, b"body", "TAGS\x01A\x02", 42, 1, index, result.physical_offsets[index], 1_600_000_000_000,
            clock.now, b"\x0a\0\0\2\0\0\0\7", b"\x0a\0\0\1\0\0\x2a\x9f", 5, 77,
        )
        for index in range(2)
    ]  # fmt: skip
    raw = volume.open("/store/commitlog/00000000000000000000").read_at(0, result.end_offset)
    assert raw == b"".join(map(encode_record, expected))
    assert result.queue_offsets == [0, 1]
    assert result.sizes == [len(raw) // 2] * 2
    assert result.physical_offsets == [0, len(raw) // 2]


@pytest.mark.parametrize("store_host", [b"\x7f\0\0\1\0\0\0\1", V6])
@pytest.mark.parametrize("born_host", [b"\x7f\0\0\1\0\0\0\2", V6])
@pytest.mark.parametrize("topic", ["t", "%RETRY%" + "g" * 130])
def test_long_topics_and_ipv6_hosts_use_the_other_layouts(store_host: bytes, born_host: bytes, topic: str) -> None:
    store = open_store(store_host=store_host)
    result = store.append([message("body", topic, born_host=born_host)])
    raw = message_at(store, 0)
    assert raw is not None
    stored = decode_record(bytes(raw))
    assert (stored.topic, stored.born_host, stored.store_host, stored.body) == (topic, born_host, store_host, b"body")
    assert encode_record(stored) == raw
    assert result.sizes == [len(raw)]


def test_queue_items_have_the_layout_of_the_reference() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, message("a", tag="TagA"), message("b", queue_id=1), message("c"))
    store.close()
    items = volume.open("/store/consumequeue/topic/0/00000000000000000000").read_at(0, 60)
    sizes = [91 + len("topic") + len("a") + len("TAGS.TagA."), 97, 97]
    assert items == b"".join(
        (
            ITEM.pack(0, sizes[0], tag_hash("TagA")),
            ITEM.pack(sizes[0] + sizes[1], sizes[2], 0),
            bytes(20),
        )
    )
    assert volume.open("/store/consumequeue/topic/0/00000000000000000000").size() == 400


def test_a_group_is_visible_after_dispatch_and_not_before() -> None:
    store = open_store()
    store.append([message("a", tag="A"), message("b", queue_id=2)])
    assert store.get_messages("topic", 0, 0, ReadOptions(32, 1 << 20)).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.dispatch() == [("topic", 0, 1, tag_hash("A")), ("topic", 2, 1, 0)]
    assert store.dispatch() == []
    assert bodies(read_queue(store)) == ["a"]
    assert bodies(read_queue(store, queue_id=2)) == ["b"]


def test_prepared_and_rolled_back_transactions_are_in_no_queue() -> None:
    store = open_store()
    result = store.append([message("p", sys_flag=4), message("r", sys_flag=12), message("c", sys_flag=8), message("n")])
    assert result.queue_offsets == [0, 0, 0, 1]
    assert store.dispatch() == [("topic", 0, 1, 0), ("topic", 0, 2, 0)]
    assert bodies(read_queue(store)) == ["c", "n"]


def test_neighbours_in_the_log_share_one_buffer() -> None:
    store = open_store(segment_size=1 << 16)
    put(store, *(message(str(number)) for number in range(5)), message("x", queue_id=1), message("5"))
    result = store.get_messages("topic", 0, 0, ReadOptions(32, 1 << 20))
    assert (len(result.buffers), result.message_count, result.next_offset) == (2, 6, 6)
    assert result.total_bytes == sum(map(len, result.buffers))


def test_a_read_that_crosses_segments_is_whole() -> None:
    store = open_store()
    put(store, *(message(f"{number:0200d}") for number in range(40)))
    assert store.stats().segments > 5
    assert [int(body) for body in bodies(read_queue(store))] == list(range(40))


def test_limits_of_count_and_bytes() -> None:
    store = open_store(segment_size=1 << 16)
    put(store, *(message("x" * 100) for _ in range(10)))
    size = store.get_messages("topic", 0, 0, ReadOptions(1, 1 << 20)).total_bytes
    assert store.get_messages("topic", 0, 0, ReadOptions(3, 1 << 20)).message_count == 3
    assert store.get_messages("topic", 0, 0, ReadOptions(32, 3 * size)).message_count == 3
    assert store.get_messages("topic", 0, 0, ReadOptions(32, 3 * size - 1)).message_count == 2
    assert store.get_messages("topic", 0, 0, ReadOptions(32, 1)).message_count == 1


def test_the_filter_skips_by_tag_code_and_moves_on() -> None:
    store = open_store(segment_size=1 << 16)
    put(store, *(message(str(number), tag="AB"[number % 2]) for number in range(10)))
    only_a = store.get_messages("topic", 0, 0, ReadOptions(32, 1 << 20, frozenset({tag_hash("A")})))
    assert (only_a.status, only_a.message_count, only_a.next_offset) == (GetStatus.FOUND, 5, 10)
    two = store.get_messages("topic", 0, 0, ReadOptions(2, 1 << 20, frozenset({tag_hash("B")})))
    assert (two.message_count, two.next_offset) == (2, 5)
    none = store.get_messages("topic", 0, 0, ReadOptions(32, 1 << 20, frozenset({tag_hash("C")})))
    assert (none.status, none.message_count, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 0, 10)


def test_offsets_outside_the_queue() -> None:
    store = open_store()
    assert store.get_messages("topic", 0, 5, ReadOptions(32, 1 << 20)).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    put(store, message("a"), message("b"))
    one = store.get_messages("topic", 0, 2, ReadOptions(32, 1 << 20))
    assert (one.status, one.next_offset, one.min_offset, one.max_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 2, 0, 2)
    bad = store.get_messages("topic", 0, 9, ReadOptions(32, 1 << 20))
    assert (bad.status, bad.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 2)
    small = store.get_messages("topic", 0, -1, ReadOptions(32, 1 << 20))
    assert (small.status, small.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"), [(5, 0, 0), (10, 0, 1), (11, 2, 1), (20, 2, 2), (25, 3, 2), (30, 3, 3), (99, 4, 3)]
)
def test_search_by_time(timestamp: int, lower: int, upper: int) -> None:
    clock = Clock()
    store = open_store(clock=clock)
    for now, body in ((10, "a"), (10, "b"), (20, "c"), (30, "d")):
        clock.now = now
        put(store, message(body))
    assert offset_by_time(store, "topic", 0, timestamp) == lower
    assert offset_by_time(store, "topic", 0, timestamp, Boundary.UPPER) == upper
    assert offset_by_time(store, "absent", 0, timestamp) == 0


def test_store_times_never_go_back() -> None:
    clock = Clock(1000)
    store = open_store(clock=clock)
    store.append([message("a")])
    clock.now = 500
    assert store.append([message("b")]).store_timestamp == 1000


def test_a_record_that_fits_no_segment_uses_up_nothing() -> None:
    store = open_store()
    with pytest.raises(StorageError, match="does not fit a segment of 2048"):
        store.append([message("a"), message("x" * 2048)])
    with pytest.raises(StorageError, match="does not fit its fields"):
        store.append([message("a"), message("b", flag=1 << 40)])
    assert store.append([message("b")]).queue_offsets == [0]
    assert store.end_offset == 97


def test_message_at_finds_records_and_nothing_else() -> None:
    store = open_store()
    result = store.append([message("a"), message("b")])
    found = message_at(store, result.physical_offsets[1])
    assert found is not None
    assert decode_record(bytes(found)).body == b"b"
    for offset in (-1, 1, result.end_offset, 1 << 40):
        assert message_at(store, offset) is None


def test_delete_topic_removes_its_queues_and_offsets() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    store.append([message("a"), message("b", topic="other")])
    store.dispatch()
    store.consumer_offsets.commit("topic", "group", 0, 1)
    store.append([message("never visible")])
    store.delete_topic("topic")
    assert store.dispatch() == []
    assert store.topics() == ["other"]
    assert store.consumer_offsets.get("topic", "group", 0) is None
    assert volume.names("/store/consumequeue") == []
    put(store, message("again"))
    assert [(each.queue_offset, each.body) for each in read_queue(store)] == [(0, b"again")]


def test_a_real_volume_keeps_messages_over_a_restart(tmp_path: Path) -> None:
    config = StoreConfig(tmp_path / "new" / "store", segment_size=1 << 20)
    store = MessageStore(config)
    assert store.open().clean
    put(store, *(message(str(number), queue_id=number % 3) for number in range(100)))
    store.consumer_offsets.commit("topic", "group", 0, 17)
    store.close()
    assert not (config.root_dir / "abort").exists()
    store = MessageStore(config)
    report = store.open()
    assert (report.clean, report.records, report.damaged) == (True, 0, [])
    assert bodies(read_queue(store, queue_id=2)) == [str(number) for number in range(2, 100, 3)]
    assert store.consumer_offsets.get("topic", "group", 0) == 17
    put(store, message("more"))
    assert queue_bounds(store, "topic", 0) == (0, 35)
    store.close()


async def test_pages_that_left_the_memory_are_fetched(tmp_path: Path) -> None:
    config = StoreConfig(tmp_path, segment_size=1 << 20)
    store = MessageStore(config)
    store.open()
    put(store, *(message(f"{number:0500d}") for number in range(1000)))
    store.close()
    for path in (*tmp_path.glob("commitlog/*"), *tmp_path.glob("consumequeue/*/*/*")):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    store = MessageStore(config)
    store.open()
    store.set_loop(asyncio.get_running_loop())
    offset, found = 0, []
    while offset < 1000:
        result = store.get_messages("topic", 0, offset, ReadOptions(32, 1 << 20))
        if result.non_resident:  # never on a memory-based volume
            result = await store.load_messages("topic", 0, offset, ReadOptions(32, 1 << 20))
        found += [int(each.body) for each in iter_records(b"".join(result.buffers))]
        offset = result.next_offset
    assert found == list(range(1000))
    store.close()


def test_a_queue_whose_messages_all_have_another_tag_ends_as_removed_or_unmatched() -> None:
    store = open_store(segment_size=1 << 16)
    put(store, *(message(str(number), tag="A") for number in range(900)))
    first = store.get_messages("topic", 0, 0, ReadOptions(32, 1 << 20, frozenset({tag_hash("B")})))
    assert (first.status, first.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, SCAN_ITEMS)


def test_builders_see_every_record_once_and_in_order() -> None:
    seen: list[tuple[str, int, int]] = []

    class Keys:
        def build(self, batch: AppendResult) -> None:
            for record, offset, physical in zip(
                batch.records, batch.queue_offsets, batch.physical_offsets, strict=True
            ):
                seen.append((record.topic, offset, physical))

        def build_lists(self, batch: AppendedLists) -> None:
            for pending, _, first, after in batch.parts():
                places = zip(batch.queue_offsets[first:after], batch.physical_offsets[first:after], strict=True)
                seen.extend((pending.topic, *place) for place in places)

    volume = MemoryFileSystem()
    store = MessageStore(small_config(), fs=volume, clock=Clock())
    store._dispatcher.attach(Keys())
    store.open()
    put(store, message("a"), message("b"), message("c", topic="other"))
    data = encode_batch([(0, b"d", b""), (0, b"e", b"")])
    store.append_lists([PendingList("topic", 0, data, scan_batch(data), [0, 0])])
    store.dispatch()
    expected = [("topic", 0, 0), ("topic", 1, 97), ("other", 0, 194), ("topic", 2, 291), ("topic", 3, 388)]
    assert seen == expected
    seen.clear()
    again = MessageStore(small_config(), fs=volume.after_kill(), clock=Clock())
    again._dispatcher.attach(Keys())
    again.open()
    assert seen == expected


def test_what_waits_for_a_flush_when_its_topic_goes_stays_out() -> None:
    store = open_sync_store()
    store.append([message("a"), message("b", topic="other")])
    store.delete_topic("topic")
    store.flush()
    assert store.dispatch() == [("other", 0, 1, 0)]
    assert store.topics() == ["other"]
