"""Saving a table: changes share writes, and callers that wait get the error of a failed write."""

from __future__ import annotations

import asyncio
import errno
import gc
from pathlib import Path

import pytest

from raptormq.errors import StorageError
from raptormq.json_file import JsonFile
from raptormq.storage.fs.real import RealFileSystem
from raptormq.storage.fs.table_saver import TableSaver
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem


async def test_many_changes_are_few_writes(tmp_path: Path) -> None:
    disk = FaultyFileSystem(RealFileSystem())
    file = JsonFile(str(tmp_path / "t.json"), disk)
    table: dict[str, int] = {}
    saver = TableSaver(file, lambda: dict(table))

    async def change(n: int) -> None:
        table[str(n)] = n
        saver.save_soon()
        await saver.saved()
        saved = file.load(dict)
        assert saved is not None
        assert saved[str(n)] == n

    await asyncio.gather(*(change(n) for n in range(200)))
    assert sum(operation.startswith("replace") for operation in disk.operations) <= 6
    assert file.load(dict) == table


async def test_nothing_to_save_waits_for_nothing(tmp_path: Path) -> None:
    saver = TableSaver(JsonFile(str(tmp_path / "t.json")), dict)
    await saver.saved()
    assert not (tmp_path / "t.json").exists()


async def test_a_failed_write_is_told_and_the_next_one_heals(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyFileSystem(RealFileSystem(), Fault(kind="write", error=errno.ENOSPC))
    file = JsonFile(str(tmp_path / "t.json"), disk)
    saver = TableSaver(file, lambda: {"a": 1})
    saver.save_soon()
    with pytest.raises(StorageError, match="No space left on device"):
        await saver.saved()
    assert "cannot save" in caplog.text
    await saver.saved()
    assert file.load(dict) == {"a": 1}


async def test_a_failed_write_that_nobody_waits_for_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyFileSystem(RealFileSystem(), Fault(kind="write", error=errno.ENOSPC))
    saver = TableSaver(JsonFile(str(tmp_path / "t.json"), disk), lambda: {"a": 1})
    saver.save_soon()
    assert saver._writing is not None
    await asyncio.wait({saver._writing})  # which does not read its error
    gc.collect()
    assert [record.name for record in caplog.records] == ["raptormq.storage.fs.table_saver"]


async def test_what_a_failed_write_left_is_written_again(tmp_path: Path) -> None:
    disk = FaultyFileSystem(RealFileSystem(), Fault(kind="write", error=errno.ENOSPC))
    file = JsonFile(str(tmp_path / "t.json"), disk)
    saver = TableSaver(file, lambda: {"a": 1})
    saver.save_soon("a")
    with pytest.raises(StorageError):
        await saver.saved()
    assert set(saver.unsaved) == {"a"}
    saver.retry_save()
    assert saver._writing is not None
    await saver._writing
    assert file.load(dict) == {"a": 1}
    assert not saver.unsaved
    saver.retry_save()
    assert saver._writing is None


async def test_a_change_during_a_write_stays_unsaved_until_the_next_one(tmp_path: Path) -> None:
    saver = TableSaver(JsonFile(str(tmp_path / "t.json")), dict)
    saver.save_soon("a")
    first = saver._writing
    assert first is not None
    await asyncio.sleep(0)  # the write has started
    saver.save_soon("b")
    await first
    assert set(saver.unsaved) == {"b"}
    await saver.saved()
    assert not saver.unsaved
