"""Small JSON files: the old or the new contents survive, whatever happens in between."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from raptormq.errors import StoreDamaged
from raptormq.storage import JsonFile
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem, SimulatedCrash
from tests.storage.memory_filesystem import MemoryFileSystem

PATH = "/config/table.json"


def saved(*values: dict[str, object]) -> MemoryFileSystem:
    volume = MemoryFileSystem()
    volume.make_folders("/config")
    volume.sync_directory("/")
    for value in values:
        JsonFile(PATH, volume).save(value)
    return volume


def test_nothing_there_is_none() -> None:
    assert JsonFile(PATH, MemoryFileSystem()).load() is None


def test_save_and_load() -> None:
    volume = saved({"table": {1: "a"}}, {"table": {"b": [1, 2]}})
    assert JsonFile(PATH, volume).load() == {"table": {"b": [1, 2]}}
    assert volume.names("/config") == ["table.json", "table.json.bak"]
    assert volume.open(PATH).read_at(0, 100).startswith(b'{\n  "table"')


def test_the_backup_is_read_when_the_file_is_damaged_or_gone() -> None:
    volume = saved({"version": 1}, {"version": 2})
    volume.open(PATH).truncate(5)
    assert JsonFile(PATH, volume).load() == {"version": 1}
    volume.open(PATH).truncate(0)
    assert JsonFile(PATH, volume).load() == {"version": 1}
    volume.remove(PATH)
    assert JsonFile(PATH, volume).load() == {"version": 1}
    volume.open(f"{PATH}.bak").truncate(5)
    with pytest.raises(StoreDamaged, match=r"nor its backup can be read: .*; put .* or remove both"):
        JsonFile(PATH, volume).load()


@pytest.mark.parametrize("left", [0, 5])
def test_a_damaged_file_does_not_take_the_place_of_the_backup(left: int) -> None:
    volume = saved({"version": 1}, {"version": 2})
    volume.open(PATH).truncate(left)
    file = JsonFile(PATH, volume)
    file.load()
    for version in (3, 4):
        file.save({"version": version})
        backup = JsonFile(f"{PATH}.bak", volume).load()
        assert backup == {"version": {3: 1, 4: 3}[version]}


def test_the_dialect_of_the_reference_is_read() -> None:
    volume = saved({})
    text = b'{"offsetTable":{"t@g":{0:7,1:8\n}\n}}'
    volume.open(PATH).write_at(0, [text], len(text))
    assert JsonFile(PATH, volume).load() == {"offsetTable": {"t@g": {"0": 7, "1": 8}}}


def test_a_failed_save_leaves_the_old_contents() -> None:
    volume = FaultyFileSystem(saved({"version": 1}), Fault(1, "write", ".new", errno.ENOSPC, 3))
    with pytest.raises(OSError, match="No space left"):
        JsonFile(PATH, volume).save({"version": 2})
    assert JsonFile(PATH, volume).load() == {"version": 1}
    JsonFile(PATH, volume).save({"version": 3})
    assert JsonFile(PATH, volume).load() == {"version": 3}


def test_a_crash_at_every_operation_leaves_the_old_or_the_new_contents() -> None:
    counting = FaultyFileSystem(saved({"version": 1}))
    JsonFile(PATH, counting).save({"version": 2})
    assert len(counting.operations) == 7
    for nth in range(1, len(counting.operations) + 1):
        for torn_bytes in (0, 3):
            disk = saved({"version": 1})
            with pytest.raises(SimulatedCrash):
                JsonFile(PATH, FaultyFileSystem(disk, Fault(nth, torn_bytes=torn_bytes))).save({"version": 2})
            for survivor in (disk.after_kill(), disk.after_power_cut()):
                assert JsonFile(PATH, survivor).load() in ({"version": 1}, {"version": 2}), counting.operations[nth - 1]
    assert JsonFile(PATH, counting.inner).load() == {"version": 2}


def test_a_real_file(tmp_path: Path) -> None:
    file = JsonFile(str(tmp_path / "table.json"))
    assert file.load() is None
    file.save({"version": 1})
    file.save({"version": 2})
    assert file.load() == {"version": 2}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["table.json", "table.json.bak"]
