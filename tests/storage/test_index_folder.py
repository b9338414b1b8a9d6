"""A start with various contents of the folder of the key index."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from raptormq.files import write_file
from raptormq.storage import PendingRecord
from raptormq.storage.config import StoreConfig
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.fs.real import RealFileSystem
from raptormq.storage.index.index_file import HEADER, IndexFile, remove_set_aside
from raptormq.storage.store import MessageStore
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, checkpoint, open_store, put, run_retention

NAME = "20231114000000000"


def opened(root: Path, volume: FileSystem | None = None, slots: int = 50, entries: int = 200) -> MessageStore:
    config = StoreConfig(root, segment_size=1 << 20, index_slots=slots, index_entries=entries)
    store = MessageStore(config, fs=volume or RealFileSystem(), clock=lambda: 1_700_000_000_000)
    store.open()
    return store


def append(store: MessageStore, numbers: range) -> None:
    store.append([PendingRecord("t", 0, b"x", b"KEYS\x01k%d\x02" % number) for number in numbers])
    store.dispatch()


async def found(store: MessageStore, numbers: range) -> list[int]:
    return [number for number in numbers if len(await store.find_by_key("t", f"k{number}", 0, 1 << 62, 9)) == 1]


async def test_only_names_of_17_digits_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "index" / "lost+found").mkdir(parents=True)
    (tmp_path / "index" / NAME).mkdir()
    (tmp_path / "index" / "notes.txt").write_text("mine")
    (tmp_path / "index" / "empty").touch()
    store = opened(tmp_path)
    append(store, range(10))
    assert await found(store, range(10)) == [*range(10)]
    store.close()
    names = {path.name for path in (tmp_path / "index").iterdir()}
    assert {"lost+found", "notes.txt", "empty", f"{NAME}.aside"} < names
    assert (tmp_path / "index" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "index" / "empty").stat().st_size == 0


def test_an_empty_file_is_removed_without_being_grown() -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(kind="truncate", path="/index/", error=errno.EIO, repeats=True))
    volume.make_folders("/store/index")
    volume.open(f"/store/index/{NAME}", create=True)
    opened(Path("/store"), volume).close()
    assert volume.names("/store/index") == []


def test_a_file_that_cannot_grow_is_neither_left_nor_kept_open(tmp_path: Path) -> None:
    volume = FaultyFileSystem(RealFileSystem(), Fault(kind="truncate", error=errno.ENOSPC))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="space"):
        IndexFile.create(volume, str(tmp_path / NAME), 50, 200)
    assert len(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("entries", [100, 1_000])
async def test_another_number_of_entries_costs_no_key(tmp_path: Path, entries: int) -> None:
    store = opened(tmp_path)
    append(store, range(300))
    store.close()
    again = opened(tmp_path, entries=entries)
    append(again, range(300, 1_500))
    assert await found(again, range(1_500)) == [*range(1_500)]
    again.close()
    once_more = opened(tmp_path)
    assert await found(once_more, range(1_500)) == [*range(1_500)]
    once_more.close()


@pytest.mark.parametrize("slots", [45, 49, 51, 55, 60, 100])
async def test_files_of_another_number_of_slots_are_set_aside(
    tmp_path: Path, slots: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(tmp_path)
    append(store, range(150))
    store.close()
    (path,) = (tmp_path / "index").iterdir()
    again = opened(tmp_path, slots=slots)
    assert f"the file has been renamed to {path}.aside" in caplog.text
    append(again, range(150, 300))
    assert await found(again, range(300)) == [*range(150, 300)]
    again.close()
    path.unlink()
    path.with_name(f"{path.name}.aside").rename(path)
    as_before = opened(tmp_path)
    assert await found(as_before, range(150)) == [*range(150)]
    as_before.close()


def test_what_is_set_aside_goes_with_its_messages() -> None:
    def record(number: int) -> PendingRecord:
        return PendingRecord("t", 0, b"." * 1_500, b"KEYS\x01k%d\x02" % number)  # fills a segment

    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store = open_store(volume, clock, index_slots=50, index_entries=200)
    put(store, record(0), record(1))
    store.close()
    (name,) = volume.names("/store/index")
    write_file(volume, f"/store/index/{NAME[:-1]}7", b"mine")
    store = open_store(volume, clock, index_slots=100, index_entries=200)
    kept, aside = f"{NAME[:-1]}7.aside", f"{name}.aside"
    put(store, record(2), record(3))
    checkpoint(store)
    assert {kept, aside} < set(volume.names("/store/index"))
    store.config.disk_clean_ratio, store.config.delete_batch_max = 0.0, 1
    for is_there in (True, False):
        run_retention(store, clock.now)
        names = set(volume.names("/store/index"))
        assert (aside in names, kept in names, len(names)) == (is_there, True, 2 + is_there)


def test_a_folder_that_is_set_aside_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / f"{NAME}.aside"
    folder.mkdir()
    remove_set_aside(RealFileSystem(), str(tmp_path), 1 << 60)
    assert folder.exists()


def test_only_files_that_were_set_aside_are_removed_and_each_once(tmp_path: Path) -> None:
    header = HEADER.pack(1, 2, 10, 20, 1, 2)
    for name in (f"{NAME}.aside", "mine.aside", f"{NAME}.aside.bak"):
        (tmp_path / name).write_bytes(header)
    (tmp_path / f"{NAME[:-1]}9.aside").symlink_to(tmp_path / "nowhere")
    remove_set_aside(RealFileSystem(), str(tmp_path), 21)
    assert {path.name for path in tmp_path.iterdir()} == {
        "mine.aside",
        f"{NAME}.aside.bak",
        f"{NAME[:-1]}9.aside",
    }
