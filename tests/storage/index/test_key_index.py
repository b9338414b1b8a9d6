"""The key index: file format, hash, search results, and its state after a crash at any write."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import DiskFull
from raptormq.protocol.record import decode_record
from raptormq.protocol.tags import java_hash
from raptormq.storage.config import StoreConfig
from raptormq.storage.fs.filesystem import Buffer
from raptormq.storage.fs.real import RealFile, RealFileSystem
from raptormq.storage.index.index_file import IndexFile
from raptormq.storage.index.key_hash import key_hash, key_hashes
from raptormq.storage.queue.append_batches import PendingRecord
from raptormq.storage.store import MessageStore
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import all_of, write_header

FOREVER = (0, 1 << 62)


def java(topic: str, key: str) -> int:
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 1 << 31 else value


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=20))
def test_the_hashes_are_java_s(pairs: list[tuple[str, str]]) -> None:
    expected = [java(topic, key) for topic, key in pairs]
    assert [key_hash(topic, key) for topic, key in pairs] == expected
    assert key_hashes([topic for topic, _ in pairs], [key.encode() for _, key in pairs]).tolist() == expected


def test_ascii_keys_of_all_lengths_are_hashed_together() -> None:
    keys = ["".join(chr(33 + (length * place) % 90) for place in range(length)) for length in range(1, 1_030)]
    for some in (keys, keys[:1_023], keys[:1], ["DEADBEEF01"] * 600):
        hashes = key_hashes([f"t{len(key) % 3}" for key in some], [key.encode() for key in some])
        assert hashes.tolist() == [java(f"t{len(key) % 3}", key) for key in some]


def test_the_smallest_hash_becomes_0() -> None:
    topic, key = "a", smallest_after("a#")
    assert java_hash(f"{topic}#{key}") == -(1 << 31)
    assert key_hash(topic, key) == key_hashes([topic], [key.encode()])[0] == 0


def smallest_after(start: str) -> str:
    """Return a text after ``start`` for which Java's hash is the smallest integer: the missing sum in base 31."""
    length = 8
    missing = ((1 << 31) - java_hash(start) * 31**length) % (1 << 32)
    for turns in range(1 << 16):
        rest, units = missing + (turns << 32), []
        for _ in range(length):
            units.append(64 + (rest - 64) % 31)
            rest = (rest - units[-1]) // 31
        if rest == 0:
            return "".join(map(chr, reversed(units)))
    raise AssertionError("there is no such text")


def config(root: Path, **more: int) -> StoreConfig:
    return StoreConfig(root, segment_size=1 << 20, **{"index_slots": 50, "index_entries": 200, **more})  # type: ignore[arg-type]


def record(topic: str, key: str, unique: str = "", more: str = "") -> PendingRecord:
    unique_text = f"UNIQ_KEY\x01{unique}\x02" if unique else ""
    return PendingRecord(topic, 0, key.encode(), f"KEYS\x01{key}\x02{unique_text}{more}".encode())


async def found(
    store: MessageStore, topic: str, key: str, times: tuple[int, int] = FOREVER, limit: int = 64
) -> list[bytes]:
    return [decode_record(data).body for data in await store.find_by_key(topic, key, *times, limit)]


async def test_messages_are_found_by_each_key_and_by_unique_key_newest_first(tmp_path: Path) -> None:
    store = MessageStore(config(tmp_path), clock=lambda: 1_700_000_000_000)
    store.open()
    store.append([record("t", "a b", "U1"), record("t", "b c", "U2"), record("other", "a")])
    store.append([PendingRecord("t", 0, b"no keys"), record("t", "d", "", "XUNIQ_KEY\x01U9\x02")])
    store.dispatch()
    assert await found(store, "t", "a") == await found(store, "t", "U1") == [b"a b"]
    assert await found(store, "t", "b") == [b"b c", b"a b"]
    assert await found(store, "t", "b", limit=1) == [b"b c"]
    assert (
        await found(store, "t", "nothing") == await found(store, "t", "U9") == await found(store, "nowhere", "a") == []
    )
    store.close()


async def test_times_bound_what_is_found_exactly(tmp_path: Path) -> None:
    now = 1_700_000_000_500
    store = MessageStore(config(tmp_path), clock=lambda: now)
    store.open()
    for now in (1_700_000_000_500, 1_700_000_001_499, 1_700_000_009_000):
        store.append([record("t", "k", str(now))])
    store.dispatch()
    assert len(await found(store, "t", "k")) == 3
    assert len(await found(store, "t", "k", (1_700_000_000_501, 1_700_000_001_499))) == 1
    assert len(await found(store, "t", "k", (1_700_000_001_500, 1_700_000_008_999))) == 0
    assert len(await found(store, "t", "k", (0, 1_700_000_000_500))) == 1
    store.close()


async def test_files_roll_when_full_and_go_with_the_log(tmp_path: Path) -> None:
    store = MessageStore(config(tmp_path, index_entries=10), clock=lambda: 1_700_000_000_000)
    store.open()
    for number in range(40):
        store.append([record("t", f"k{number}", f"u{number}")])
    store.dispatch()
    assert [await found(store, "t", f"k{number}") for number in range(40)] == [[b"k%d" % n] for n in range(40)]
    files = sorted((tmp_path / "index").iterdir())
    assert len(files) == 10
    assert files[0].name.isdigit()
    assert len(files[0].name) == 17
    store.close()
    again = MessageStore(config(tmp_path, index_entries=10), clock=lambda: 1_700_000_000_000)
    again.open()
    assert [await found(again, "t", f"u{number}") for number in range(40)] == [[b"k%d" % n] for n in range(40)]
    assert again.index_position()[1] > 0
    taken = again._index.drop_before(again.end_offset)  # type: ignore[union-attr]
    assert sorted(taken) == [str(path) for path in files[:-1]]
    assert await found(again, "t", "u0") == []
    assert await found(again, "t", "u39") == [b"k39"]
    again.close()


def test_the_bytes_are_rocketmq_s(tmp_path: Path) -> None:
    file = IndexFile.create(RealFileSystem(), str(tmp_path / "20231114000000000"), 5, 8)
    file.put(np.array([12, 7], np.int32), np.array([1000, 2000]), np.array([50_000, 53_999]))
    assert file.flush(64)
    write_header(file, RealFileSystem())
    file.close()
    data = (tmp_path / "20231114000000000").read_bytes()
    assert len(data) == 40 + 5 * 4 + 8 * 20
    assert struct.unpack_from(">qqqqii", data) == (50_000, 53_999, 1000, 2000, 1, 3)
    assert struct.unpack_from(">5i", data, 40) == (0, 0, 2, 0, 0)
    assert struct.unpack_from(">iqii", data, 60 + 20) == (12, 1000, 0, 0)
    assert struct.unpack_from(">iqii", data, 60 + 40) == (7, 2000, 3, 1)


def test_a_great_many_entries_are_written_a_few_at_a_time_and_found_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = IndexFile.create(RealFileSystem(), str(tmp_path / "20231114000000000"), 5_000, 20_000)
    sizes: list[int] = []
    write_at = RealFile.write_at

    def measured(self: RealFile, offset: int, parts: Sequence[Buffer], size: int) -> None:
        sizes.append(size)
        write_at(self, offset, parts, size)

    monkeypatch.setattr(RealFile, "write_at", measured)
    hashes = np.arange(10_000, dtype=np.int32)
    file.put(hashes, hashes.astype(np.int64) * 100, np.full(10_000, 50_000))
    while not file.flush(2):
        assert all_of(file, 9_999, 0, 60_000) == [999_900]
        assert all_of(file, 0, 0, 60_000) == [0]
    write_header(file, RealFileSystem())
    assert file.header is None
    assert sum(sizes) == 40 + 5_000 * 4 + 10_000 * 20
    assert max(sizes) <= 2 * 4096
    file.close()


async def test_a_file_that_is_no_index_is_set_aside_and_the_store_starts(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20231114000000000").write_bytes(b"garbage")
    store = MessageStore(config(tmp_path))
    store.open()
    store.append([record("t", "k")])
    store.dispatch()
    assert await found(store, "t", "k") == [b"k"]
    assert not (tmp_path / "index" / "20231114000000000").exists()
    assert (tmp_path / "index" / "20231114000000000.aside").read_bytes() == b"garbage"
    store.close()


async def test_an_index_that_cannot_grow_costs_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MessageStore(config(tmp_path))
    store.open()

    def fail() -> None:
        raise OSError(28, "no room")

    monkeypatch.setattr(store._index, "_new_file", fail)
    store.append([record("t", "k")])
    assert len(store.dispatch()) == 1
    assert await found(store, "t", "k") == []
    with pytest.raises(DiskFull):
        store.close()


async def test_without_the_index_nothing_is_found_and_nothing_written(tmp_path: Path) -> None:
    store = MessageStore(StoreConfig(tmp_path, segment_size=1 << 20, index_enabled=False))
    store.open()
    store.append([record("t", "k")])
    store.dispatch()
    assert await found(store, "t", "k") == []
    assert store.index_position() == (0, 0)
    assert not (tmp_path / "index").exists()
    store.close()


@pytest.mark.parametrize("flushes", [0, 1, 2, 3, 11, 20])
async def test_after_a_killed_process_everything_is_found_again(flushes: int) -> None:
    filesystem = MemoryFileSystem()
    settings = StoreConfig(Path("/store"), segment_size=1 << 20, index_slots=5_000, index_entries=20_000)
    store = MessageStore(settings, fs=filesystem, clock=lambda: 1_700_000_000_000)
    store.open()
    for start in range(0, 3_000, 1_000):
        store.append([record("t", f"k{number}", f"u{number}") for number in range(start, start + 1_000)])
        store.dispatch()
        for _ in range(flushes):
            store._index.flush(1)  # type: ignore[union-attr]
    again = MessageStore(settings, fs=filesystem.after_kill(), clock=lambda: 1_700_000_000_000)
    again.open()
    assert [await found(again, "t", f"k{number}") for number in range(0, 3_000, 7)] == [
        [b"k%d" % number] for number in range(0, 3_000, 7)
    ]
    assert len(again._index._files) == 1  # type: ignore[union-attr]
    again.close()
