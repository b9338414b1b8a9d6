"""Damaged items of BatchCQ queues are repaired from the log during a read."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path

import pytest

from raptormq.errors import StorageError
from raptormq.protocol.record import iter_records
from raptormq.storage import GetStatus, MessageStore
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.fs.real import RealFileSystem
from raptormq.storage.read import item_repair as item_mending
from raptormq.storage.read.options import ReadOptions
from tests.storage.batch_stores import BATCH_FILE_BYTES, at_once, batch, open_batch_store, read_batches
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, message, put, queue_bounds

ITEM = struct.Struct(">qiqqqhii")
COUNT = 23
SOUND_FLIPS = {"physical": 7, "size": 11, "base": 35, "messages": 37}
"""The last byte of a field, so that the damaged value is plausible."""


def filled(volume: FileSystem, root: str = "/store") -> tuple[MessageStore, list[tuple[int, bytes]]]:
    """Store batches of 1 to 4 messages between those of other topics, and read them from the disk, because the log is
    not resident.
    """
    store = open_batch_store(volume, Clock(), root_dir=root, segment_size=1 << 12, resident_bytes=0)
    for number in range(COUNT):
        put(store, batch([f"{number}-{each}" for each in range(number % 4 + 1)]), message("other", "batches", 1))
        put(store, message("another"))
    store.flush()
    store._queues.flush(100)
    return store, [(each.queue_offset, each.body) for each in read_batches(store)]


def place(number: int, root: str = "/store") -> tuple[str, int]:
    """Return the file of an item, and its position in the file."""
    at = number * ITEM.size
    return f"{root}/batchconsumequeue/batches/0/{at // BATCH_FILE_BYTES * BATCH_FILE_BYTES:020d}", at % BATCH_FILE_BYTES


def item_at(volume: FileSystem, number: int) -> bytes:
    name, at = place(number)
    return volume.open(name).read_at(at, ITEM.size)


def damage(volume: FileSystem, number: int, data: bytes, at: int = 0, root: str = "/store") -> None:
    name, start = place(number, root)
    volume.open(name).write_at(start + at, [data], len(data))


def rot(volume: FileSystem, number: int) -> None:
    """Damage the record of an item instead of the item."""
    physical, size, *_ = ITEM.unpack(item_at(volume, number))
    name = f"/store/commitlog/{physical // 4096 * 4096:020d}"
    volume.open(name).write_at(physical % 4096 + size // 2, [b"rotten"], 6)


def served(store: MessageStore, max_count: int = 7, *, whole: bool = False) -> list[tuple[int, bytes]]:
    return [(each.queue_offset, each.body) for each in read_batches(store, max_count=max_count, whole=whole)]


@pytest.mark.parametrize("field", SOUND_FLIPS)
@pytest.mark.parametrize("number", [0, 1, 11, COUNT - 1])
@pytest.mark.parametrize("flip", [0x01, 0x10])
def test_a_flipped_bit(number: int, field: str, flip: int) -> None:
    volume = MemoryFileSystem()
    store, sent = filled(volume)
    before = item_at(volume, number)
    damage(volume, number, bytes([before[SOUND_FLIPS[field]] ^ flip]), SOUND_FLIPS[field])
    assert served(store) == sent
    assert item_at(volume, number) == before


@pytest.mark.parametrize("seed", range(60))
def test_random_damage(seed: int) -> None:
    """Damage of any length from any byte on: readers of messages and of whole batches receive every message."""
    chance = random.Random(seed)
    volume = MemoryFileSystem()
    store, sent = filled(volume)
    wrappers = served(store, whole=True)
    for _ in range(chance.randrange(1, 4)):
        number, at = chance.randrange(COUNT), chance.randrange(46)
        damage(volume, number, chance.randbytes(min(chance.randrange(1, 31), 46 - at)), at)
    reader = chance.choice(["messages", "batches"])
    found = served(store, chance.choice([1, 2, 32]), whole=reader == "batches")
    assert sorted(set(sent if reader == "messages" else wrappers) - set(found)) == []


@pytest.mark.parametrize("number", [0, 1, 11, COUNT - 1])
@pytest.mark.parametrize("other", [0, 2, 14, COUNT - 1])
def test_another_item_in_its_place(number: int, other: int) -> None:
    """The item is valid, and its record exists."""
    volume = MemoryFileSystem()
    store, sent = filled(volume)
    before = [item_at(volume, each) for each in range(COUNT)]
    damage(volume, number, before[other])
    assert served(store, 3) == sent
    assert [item_at(volume, each) for each in range(COUNT)] == before


def test_a_page_of_zeros() -> None:
    volume = MemoryFileSystem()
    store, sent = filled(volume)
    before = [item_at(volume, number) for number in range(COUNT)]
    for number in range(3, COUNT - 2):
        damage(volume, number, bytes(ITEM.size))
    assert served(store) == sent
    assert [item_at(volume, number) for number in range(COUNT)] == before


@pytest.mark.parametrize("max_count", [1, 32])
def test_a_long_stretch_is_mended_with_one_walk(max_count: int, caplog: pytest.LogCaptureFixture) -> None:
    volume = MemoryFileSystem()
    store = open_batch_store(volume, Clock(), resident_bytes=0, batch_queue_file_size=46 * 2000)
    for number in range(1000):
        put(store, batch([f"{number}", "b"]))
    store.flush()
    store._queues.flush(100)
    volume.open("/store/batchconsumequeue/batches/0/00000000000000000000").write_at(46 * 5, [bytes(46 * 990)], 46 * 990)
    caplog.clear()
    result = at_once(store.load_messages("batches", 0, 1500, ReadOptions(max_count, 1 << 20)))
    assert next(iter_records(b"".join(result.buffers))).queue_offset == 1500
    assert [record.getMessage() for record in caplog.records] == [
        "990 items of batches/0, 5 to 994, were damaged and have been rewritten"
    ]


def test_nothing_but_damage() -> None:
    """The start of the queue in the log is unknown. The store reports this and continues."""
    volume = MemoryFileSystem()
    store, _ = filled(volume)
    for number in range(COUNT):
        damage(volume, number, b"\xff" * ITEM.size)
    wanted = ("batches", 0, 0, ReadOptions(32, 1 << 20))
    result = at_once(store.load_messages(*wanted))
    assert (result.status, result.buffers) == (GetStatus.MESSAGE_WAS_REMOVING, [])
    assert result.next_offset == result.max_offset


def test_a_record_that_is_damaged_itself_costs_its_own_messages() -> None:
    volume = MemoryFileSystem()
    store, sent = filled(volume)
    *_, base, messages, _, _ = ITEM.unpack(item_at(volume, 8))
    rot(volume, 8)
    assert served(store) == [each for each in sent if not base <= each[0] < base + messages]
    damage(
        volume, 9, bytes(ITEM.size)
    )  # and the adjacent item, so that the missing record cannot be determined by counting
    found = served(store)
    assert [each for each in found if each[0] >= base + messages + 2] == [
        each for each in sent if each[0] >= base + messages + 2
    ]


@pytest.mark.parametrize("zeroed", [[COUNT - 1], [18, 19, 20, 21, 22], [0], [0, 1, 2]])
def test_with_a_damaged_record_beside_them_no_item_becomes_another(zeroed: list[int]) -> None:
    """Counting identifies the records only if none is missing."""
    volume = MemoryFileSystem()
    store, sent = filled(volume)
    before = [item_at(volume, number) for number in range(COUNT)]
    rotten = zeroed[0] - 1 if zeroed[0] else zeroed[-1] + 1
    rot(volume, rotten)
    for number in zeroed:
        damage(volume, number, bytes(ITEM.size))
    found = served(store)
    assert len(found) == len(set(found))
    assert [each for each in found if each not in sent] == []
    after = [item_at(volume, number) for number in range(COUNT)]
    assert all(now in (then, bytes(ITEM.size)) for now, then in zip(after, before, strict=True))


def recreated(*old: list[str]) -> tuple[MemoryFileSystem, MessageStore]:
    """Recreate a topic that had `old` batches, with ten new ones."""
    volume = MemoryFileSystem()
    store = open_batch_store(volume, Clock(), segment_size=1 << 12, resident_bytes=0)
    put(store, *(batch(bodies) for bodies in old))
    store.delete_topic("batches")
    store.set_batch_topic("batches")
    for number in range(10):
        put(store, batch([f"new{number}-0", f"new{number}-1"]))
    store.flush()
    store._queues.flush(100)
    return volume, store


def test_records_of_a_deleted_topic_of_the_same_name_are_not_its() -> None:
    volume, store = recreated(["old-0", "old-1"], ["old-2"])
    damage(volume, 0, bytes(ITEM.size))
    assert [body for _, body in served(store)][:3] == [b"new0-0", b"new0-1", b"new1-0"]
    volume, store = recreated(["old-0", "old-1"])
    rot(volume, 0)
    assert [body for _, body in served(store)][:2] == [b"new1-0", b"new1-1"]


def test_after_a_damaged_item_the_living_do_not_pass_for_dead() -> None:
    for number in range(10, COUNT):
        volume = MemoryFileSystem()
        store, sent = filled(volume)
        log_min = ITEM.unpack(item_at(volume, 9))[0] // 4096 * 4096
        damage(volume, number, bytes(ITEM.size))
        while store._log.segments[0].base < log_min:
            store._log.remove_first()
        low = queue_bounds(store, "batches", 0)[0]
        assert served(store) == [each for each in sent if each[0] >= low]
        assert low <= sum(each % 4 + 1 for each in range(9))


def test_a_message_of_another_topic_is_never_delivered() -> None:
    """A flipped bit in the offset leads to the start of a record of the same size."""
    volume = MemoryFileSystem()
    store = open_batch_store(volume, Clock(), segment_size=1 << 14, resident_bytes=0)
    for _ in range(10):
        put(store, message("m" * 20, "batches"), message("s" * 20, "secrets"))
    store.flush()
    store._queues.flush(100)
    before = item_at(volume, 4)
    physical, size, *_ = ITEM.unpack(before)
    other = physical + size
    damage(volume, 4, other.to_bytes(8, "big"))
    assert [each.topic for each in read_batches(store)] == ["batches"] * 10
    assert item_at(volume, 4) == before


def test_a_walk_that_fails_is_an_error_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = MemoryFileSystem()
    store, sent = filled(volume)
    damage(volume, 6, bytes(ITEM.size))

    def broken(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(item_mending, "_items_around", broken)
        with pytest.raises(StorageError, match="Too many open files"):
            served(store)
    assert served(store) == sent


def test_it_looks_so_far_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_mending, "MAX_BYTES", 100)
    volume = MemoryFileSystem()
    store, sent = filled(volume)
    damage(volume, 5, bytes(ITEM.size))
    lost = [each for each in sent if each not in served(store)]
    assert [body[:2] for _, body in lost] == [b"5-"] * 2


async def test_a_thread_walks_through_the_log(tmp_path: Path) -> None:
    """With real files, the event loop is not blocked: the first read of a damaged item is not resident."""
    volume, root = RealFileSystem(), str(tmp_path / "store")
    store, sent = await asyncio.to_thread(filled, volume, root)
    damage(volume, 6, bytes(ITEM.size), root=root)
    store.set_loop(asyncio.get_running_loop())
    base = sum(number % 4 + 1 for number in range(6))
    wanted = ("batches", 0, base, ReadOptions(3, 1 << 20))
    assert store.get_messages(*wanted).non_resident
    assert (await store.load_messages(*wanted)).message_count == 3
    assert store.get_messages(*wanted).message_count == 3
    assert served(store) == sent
    store.close()


def test_what_was_mended_stays_so_after_a_power_cut() -> None:
    volume = MemoryFileSystem()
    store, sent = filled(volume)
    damage(volume, 4, bytes(ITEM.size))
    assert served(store) == sent
    assert store._opened is not None
    store._opened.maintenance.flush_all()
    survivor = open_batch_store(volume.after_power_cut(), segment_size=1 << 12, resident_bytes=0)
    assert item_at(volume, 4) != bytes(ITEM.size)
    assert served(survivor) == sent
