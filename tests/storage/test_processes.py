"""Real processes on a real disk: kill -9 during writes, and a second process with the same store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raptormq.errors import StoreLocked
from raptormq.protocol.record import iter_records
from raptormq.storage import MessageStore, StoreConfig
from raptormq.storage.read.options import ReadOptions

WRITER = """
import sys
from pathlib import Path
from raptormq.storage import FlushDiskType, MessageStore, PendingRecord, StoreConfig

store = MessageStore(StoreConfig(Path(sys.argv[1]), segment_size=1 << 16, flush_disk_type=FlushDiskType.SYNC_FLUSH))
store.open()
print("open", flush=True)
number = store.queue_end("topic", 0)
while True:
    bodies = [f"{number + index}".ljust(700, ".") for index in range(7)]
    number += 7
    result = store.append([PendingRecord("topic", 0, body.encode()) for body in bodies])
    store.flush()
    store.dispatch()
    store._opened.maintenance.flush_all() if number % 3 == 0 else None
    print(number, flush=True)
"""


def start_writer(root: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def bodies_in(root: Path) -> list[int]:
    store = MessageStore(StoreConfig(root, segment_size=1 << 16))
    report = store.open()
    assert report.damaged == []
    assert not report.clean
    offset, end = 0, store.queue_end("topic", 0)
    found: list[int] = []
    while offset < end:
        result = store.get_messages("topic", 0, offset, ReadOptions(32, 1 << 20))
        found += [int(each.body.rstrip(b".")) for each in iter_records(b"".join(result.buffers))]
        offset = result.next_offset
    store.close()
    (root / "abort").write_text("")  # so that the next start recovers as well
    return found


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged = 0
    for turn in range(3):
        with start_writer(tmp_path) as process:
            assert process.stdout is not None
            for _ in range(5 + 20 * turn):
                acknowledged = int(process.stdout.readline())
            process.kill()
        found = bodies_in(tmp_path)
        assert len(found) >= acknowledged
        assert found == list(range(len(found)))


def test_a_folder_in_use_is_refused_and_names_the_user(tmp_path: Path) -> None:
    with start_writer(tmp_path) as process:
        with pytest.raises(StoreLocked, match=rf"{tmp_path} is in use by another process \(pid {process.pid}\)"):
            MessageStore(StoreConfig(tmp_path, segment_size=1 << 16)).open()
        process.kill()


def test_a_folder_in_use_by_this_process_is_refused(tmp_path: Path) -> None:
    config = StoreConfig(tmp_path, segment_size=1 << 16)
    store = MessageStore(config)
    store.open()
    with pytest.raises(StoreLocked):
        MessageStore(config).open()
    store.close()
    MessageStore(config).open()
