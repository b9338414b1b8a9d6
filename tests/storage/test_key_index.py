"""The index by keys: its format, its hash, what is found, and what a crash at any write leaves."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.protocol.record import decode_record
from raptormq.protocol.tags import java_hash
from raptormq.storage.config import StoreConfig
from raptormq.storage.index_file import IndexFile
from raptormq.storage.key_hash import key_hash
from raptormq.storage.log_batch import PendingRecord
from raptormq.storage.memory_filesystem import MemoryFileSystem
from raptormq.storage.real_filesystem import RealFileSystem
from raptormq.storage.store import MessageStore

FOREVER = (0, 1 << 62)


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=60))
def test_the_hash_is_java_s(topic: str, key: str) -> None:
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        return
    expected = abs(java_hash(f"{topic}#{key}"))
    assert key_hash(topic, encoded) == (0 if expected == 1 << 31 else expected)


def test_very_long_keys_have_a_hash_too() -> None:
    assert key_hash("t", b"x" * 5_000) == abs(java_hash("t#" + "x" * 5_000))


def test_the_smallest_hash_is_0() -> None:
    text = "polygenelubricants"  # whose hash in Java is the smallest integer
    assert java_hash(text) == -(1 << 31)
    assert java_hash("a#b") == 31 * (31 * 97 + 35) + 98


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
    assert again.index_end()[1] > 0
    again._index.remove_before(again.end_offset)  # type: ignore[union-attr]
    assert sorted((tmp_path / "index").iterdir()) == files[-1:]
    again.close()


def test_the_bytes_are_rocketmq_s(tmp_path: Path) -> None:
    file = IndexFile(RealFileSystem(), str(tmp_path / "20231114000000000"), 5, 8)
    file.put(12, 1000, 50_000)
    file.put(7, 2000, 53_999)
    assert file.flush(64)
    file.close()
    data = (tmp_path / "20231114000000000").read_bytes()
    assert len(data) == 40 + 5 * 4 + 8 * 20
    assert struct.unpack_from(">qqqqii", data) == (50_000, 53_999, 1000, 2000, 1, 3)
    assert struct.unpack_from(">5i", data, 40) == (0, 0, 2, 0, 0)
    assert struct.unpack_from(">iqii", data, 60 + 20) == (12, 1000, 0, 0)
    assert struct.unpack_from(">iqii", data, 60 + 40) == (7, 2000, 3, 1)


async def test_a_file_that_is_no_index_is_removed_and_the_store_starts(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20231114000000000").write_bytes(b"garbage")
    store = MessageStore(config(tmp_path))
    store.open()
    store.append([record("t", "k")])
    store.dispatch()
    assert await found(store, "t", "k") == [b"k"]
    assert not (tmp_path / "index" / "20231114000000000").exists()
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
    store.close()


async def test_without_the_index_nothing_is_found_and_nothing_written(tmp_path: Path) -> None:
    store = MessageStore(StoreConfig(tmp_path, segment_size=1 << 20, index_enabled=False))
    store.open()
    store.append([record("t", "k")])
    store.dispatch()
    assert await found(store, "t", "k") == []
    assert store.index_end() == (0, 0)
    assert not (tmp_path / "index").exists()
    store.close()


@pytest.mark.parametrize("flushes", range(4))
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
