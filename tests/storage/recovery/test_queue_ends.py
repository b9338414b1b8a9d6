"""The file with the ends of the queues at the checkpoint."""

from __future__ import annotations

from zlib import crc32

import pytest

from raptormq.files import replace_file
from raptormq.storage.queue.consume_queue import ConsumeQueue, encode_topic_field
from raptormq.storage.recovery.queue_check import EndsPacker, QueueEnd, QueueEnds, load_ends
from tests.storage.memory_filesystem import MemoryFileSystem

PATH = "/store/queueEnds"


def queue(topic: str, queue_id: int, low: int, high: int, physical: int) -> ConsumeQueue:
    made = ConsumeQueue(topic, queue_id, encode_topic_field(topic))
    made.min_offset, made.max_offset, made.max_physical = low, high, physical
    return made


QUEUES = [
    queue("a", 0, 0, 5, 400),
    queue("a", 7, 1 << 40, 1 << 41, 1 << 50),
    queue("ü" * 120, 1, 2, 3, 100),
    queue("a", 2, 0, 1, 0),
]


def volume_with(data: bytes) -> MemoryFileSystem:
    volume = MemoryFileSystem()
    volume.make_folders("/store")
    replace_file(volume, PATH, data)
    return volume


def test_the_layout_is_as_documented() -> None:
    packer = EndsPacker(77, QUEUES[:2])
    assert packer.add(10)
    first = b"\0\x01a" + bytes(4) + bytes(8) + (5).to_bytes(8) + (400).to_bytes(8)
    second = b"\0\0" + (7).to_bytes(4) + (1 << 40).to_bytes(8) + (1 << 41).to_bytes(8) + (1 << 50).to_bytes(8)
    body = (77).to_bytes(8) + first + second
    assert packer.packed() == b"RQE1" + crc32(body).to_bytes(4) + body


def test_what_was_packed_in_slices_is_found_again() -> None:
    gone = queue("gone", 0, 0, 9, 900)
    gone.deleted = True
    packer = EndsPacker(1 << 40, [*QUEUES, gone, queue("empty", 0, 0, 0, -1)])
    assert [packer.add(2) for _ in range(4)] == [False, False, False, True]
    found = load_ends(volume_with(packer.packed()), PATH)
    ends = [QueueEnd(each.topic, each.queue_id, each.min_offset, each.max_offset, each.max_physical) for each in QUEUES]
    assert found == QueueEnds(1 << 40, ends)


def test_without_queues_there_is_the_offset() -> None:
    assert load_ends(volume_with(EndsPacker(5, []).packed()), PATH) == QueueEnds(5, [])


def test_no_file_is_nothing_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert load_ends(MemoryFileSystem(), PATH) is None
    assert caplog.records == []


@pytest.mark.parametrize("at", [0, 5, 10, 20])
def test_a_damaged_file_is_told_and_not_used(at: int, caplog: pytest.LogCaptureFixture) -> None:
    packer = EndsPacker(5, QUEUES)
    packer.add(10)
    data = bytearray(packer.packed())
    data[at] ^= 1
    for damaged in (bytes(data), bytes(data[:-1]), b"RQE1", b""):
        caplog.clear()
        assert load_ends(volume_with(damaged), PATH) is None
        assert "queueEnds is damaged" in caplog.text
