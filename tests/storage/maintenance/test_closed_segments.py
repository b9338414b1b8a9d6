"""Damage at any position of closed segments is found, and repaired from another copy to the same bytes."""

from __future__ import annotations

import errno
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import NoValidCopy, RecordError, StorageError
from raptormq.protocol.record import BLANK_BYTES
from raptormq.storage import MessageStore
from raptormq.storage.records import DamagedRange
from tests.storage.memory_filesystem import MemoryFile, MemoryFileSystem
from tests.storage.stores import SEGMENT_BYTES, message, open_store

SIZES = [1, 90, 400, 700, 30]
COUNT = 40
_BODY_AT, _BORN_AT = 88, 40


def filled(volume: MemoryFileSystem) -> tuple[MessageStore, list[tuple[int, int]]]:
    """Return a store of several segments, and the offset and size of its records."""
    store = open_store(volume)
    places = []
    for number in range(COUNT):
        appended = store.append([message(f"{number}".ljust(SIZES[number % len(SIZES)], "."))])
        places.append((appended.physical_offsets[0], appended.sizes[0]))
    store.dispatch()
    store.flush()
    return store, places


def log_bytes(store: MessageStore) -> bytes:
    return b"".join(map(bytes, store.read_log(store.start_offset, store.end_offset, wait=True)))


def overwrite(volume: MemoryFileSystem, offset: int, data: bytes) -> None:
    base = offset - offset % SEGMENT_BYTES
    file = volume.open(f"/store/commitlog/{base:020d}")
    file.write_at(offset - base, [data], len(data))


def flip(volume: MemoryFileSystem, store: MessageStore, offset: int, bit: int = 0) -> None:
    overwrite(volume, offset, bytes([log_bytes(store)[offset] ^ (1 << bit)]))


def check(store: MessageStore, piece: int = 300) -> list[DamagedRange]:
    """Check all closed segments in steps."""
    at, found = store.start_offset, list[DamagedRange]()
    while at < store.closed_segments().end:
        result = store.closed_segments().check(at, at + piece)
        assert result.reached > at
        found += result.damaged
        at = result.reached
    assert at == store.closed_segments().end
    return found


def repair(damaged: MessageStore, intact: MessageStore, found: DamagedRange, most: int = 500) -> None:
    at, end = found.offset, found.offset + found.size
    while at < end:
        data = intact.closed_segments().read_valid(at, end, most)
        at = damaged.closed_segments().repair(at, end, data)


@pytest.mark.parametrize("piece", [1, 100, 300, 10_000])
def test_an_intact_log_is_checked_up_to_the_open_segment(piece: int) -> None:
    store, _ = filled(MemoryFileSystem())
    assert check(store, piece) == []
    assert 0 < store.end_offset - store.closed_segments().end <= SEGMENT_BYTES
    assert store.closed_segments().end % SEGMENT_BYTES == 0


@pytest.mark.parametrize("piece", [1, 300, 10_000])
def test_the_digest_of_a_check_is_that_of_the_records_alone(piece: int) -> None:
    volume = MemoryFileSystem()
    store, places = filled(volume)
    at, end = 0, store.closed_segments().end
    while at < end:
        result = store.closed_segments().check(at, at + piece)
        records = [(offset, offset + size) for offset, size in places if at <= offset < result.reached]
        whole = store.closed_segments().check(at, result.reached)
        assert whole == result
        filler = records[-1][1] if records else at
        if filler + BLANK_BYTES < result.reached:
            flip(volume, store, filler + BLANK_BYTES)
        assert store.closed_segments().check(at, result.reached).digest == result.digest
        for begin, _ in records:
            flip(volume, store, begin + _BORN_AT)
            assert store.closed_segments().check(at, result.reached).digest not in ("", result.digest)
            flip(volume, store, begin + _BORN_AT)
        assert store.closed_segments().check(at, result.reached).digest == result.digest
        at = result.reached
    flip(volume, store, places[0][0] + _BODY_AT)
    assert store.closed_segments().check(0, end).digest == ""


def test_what_is_not_dispatched_or_not_flushed_is_not_checked() -> None:
    store = open_store(MemoryFileSystem())
    while store.end_offset < 2 * SEGMENT_BYTES:
        store.append([message("x" * 400)])
    store.dispatch()
    assert store.closed_segments().end == 0
    store.flush()
    assert store.closed_segments().end == 2 * SEGMENT_BYTES


@given(data=st.data())
def test_flipped_bits_are_found_and_repaired_byte_for_byte(data: st.DataObject) -> None:
    volume, other = MemoryFileSystem(), MemoryFileSystem()
    (store, places), (copy, _) = filled(volume), filled(other)
    before = log_bytes(store)
    closed = [place for place in places if place[0] < store.closed_segments().end]
    hit = data.draw(st.sets(st.sampled_from(closed), min_size=1, max_size=5))
    for offset, size in hit:
        # Size, magic and CRC, the log offset, or the body: the checked fields.
        within = data.draw(st.sampled_from([*range(12), *range(28, 36), *range(88, 88 + min(20, size - 100))] or [0]))
        flip(volume, store, offset + within, data.draw(st.integers(0, 7)))
    found = check(store, data.draw(st.sampled_from([100, 300, 3000])))
    covered = [place for place in hit if any(each.offset <= place[0] < each.offset + each.size for each in found)]
    assert sorted(covered) == sorted(hit)
    for each in found:
        repair(store, copy, each, data.draw(st.sampled_from([1, 500, 5000])))
    assert log_bytes(store) == before
    assert check(store) == []


def test_the_end_of_a_segment_is_repaired_and_so_is_a_whole_one() -> None:
    volume, other = MemoryFileSystem(), MemoryFileSystem()
    (store, places), (copy, _) = filled(volume), filled(other)
    before = log_bytes(store)
    last, size = max(place for place in places if place[0] < SEGMENT_BYTES)
    assert last + size < SEGMENT_BYTES, "the segment ends with a filler"
    overwrite(volume, last + size, b"\xff" * 8)
    overwrite(volume, SEGMENT_BYTES, bytes(SEGMENT_BYTES))
    found = check(store)
    assert [(each.offset, each.size) for each in found] == [(last + size, 2 * SEGMENT_BYTES - last - size)]
    for each in found:
        repair(store, copy, each)
    assert log_bytes(store) == before


def test_a_size_that_claims_the_rest_of_the_segment_costs_no_other_record() -> None:
    volume = MemoryFileSystem()
    store, places = filled(volume)
    offset, size = places[1]
    overwrite(volume, offset, (SEGMENT_BYTES - offset).to_bytes(4, "big"))
    assert [(each.offset, each.size) for each in check(store)] == [(offset, size)]


def test_a_damaged_copy_is_not_read_and_neither_is_what_is_not_in_the_log_or_not_flushed() -> None:
    volume = MemoryFileSystem()
    store, places = filled(volume)
    (first, size), (second, _) = places[0], places[1]
    flip(volume, store, first + 88)
    with pytest.raises(NoValidCopy, match="this copy of the log is damaged"):
        store.closed_segments().read_valid(first, second, 1000)
    with pytest.raises(NoValidCopy, match="no record begins at offset"):
        store.closed_segments().read_valid(second + 1, second + 200, 1000)
    with pytest.raises(NoValidCopy, match="beyond"):
        store.closed_segments().read_valid(second, second + 10, 1000)
    end = store.end_offset
    for begin, limit in ((end, end + 100), (second, second), (-5, 100)):
        with pytest.raises(NoValidCopy, match="not within the log"):
            store.closed_segments().read_valid(begin, limit, 1000)
    store.append([message("not dispatched")])
    with pytest.raises(StorageError, match="not within its dispatched and flushed part") as refused:
        store.closed_segments().read_valid(end, store.end_offset, 1000)
    assert not isinstance(refused.value, NoValidCopy)
    assert size == second - first


def test_other_bytes_than_records_of_these_offsets_are_not_written() -> None:
    volume = MemoryFileSystem()
    store, places = filled(volume)
    before = log_bytes(store)
    (first, _), (second, _), (third, size) = places[:3]
    record = before[first:second]
    for begin, limit, data in (
        (second, third, record),  # another offset
        (first, second, record[:-1]),
        (first, second - 1, record),
        (first, second, record[:88] + b"?" + record[89:]),
        (first, second, b""),
        (store.end_offset, store.end_offset + 100, record),
    ):
        with pytest.raises(RecordError):
            store.closed_segments().repair(begin, limit, data)
    assert log_bytes(store) == before
    assert store.closed_segments().repair(first, third + size, record) == second


def test_a_repair_is_durable() -> None:
    volume, other = MemoryFileSystem(), MemoryFileSystem()
    (store, places), (copy, _) = filled(volume), filled(other)
    before = log_bytes(store)
    flip(volume, store, places[3][0] + 88)
    volume.sync_volume("/store")
    for each in check(store):
        repair(store, copy, each)
    recovered = open_store(volume.after_power_cut(random.Random(1)))
    assert log_bytes(recovered)[: len(before)] == before


def test_what_the_disk_cannot_read_is_damage_up_to_the_end_of_the_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = MemoryFileSystem()
    store, _ = filled(volume)
    read_at = MemoryFile.read_at

    def failing(self: MemoryFile, offset: int, size: int) -> bytes:
        if f"{SEGMENT_BYTES:020d}" in self._path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_at(self, offset, size)

    monkeypatch.setattr(MemoryFile, "read_at", failing)
    found = check(store, 10_000)
    assert [(each.offset, each.size) for each in found] == [(SEGMENT_BYTES, SEGMENT_BYTES)]
    assert found[0].reason == "the disk cannot read it: Input/output error"


def test_a_segment_that_retention_has_deleted_meanwhile_is_no_damage() -> None:
    volume = MemoryFileSystem()
    store, _ = filled(volume)
    segments = store.closed_segments()
    volume.remove(f"/store/commitlog/{0:020d}")
    assert segments.check(0, 100) == (SEGMENT_BYTES, [], "")


@pytest.mark.parametrize("piece", [1, 5, 60, 10_000])
def test_a_place_is_checked_at_once_also_in_the_open_segment_and_within_a_record(piece: int) -> None:
    volume, other = MemoryFileSystem(), MemoryFileSystem()
    (store, places), (copy, _) = filled(volume), filled(other)
    before = log_bytes(store)
    for offset, size in (places[4], places[-2]):
        assert store.closed_segments().check_at(offset + 10, piece)[1].damaged == []
        flip(volume, store, offset + 88)
        for at in (offset, offset + 10):
            begin, result = store.closed_segments().check_at(at, piece)
            assert begin == offset
            assert result.reached >= offset + size
            assert [(each.offset, each.size) for each in result.damaged] == [(offset, size)]
        repair(store, copy, result.damaged[0])
    assert log_bytes(store) == before
