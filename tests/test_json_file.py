"""Small JSON files: after any fault, the old or the new contents are there."""

from __future__ import annotations

import errno
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from raptormq.errors import StoreDamaged
from raptormq.json_file import JsonFile, with_checksum
from raptormq.storage.fs.filesystem import FileSystem
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
    assert JsonFile(PATH, MemoryFileSystem()).load(dict) is None


def test_save_and_load() -> None:
    volume = saved({"table": {1: "a"}}, {"table": {"b": [1, 2]}})
    assert JsonFile(PATH, volume).load(dict) == {"table": {"b": [1, 2]}}
    assert volume.names("/config") == ["table.json", "table.json.bak"]
    assert volume.open(PATH).read_at(0, 100).startswith(b'{\n  "table"')


def put(volume: MemoryFileSystem, path: str, data: bytes) -> None:
    """Replace the contents of a file, like another program or a power failure."""
    file = volume.open(path, create=True)
    file.truncate(0)
    file.write_at(0, [data], len(data))


def table(volume: FileSystem, marker: str | None = None) -> JsonFile:
    return JsonFile(PATH, volume, key="versions", without="without it all is new", marker=marker)


def numbers(value: dict[str, Any]) -> list[int]:
    return [1 + each for each in value["versions"]]


DAMAGED = {
    "empty": (b"", r"it is empty"),
    "NUL bytes": (b"\0" * 100, r"its 100 bytes are NUL or white space"),
    "white space": (b" \r\n\t", r"its 4 bytes are NUL or white space"),
    "a byte order mark": (b"\xef\xbb\xbf", r"NUL or white space"),
    "cut": (b'{"versions": [1, 2', r"is not JSON"),
    "something behind it": (b'{"versions": [1]}}', r"is not JSON"),
    "NUL bytes behind it": (b'{"versions": [1]}' + b"\0" * 9, r"is not JSON"),
    "no text": (b'{"versions": ["\xff"]}', r"is not JSON"),
    "a list": (b"[1, 2]", r"is not a JSON object"),
    "a number": (b"7", r"is not a JSON object"),
    "another table": (b'{"users": []}', r"it has no versions"),
    "null": (b'{"versions": null}', r"it has no versions"),
    "wrong types inside": (b'{"versions": ["one"]}', r"TypeError"),
    "not what is listed": (b'{"versions": 5}', r"TypeError"),
}


@pytest.mark.parametrize(("data", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_told_of_and_its_backup_read(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    volume = saved({"versions": [1]}, {"versions": [2]})
    put(volume, PATH, data)
    file = table(volume)
    assert file.load(numbers) == [2]
    assert not file.is_newest
    [warning] = caplog.messages
    assert re.search(rf"{PATH} is damaged \(.*{reason}.*\): using its backup {PATH}\.bak", warning)


@pytest.mark.parametrize(("data", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_without_a_sound_backup_is_refused_with_what_to_do(data: bytes, reason: str) -> None:
    volume = saved({"versions": [1]})
    put(volume, PATH, data)
    remedy = f": replace {PATH} with an undamaged copy, or remove {PATH} and {PATH}.bak; without it all is new"
    with pytest.raises(StoreDamaged, match=rf"{PATH} is damaged \(.*{reason}.*\), and there is no backup") as refusal:
        table(volume).load(numbers)
    assert str(refusal.value).endswith(remedy)
    put(volume, f"{PATH}.bak", data)
    with pytest.raises(StoreDamaged, match=rf"is damaged .*, and its backup is damaged \(.*{reason}") as refusal:
        table(volume).load(numbers)
    assert str(refusal.value).endswith(remedy)
    volume.remove(PATH)
    with pytest.raises(StoreDamaged, match=r"is missing, and its backup is damaged"):
        table(volume).load(numbers)
    volume.remove(f"{PATH}.bak")
    assert table(volume).load(numbers) is None


def test_a_file_that_is_gone_is_told_of_and_its_backup_read(caplog: pytest.LogCaptureFixture) -> None:
    volume = saved({"versions": [1]}, {"versions": [2]})
    volume.remove(PATH)
    assert table(volume).load(numbers) == [2]
    assert caplog.messages == [f"{PATH} is missing: using its backup {PATH}.bak, which may be older"]


def test_a_byte_order_mark_before_the_table_does_no_harm() -> None:
    volume = saved({"versions": [1]})
    put(volume, PATH, b'\xef\xbb\xbf{"versions": [7]}')
    assert table(volume).load(numbers) == [8]


@pytest.mark.parametrize("has_backup", [True, False])
def test_what_cannot_be_read_at_all_is_refused_since_it_may_be_sound(tmp_path: Path, has_backup: bool) -> None:
    path = tmp_path / "table.json"
    if has_backup:
        (tmp_path / "table.json.bak").write_bytes(b'{"versions": [1]}')
    path.mkdir()
    with pytest.raises(StoreDamaged, match=rf"{path} cannot be read: Is a directory; make it readable, or replace "):
        JsonFile(str(path)).load(numbers)
    path.rmdir()
    path.symlink_to(path)  # same effect as missing permissions, also for root
    with pytest.raises(StoreDamaged, match=r"cannot be read: Too many levels of symbolic links; make it readable"):
        JsonFile(str(path)).load(numbers)


def test_a_backup_that_cannot_be_read_is_told_of_where_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(b"")
    (tmp_path / "table.json.bak").mkdir()
    with pytest.raises(StoreDamaged, match=r"table\.json\.bak cannot be read: Is a directory"):
        JsonFile(str(path)).load(numbers)


def test_with_a_marker_a_table_that_is_gone_is_refused() -> None:
    volume = saved()
    marker = "/versionsMade"
    first = table(volume, marker)
    assert first.load(numbers) is None
    first.save({"versions": [1]})
    assert volume.exists(marker)
    first.save({"versions": [2]})
    volume = volume.after_power_cut()
    put(volume, PATH, b"")
    assert table(volume, marker).load(numbers) == [3]  # equal to the file, because an older backup would be wrong
    volume.remove(PATH)
    assert table(volume, marker).load(numbers) == [3]
    volume.remove(f"{PATH}.bak")
    with pytest.raises(StoreDamaged, match=r"is missing, and there is no backup") as refusal:
        table(volume, marker).load(numbers)
    assert f"or remove {PATH}, {PATH}.bak and {marker}; without it all is new" in str(refusal.value)
    volume.remove(marker)
    assert table(volume, marker).load(numbers) is None


def test_the_backup_of_before_there_was_a_marker_is_not_used() -> None:
    volume = saved({"versions": [1]}, {"versions": [2]})
    put(volume, PATH, b"")
    with pytest.raises(StoreDamaged, match=r"is damaged \(it is empty\), and its backup may be older: replace "):
        table(volume, "/versionsMade").load(numbers)


@pytest.mark.parametrize("marked_before", [False, True])
def test_a_table_with_another_version_as_its_backup_wants_to_be_saved(marked_before: bool) -> None:
    volume = saved({"versions": [1]}, {"versions": [2]})
    if marked_before:
        put(volume, "/versionsMade", b"")
    file = table(volume, "/versionsMade")
    assert file.load(numbers) == [3]
    wanted = file.wants_save
    file.save({"versions": [2]})
    file = table(volume, "/versionsMade")
    file.load(numbers)
    assert (wanted, file.wants_save) == (True, False)
    put(volume, PATH, b"")
    assert table(volume, "/versionsMade").load(numbers) == [3]


@pytest.mark.parametrize("before", [None, {"versions": [1]}])
def test_a_crash_at_every_operation_of_a_save_leaves_a_table_wherever_there_is_a_marker(
    before: dict[str, Any] | None,
) -> None:
    for nth in count(1):
        disk = saved()
        if before is not None:
            table(disk, "/versionsMade").save(before)
        try:
            table(FaultyFileSystem(disk, Fault(nth)), "/versionsMade").save({"versions": [2]})
        except SimulatedCrash:
            pass
        else:
            break
        for survivor in (disk.after_kill(), disk.after_power_cut()):
            assert table(survivor, "/versionsMade").load(numbers) in (before and [2], [3])
    assert nth > 8


@pytest.mark.parametrize("left", [0, 5])
def test_a_damaged_file_does_not_take_the_place_of_the_backup(left: int) -> None:
    volume = saved({"version": 1}, {"version": 2})
    volume.open(PATH).truncate(left)
    file = JsonFile(PATH, volume)
    file.load(dict)
    for version in (3, 4):
        file.save({"version": version})
        backup = JsonFile(f"{PATH}.bak", volume).load(dict)
        assert backup == {"version": {3: 1, 4: 3}[version]}


def test_the_dialect_of_the_reference_is_read() -> None:
    volume = saved({})
    text = b'{"offsetTable":{"t@g":{0:7,1:8\n}\n}}'
    volume.open(PATH).write_at(0, [text], len(text))
    assert JsonFile(PATH, volume).load(dict) == {"offsetTable": {"t@g": {"0": 7, "1": 8}}}


def test_a_failed_save_leaves_the_old_contents() -> None:
    volume = FaultyFileSystem(saved({"version": 1}), Fault(1, "write", ".new", errno.ENOSPC, 3))
    with pytest.raises(OSError, match="No space left"):
        JsonFile(PATH, volume).save({"version": 2})
    assert JsonFile(PATH, volume).load(dict) == {"version": 1}
    JsonFile(PATH, volume).save({"version": 3})
    assert JsonFile(PATH, volume).load(dict) == {"version": 3}


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
                found = JsonFile(PATH, survivor).load(dict)
                assert found in ({"version": 1}, {"version": 2}), counting.operations[nth - 1]
    assert JsonFile(PATH, counting.inner).load(dict) == {"version": 2}


def test_a_real_file(tmp_path: Path) -> None:
    file = JsonFile(str(tmp_path / "table.json"))
    assert file.load(dict) is None
    file.save({"version": 1})
    file.save({"version": 2})
    assert file.load(dict) == {"version": 2}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["table.json", "table.json.bak"]


def test_no_flipped_bit_of_a_sealed_table_changes_what_it_says() -> None:
    value: dict[str, Any] = {"versions": {"a": 1 << 40, 7: "x"}}
    volume = saved(with_checksum(value))
    text = volume.open(PATH).read_at(0, 1000)
    said = JsonFile(PATH, volume).load(dict)
    assert said == {"versions": {"a": 1 << 40, "7": "x"}}
    for at in range(len(text)):
        for bit in range(8):
            put(volume, PATH, text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :])
            try:
                found = JsonFile(PATH, volume, key="versions").load(dict)
            except StoreDamaged:
                continue
            assert found is not None
            assert found["versions"] == said["versions"]


def test_what_has_no_seal_is_read() -> None:
    volume = saved({"versions": [1]})
    assert JsonFile(PATH, volume, key="versions").load(dict) == {"versions": [1]}
