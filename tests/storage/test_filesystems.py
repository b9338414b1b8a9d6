"""The real and the in-memory file system have the same semantics."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from raptormq.files import read_file, write_file
from raptormq.storage.fs.filesystem import DiskUsage, FileSystem
from raptormq.storage.fs.real import RealFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.page_cache_state import leaves_memory, pages_in_memory

MIB = 1 << 20


@dataclass
class Volume:
    fs: FileSystem
    root: str


@pytest.fixture(params=["real", "memory"])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Volume:
    fs: FileSystem = RealFileSystem() if request.param == "real" else MemoryFileSystem()
    fs.make_folders(str(tmp_path))
    return Volume(fs, str(tmp_path))


def test_write_read_map(volume: Volume) -> None:
    file = volume.fs.open(f"{volume.root}/file", create=True)
    file.allocate(8192)
    assert file.size() == 8192
    view = file.map(8192)
    file.write_at(4094, [b"ab", bytearray(b"cd"), memoryview(b"ef")], 6)
    assert file.read_at(4093, 8) == b"\0abcdef\0"
    assert bytes(file.read_cached(4094, 6) or b"") == b"abcdef"
    assert bytes(view[4094:4100]) == b"abcdef"
    assert view.readonly
    assert file.read_at(8190, 100) == b"\0\0"
    assert file.read_at(9000, 100) == b""
    assert len(file.read_cached(8190, 100) or b"") == 2
    file.sync()
    file.truncate(10)
    assert file.size() == 10
    file.truncate(20)
    assert file.read_at(0, 20) == bytes(20)
    file.close()


@pytest.mark.parametrize("size", [1, 64 * 1024, 65 << 20])
def test_what_was_loaded_is_in_memory_and_unchanged(volume: Volume, size: int) -> None:
    file = volume.fs.open(f"{volume.root}/file", create=True)
    file.allocate(size)
    file.write_at(0, [b"a"], 1)
    file.load(0, size)
    file.load(size - 1, 1000)  # across the end
    file.load(size + 10, 10)
    assert file.size() == size
    assert file.read_cached(max(size - 4096, 0), 4096) == (b"a" if size == 1 else bytes(4096))
    assert file.read_at(0, 1) == b"a"
    file.close()


def test_more_parts_than_one_call_takes(volume: Volume) -> None:
    file = volume.fs.open(f"{volume.root}/file", create=True)
    parts = [bytes([number % 256]) * 3 for number in range(3000)]
    file.write_at(5, parts, 9000)
    assert file.read_at(0, 9005) == bytes(5) + b"".join(parts)
    file.close()


@pytest.mark.parametrize("large", [0, 100, 40_000])
def test_small_parts_between_larger_ones(volume: Volume, large: int) -> None:
    file = volume.fs.open(f"{volume.root}/file", create=True)
    parts = [bytes([number]) * (large if number % 5 == 1 else number) for number in range(40)]
    content = b"".join(parts)
    file.write_at(3, parts, len(content))
    assert file.read_at(0, 3 + len(content)) == bytes(3) + content
    file.close()


def test_next_data(volume: Volume) -> None:
    file = volume.fs.open(f"{volume.root}/file", create=True)
    file.truncate(1 << 20)
    assert file.next_data(0) is None
    file.write_at(500_000, [b"x"], 1)
    found = file.next_data(0)
    assert found is not None
    assert 500_000 - 65_536 <= found <= 500_000
    assert file.next_data(700_000) is None
    file.close()


def test_names(volume: Volume) -> None:
    fs, root = volume.fs, volume.root
    fs.make_folders(f"{root}/a/b")
    fs.make_folders(f"{root}/a/b")
    for name in ("two", "one"):
        fs.open(f"{root}/a/{name}", create=True).close()
    assert fs.names(f"{root}/a") == ["b", "one", "two"]
    assert fs.names(f"{root}/none") == []
    assert fs.exists(f"{root}/a/b")
    assert not fs.exists(f"{root}/a/c")
    fs.replace(f"{root}/a/one", f"{root}/a/two")
    fs.remove(f"{root}/a/none")
    assert fs.names(f"{root}/a") == ["b", "two"]
    fs.remove(f"{root}/a/two")
    fs.sync_directory(f"{root}/a")
    fs.sync_volume(f"{root}/a")
    fs.remove_tree(f"{root}/a")
    fs.remove_tree(f"{root}/a")
    assert not fs.exists(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/a/b", create=True)


def test_small_files(volume: Volume) -> None:
    path = f"{volume.root}/small"
    write_file(volume.fs, path, b"long contents")
    write_file(volume.fs, path, b"short")
    assert read_file(volume.fs, path) == b"short"
    assert volume.fs.modified_ms(path) >= 0
    usage = volume.fs.usage(volume.root)
    assert 0 <= usage.used_ratio <= 1
    assert usage.free <= usage.total


def test_a_lock_is_held_once(volume: Volume) -> None:
    path = f"{volume.root}/lock"
    lock = volume.fs.lock(path)
    with pytest.raises(BlockingIOError):
        volume.fs.lock(path)
    lock.release()
    volume.fs.lock(path).release()


def test_an_empty_volume_is_full() -> None:
    assert DiskUsage(0, 0).used_ratio == 1.0


def test_the_volume_in_memory_has_an_end() -> None:
    volume = MemoryFileSystem(capacity=100)
    file = volume.open("/file", create=True)
    file.allocate(90)
    with pytest.raises(OSError, match="No space left") as caught:
        file.allocate(101)
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        file.write_at(95, [b"123456"], 6)
    assert volume.usage("/") == DiskUsage(100, 10)


def test_what_survives_a_power_cut() -> None:
    volume = MemoryFileSystem()
    volume.make_folders("/kept")
    volume.make_folders("/lost")
    durable, renamed = volume.open("/kept/durable", create=True), volume.open("/kept/old", create=True)
    volume.open("/lost/file", create=True).sync()
    durable.write_at(0, [b"one"], 3)
    durable.sync()
    durable.write_at(0, [b"two"], 3)
    renamed.write_at(0, [b"never synced"], 12)
    volume.sync_directory("/lost")
    assert volume.after_power_cut().names("/") == []
    volume.sync_directory("/kept")
    volume.remove_tree("/lost")
    volume.sync_directory("/")
    volume.replace("/kept/old", "/kept/new")
    survivor = volume.after_power_cut()
    assert survivor.names("/") == ["kept"]
    assert survivor.names("/kept") == ["durable", "old"]
    assert survivor.open("/kept/durable").read_at(0, 9) == b"one"
    assert survivor.open("/kept/old").read_at(0, 20) == b""
    killed = volume.after_kill()
    assert killed.names("/kept") == ["durable", "new"]
    assert killed.open("/kept/durable").read_at(0, 9) == b"two"
    assert killed.after_power_cut().open("/kept/durable").read_at(0, 9) == b"one"


def test_a_power_cut_tears_writes_between_sectors() -> None:
    volume = MemoryFileSystem()
    file = volume.open("/file", create=True)
    volume.sync_directory("/")
    file.truncate(2048)
    file.sync()
    file.write_at(0, [b"x" * 2048], 2048)
    seen = {volume.after_power_cut(random.Random(seed)).open("/file").read_at(0, 2048) for seed in range(60)}
    assert {data[at : at + 512] for data in seen for at in range(0, 2048, 512)} == {bytes(512), b"x" * 512}
    assert len(seen) > 8


def test_a_read_of_a_mapped_file_brings_no_more_than_its_page_into_memory(tmp_path: Path) -> None:
    file = RealFileSystem().open(str(tmp_path / "file"), create=True)
    file.allocate(MIB)
    file.sync()
    file.evict(0, MIB)
    view = file.map(MIB)
    assert view[0] == 0
    pages = pages_in_memory(tmp_path / "file")
    assert sum(pages) == 1 or not leaves_memory(tmp_path)
    view.release()
    file.close()
