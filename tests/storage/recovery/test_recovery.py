"""Recovery from damaged files: damage is reported and skipped, and never treated as the end of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.errors import StoreDamaged
from raptormq.storage import GetStatus, MessageStore, RecoveryReport, StoreConfig
from raptormq.storage.queue.consume_queue import FILLER, FILLER_SIZE, ITEM
from raptormq.storage.read.options import ReadOptions
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    QUEUE_FILE_BYTES,
    SEGMENT_BYTES,
    Clock,
    bodies,
    checkpoint,
    message,
    offset_by_time,
    open_store,
    put,
    queue_bounds,
    read_queue,
    small_config,
)

LOG = "/store/commitlog/00000000000000000000"
QUEUE = "/store/consumequeue/topic/0/00000000000000000000"


def filled(count: int, size: int = 0, clock: Clock | None = None) -> MemoryFileSystem:
    """Return the volume of a store that was stopped cleanly with `count` messages in queue 0."""
    volume = MemoryFileSystem()
    store = open_store(volume, clock)
    for number in range(count):
        put(store, message(str(number).ljust(size, ".")))
    store.close()
    return volume


def flip(volume: MemoryFileSystem, path: str, offset: int) -> None:
    file = volume.open(path)
    file.write_at(offset, [bytes([file.read_at(offset, 1)[0] ^ 0x40])], 1)


def crash(volume: MemoryFileSystem) -> MemoryFileSystem:
    """Return the same volume as after a kill, with an empty checkpoint."""
    volume.open("/store/abort", create=True)
    volume.open("/store/checkpoint").truncate(0)
    return volume


def reopened(volume: MemoryFileSystem) -> tuple[MessageStore, RecoveryReport]:
    store = MessageStore(small_config(), fs=volume, clock=Clock())
    return store, store.open()


def test_a_clean_stop_is_found_without_reading_the_log() -> None:
    store, report = reopened(filled(30))
    assert (report.clean, report.records, report.start_offset) == (True, 0, store.end_offset)
    assert len(read_queue(store)) == 30


def test_records_that_no_queue_had_are_dispatched_after_a_clean_stop() -> None:
    volume = filled(5)
    size = volume.open(LOG).read_at(0, 4)
    items = volume.open(QUEUE)
    items.write_at(80, [bytes(20)], 20)
    store, report = reopened(volume)
    assert (report.clean, report.records) == (True, 1)
    assert bodies(read_queue(store)) == list("01234")
    assert store.end_offset == 5 * int.from_bytes(size)


def test_queues_come_back_when_their_folder_is_gone() -> None:
    volume = filled(50)
    volume.remove_tree("/store/consumequeue")
    store, report = reopened(volume)
    assert report.records == 50
    assert bodies(read_queue(store)) == [str(number) for number in range(50)]


def test_queues_come_back_when_one_file_is_gone() -> None:
    volume = filled(70)
    assert len(volume.names("/store/consumequeue/topic/0")) == 4
    volume.remove("/store/consumequeue/topic/0/00000000000000000400")
    killed = crash(volume.after_kill())
    store, report = reopened(volume)
    assert report.records == 70
    assert bodies(read_queue(store)) == [str(number) for number in range(70)]
    store, report = reopened(killed)
    assert report.records == 70
    assert bodies(read_queue(store)) == [str(number) for number in range(70)]


def test_queues_do_not_outlive_their_log() -> None:
    volume = filled(5)
    volume.remove_tree("/store/commitlog")
    store, report = reopened(volume)
    assert (report.end_offset, store.topics(), queue_bounds(store, "topic", 0)) == (0, [], (0, 0))
    put(store, message("new"))
    assert bodies(read_queue(store)) == ["new"]


def test_queues_that_point_behind_the_log_are_cut() -> None:
    volume = filled(5)
    log = volume.open(LOG)
    size = int.from_bytes(log.read_at(0, 4))
    log.write_at(3 * size, [bytes(2 * size)], 2 * size)
    store, report = reopened(volume)
    assert (report.clean, report.end_offset) == (False, 3 * size)
    assert bodies(read_queue(store)) == list("012")
    put(store, message("new"))
    assert [each.queue_offset for each in read_queue(store)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("byte", "reason"), [(3, "fit"), (5, "no record"), (10, "CRC"), (30, "physical offset"), (86, "body of")]
)
def test_a_damaged_record_is_told_and_the_others_are_served(byte: int, reason: str) -> None:
    volume = filled(30)
    size = int.from_bytes(volume.open(LOG).read_at(0, 4))
    flip(volume, LOG, 4 * size + byte)
    store, report = reopened(crash(volume))
    assert [(each.offset, each.size) for each in report.damaged] == [(4 * size, size)]
    assert reason in report.damaged[0].reason
    assert f"{size} bytes at offset {4 * size} hold no valid record" in report.lines()[0]
    assert bodies(read_queue(store)) == [str(number) for number in range(30) if number != 4]
    assert [each.queue_offset for each in read_queue(store)] == [number for number in range(30) if number != 4]
    assert queue_bounds(store, "topic", 0) == (0, 30)


def test_a_damaged_end_of_a_segment_leads_to_the_next() -> None:
    volume = filled(60, size=2)
    size = int.from_bytes(volume.open(LOG).read_at(0, 4))
    count = (SEGMENT_BYTES - 8) // size
    flip(volume, LOG, count * size + 5)
    store, report = reopened(crash(volume))
    assert [(each.offset, each.offset + each.size) for each in report.damaged] == [(count * size, SEGMENT_BYTES)]
    assert [int(body.rstrip(".")) for body in bodies(read_queue(store))] == list(range(60))


def test_a_whole_lost_segment_leaves_the_others() -> None:
    volume = filled(60)
    volume.open("/store/commitlog/00000000000000002048").write_at(0, [bytes(2048)], 2048)
    store, report = reopened(crash(volume))
    assert [each.offset for each in report.damaged] == [2048]
    messages = read_queue(store)
    assert {each.physical_offset // 2048 for each in messages} == {0, 2}
    assert all(each.queue_offset == int(each.body) for each in messages)


def test_a_lost_message_is_a_filler_in_its_queue() -> None:
    volume = filled(6)
    size = int.from_bytes(volume.open(LOG).read_at(0, 4))
    flip(volume, LOG, 2 * size + 90)
    store, _ = reopened(crash(volume))
    result = store.get_messages("topic", 0, 2, ReadOptions(1, 1 << 20))
    assert (result.status, result.message_count, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 0, 3)
    store.close()
    assert volume.open(QUEUE).read_at(40, 20) == ITEM.pack(3 * size, FILLER_SIZE, 0)


def test_a_record_that_rots_later_is_left_out_of_reads(caplog: pytest.LogCaptureFixture) -> None:
    volume = filled(6)
    size = int.from_bytes(volume.open(LOG).read_at(0, 4))
    store, report = reopened(volume)
    assert report.damaged == []
    flip(volume, LOG, 2 * size + 88)
    result = store.get_messages("topic", 0, 0, ReadOptions(32, 1 << 20))
    assert (result.status, result.message_count, result.next_offset) == (GetStatus.FOUND, 5, 6)
    assert bodies(read_queue(store)) == list("01345")
    assert "1 damaged records of topic/0 from offset 0 on" in caplog.text


def test_only_what_the_checkpoint_does_not_cover_is_read_again() -> None:
    clock = Clock()
    volume = MemoryFileSystem()
    store = open_store(volume, clock)
    put(store, *(message(str(number)) for number in range(40)))
    store.close()
    clock.now += 10_000
    store = open_store(volume, clock)
    put(store, *(message(str(number)) for number in range(40, 45)))
    store._opened.maintenance.flush_all()  # type: ignore[union-attr]
    clock.now += 1000
    put(store, message("45"))
    survivor = volume.after_kill()
    store, report = reopened(survivor)
    assert (report.clean, report.records) == (False, 6)
    assert bodies(read_queue(store)) == [str(number) for number in range(46)]


def test_a_queue_that_begins_late_starts_with_fillers() -> None:
    volume = filled(30)
    volume.remove("/store/commitlog/00000000000000000000")
    volume.remove_tree("/store/consumequeue")
    store, report = reopened(crash(volume))
    assert report.damaged == []
    first = read_queue(store)[0].queue_offset
    assert queue_bounds(store, "topic", 0) == (first, 30)
    assert store.get_messages("topic", 0, 0, ReadOptions(32, 1 << 20)).status is GetStatus.OFFSET_TOO_SMALL
    store.close()
    start = first // 20 * 20
    data = volume.open(f"/store/consumequeue/topic/0/{start * 20:020d}").read_at(0, (first - start) * 20)
    assert data == FILLER * (first - start)


def test_a_topic_that_was_deleted_and_made_again_keeps_its_second_life() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, *(message(f"old {number}") for number in range(30)))
    store.delete_topic("topic")
    put(store, *(message(f"new {number}") for number in range(3)))
    survivor = crash(volume.after_kill())
    store, report = reopened(survivor)
    assert report.records == 33
    assert bodies(read_queue(store)) == ["new 0", "new 1", "new 2"]
    store.close()
    store, _ = reopened(survivor)
    assert bodies(read_queue(store)) == ["new 0", "new 1", "new 2"]


@pytest.mark.parametrize("elsewhere", [True, False])
def test_no_group_is_ahead_of_a_queue_that_has_lost_all(elsewhere: bool) -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, message("kept", "topic" if elsewhere else "other", queue_id=1))
    checkpoint(store)
    put(store, *(message("lost") for _ in range(10)))
    store.consumer_offsets.commit("topic", "group", 0, 10)
    snapshot = store.consumer_offsets.snapshot()
    assert snapshot is not None
    store.consumer_offsets.save_snapshot(snapshot)  # it is written before the timestamp of the log
    store = open_store(volume.after_power_cut())
    put(store, *(message(str(number)) for number in range(8)))
    assert store.consumer_offsets.get("topic", "group", 0) == 0
    assert bodies(read_queue(store)) == list("01234567")


def test_missing_and_wrong_files_are_refused_by_name() -> None:
    volume = filled(60)
    volume.remove("/store/commitlog/00000000000000002048")
    with pytest.raises(StoreDamaged, match=r"no file for offset 2048; the next is .*4096"):
        open_store(volume)
    with pytest.raises(StoreDamaged, match="does not fit mappedFileSizeCommitLog=1024"):
        open_store(filled(60), segment_size=1024)
    with pytest.raises(StoreDamaged, match="mappedFileSizeConsumeQueue=600"):
        open_store(filled(70), queue_file_size=600)
    volume = filled(60)
    volume.open("/store/commitlog/00000000000000002048").truncate(100)
    with pytest.raises(StoreDamaged, match="only 100 of 2048 bytes, and records follow"):
        open_store(volume)


def test_a_failed_open_leaves_nothing_locked() -> None:
    volume = filled(60)
    volume.remove("/store/commitlog/00000000000000002048")
    for _ in range(2):
        with pytest.raises(StoreDamaged):
            open_store(volume)


def test_a_big_log_starts_quickly_after_a_clean_stop(tmp_path: Path) -> None:
    """Ten sparse segments of 1 GiB: the start reads only the end of the log."""
    config = StoreConfig(tmp_path)
    store = MessageStore(config)
    store.open()
    put(store, message("first"))
    store.close()
    gib = 1 << 30
    log = tmp_path / "commitlog"
    for number in range(1, 10):
        with (log / f"{number * gib:020d}").open("wb") as file:
            file.truncate(gib)
    with (log / ("0" * 20)).open("rb") as file:
        record = file.read(4)
        head = int.from_bytes(record)
        record += file.read(head - 4)
    moved = record[:20] + (1).to_bytes(8) + (9 * gib).to_bytes(8) + record[36:]
    with (log / f"{9 * gib:020d}").open("r+b") as file:
        file.write(moved)
    with (tmp_path / "consumequeue" / "topic" / "0" / ("0" * 20)).open("r+b") as file:
        file.seek(20)
        file.write(ITEM.pack(9 * gib, head, 0))
    (tmp_path / "checkpoint").write_bytes(bytes(4096))  # the existing items are those of the first message
    store = MessageStore(config)
    report = store.open()
    assert (report.clean, report.start_offset, report.end_offset) == (True, 9 * gib + head, 9 * gib + head)
    assert report.milliseconds < 20_000
    assert bodies(read_queue(store)) == ["first", "first"]
    store.close()


def test_a_lost_message_hides_nothing_before_it() -> None:
    volume = filled(3)
    size = int.from_bytes(volume.open(LOG).read_at(0, 4))
    flip(volume, LOG, size + 90)
    store, _ = reopened(crash(volume))
    store.close()
    store, _ = reopened(volume)
    assert queue_bounds(store, "topic", 0) == (0, 3)
    assert bodies(read_queue(store)) == ["0", "2"]
    assert offset_by_time(store, "topic", 0, 0) == 0


@pytest.mark.parametrize("byte", [27, 24, 20])
def test_a_damaged_queue_offset_costs_one_message(byte: int, caplog: pytest.LogCaptureFixture) -> None:
    volume = filled(60)
    size = int.from_bytes(volume.open(LOG).read_at(0, 4))
    flip(volume, LOG, 4 * size + byte)
    volume.remove_tree("/store/consumequeue")
    store, report = reopened(crash(volume))
    assert (report.records, report.damaged) == (60, [])
    assert bodies(read_queue(store)) == [str(number) for number in range(60) if number != 4]
    assert queue_bounds(store, "topic", 0) == (0, 60)
    assert "topic/0 is truncated from offset 69 to 5" in caplog.text or "does not follow 4" in caplog.text
    store.close()
    store, report = reopened(volume)
    assert report.clean
    assert len(read_queue(store)) == 59


def test_a_queue_that_goes_back_below_its_files_is_cut() -> None:
    volume = filled(70)
    size = int.from_bytes(volume.open(LOG).read_at(0, 4))
    for number in range(3):  # the offsets of messages 1, 2 and 3 become 65, 66 and 67
        flip(volume, LOG, (1 + number) * size + 27)
    volume.remove_tree("/store/consumequeue")
    store, _ = reopened(crash(volume))
    assert bodies(read_queue(store)) == [str(number) for number in range(70) if number not in (1, 2, 3)]
    store.close()
    assert len(read_queue(reopened(volume)[0])) == 67


@pytest.mark.parametrize("damage", ["empty", "zeros", "gone"])
def test_the_only_file_of_a_queue_is_lost_after_a_clean_stop(damage: str) -> None:
    """Other queues still reach the end of the log, so the log alone would not show the damage."""
    volume = MemoryFileSystem()
    store = open_store(volume)
    for number in range(5):
        put(store, message(str(number)))
    put(store, message("last", queue_id=1))
    store.close()
    if damage == "gone":
        volume.remove(QUEUE)
    else:
        size = QUEUE_FILE_BYTES if damage == "zeros" else 0
        file = volume.open(QUEUE)
        file.truncate(0)
        file.write_at(0, [bytes(size)], size)
    store, _ = reopened(volume)
    assert bodies(read_queue(store)) == ["0", "1", "2", "3", "4"]
    store.close()
    store, report = reopened(volume)
    assert (report.clean, report.records) == (True, 0)


@pytest.mark.parametrize("item", [(0, -5), (1 << 62, 100), (0, 0), (0, 1 << 30), (7, 50)])
def test_a_damaged_item_costs_its_own_message(item: tuple[int, int]) -> None:
    volume = filled(5)
    store, _ = reopened(volume)
    volume.open(QUEUE).write_at(40, [ITEM.pack(*item, 0)], 20)
    assert bodies(read_queue(store)) == ["0", "1", "3", "4"]
    alone = store.get_messages("topic", 0, 2, ReadOptions(1, 1 << 20))
    assert (alone.status, alone.next_offset, alone.buffers) == (GetStatus.MESSAGE_WAS_REMOVING, 3, [])
    assert bodies(read_queue(store, max_count=1)) == ["0", "1", "3", "4"]
    assert 0 <= offset_by_time(store, "topic", 0, 0) <= 3


def test_no_group_is_ahead_of_a_queue_whose_files_somebody_has_removed() -> None:
    clock, volume = Clock(), MemoryFileSystem()
    store = open_store(volume, clock)
    put(store, message("kept", topic="other"), *(message(f"old {number}", topic="lost") for number in range(3)))
    store.consumer_offsets.commit("lost", "g", 0, 3)
    store.consumer_offsets.commit("other", "g", 0, 1)
    store.close()
    volume.remove_tree("/store/consumequeue/lost")
    volume.remove("/store/commitlog/" + volume.names("/store/commitlog")[0])
    again = open_store(volume, clock)
    assert again.consumer_offsets.get("lost", "g", 0) == 0
    again.close()
