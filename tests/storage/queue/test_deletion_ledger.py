"""The ledger of deleted topics."""

from __future__ import annotations

import asyncio
import errno
import json

import pytest

from raptormq.errors import StorageError, StoreDamaged
from raptormq.files import write_file
from raptormq.storage.fs.filesystem import FileSystem, StorePaths
from raptormq.storage.queue.topic_state import DeletionLedger
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Inline

PATHS = StorePaths("/store", "/store/commitlog")
PATH = "/store/config/deletedTopics.json"


def ledger(volume: FileSystem) -> DeletionLedger:
    volume.make_folders("/store/config")
    volume.make_folders("/store/consumequeue")
    return DeletionLedger(volume, PATHS)


def read(volume: FileSystem) -> dict[str, int]:
    return ledger(volume).load()


def test_entries_come_back() -> None:
    volume = MemoryFileSystem()
    written = ledger(volume)
    written.add("a", 1 << 40)
    written.add("b", 0)
    written.add("b", 7)
    asyncio.run(written.save(Inline()))
    assert read(volume.after_kill()) == {"a": 1 << 40, "b": 7}


def test_nothing_is_written_when_nothing_has_changed() -> None:
    volume = MemoryFileSystem()
    found = ledger(volume)
    found.clamp(0, 100)
    found.save_now()
    asyncio.run(found.save(Inline()))
    assert not volume.exists(PATH)


def test_what_the_log_does_not_have_any_more_is_forgotten() -> None:
    volume = MemoryFileSystem()
    written = ledger(volume)
    for topic, end in (("gone", 100), ("half", 101), ("all", 200), ("beyond", 201)):
        written.add(topic, end)
    written.clamp(100, 200)
    assert written.entries == {"half": 101, "all": 200, "beyond": 200}
    written.save_now()
    assert read(volume) == written.entries
    written.clamp(200, 200)
    assert written.entries == {}


def test_a_save_that_fails_is_made_up_for() -> None:
    volume = FaultyFileSystem(MemoryFileSystem())
    written = ledger(volume)
    written.add("a", 5)
    volume.faults.append(Fault(kind="write", path="/deletedTopics.json", error=errno.ENOSPC))
    with pytest.raises(StorageError, match="cannot save"):
        asyncio.run(written.save(Inline()))
    asyncio.run(written.save(Inline()))
    assert read(volume) == {"a": 5}


@pytest.mark.parametrize("table", [{"b": 5, "a": "5"}, {"a": True}, [], 7])
def test_a_file_with_what_is_no_place_is_damage(table: object) -> None:
    volume = MemoryFileSystem()
    ledger(volume)
    write_file(volume, PATH, json.dumps({"deletedTopics": table}).encode())
    with pytest.raises(StoreDamaged, match="restores deleted topics"):
        read(volume)


def test_the_backup_takes_the_place_of_a_file_with_what_is_no_place(caplog: pytest.LogCaptureFixture) -> None:
    volume = MemoryFileSystem()
    ledger(volume)
    write_file(volume, PATH, json.dumps({"deletedTopics": {"a": "5"}}).encode())
    write_file(volume, f"{PATH}.bak", json.dumps({"deletedTopics": {"b": 5}}).encode())
    assert read(volume) == {"b": 5}
    assert "not a log offset: 'a': 5" in caplog.text


def test_a_file_that_cannot_be_read_stops_the_start() -> None:
    volume = MemoryFileSystem()
    ledger(volume)
    write_file(volume, PATH, b"nonsense")
    with pytest.raises(StoreDamaged):
        read(volume)
