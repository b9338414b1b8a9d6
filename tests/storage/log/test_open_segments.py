"""A log of many segments, and many queues, in a process with few descriptors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from raptormq.errors import OutOfResources
from raptormq.storage import MessageStore, StoreConfig
from raptormq.storage.fs.real import RealFileSystem
from tests.storage.few_descriptors import FewDescriptors
from tests.storage.held_timers import HeldTimers
from tests.storage.stores import Clock, bodies, message, put, read_queue, small_config

SEGMENTS = 60
QUEUES = 40
FEW = 24


def store_on(volume: RealFileSystem, root: Path, **settings: int) -> MessageStore:
    config: StoreConfig = small_config(root_dir=root, index_enabled=False, max_open_segments=4, **settings)
    store = MessageStore(config, fs=volume, clock=Clock())
    store.open()
    return store


def filled(store: MessageStore) -> list[str]:
    """Append one message to each segment."""
    sent = [f"{number:02}" + "x" * 1500 for number in range(SEGMENTS)]
    for body in sent:
        put(store, message(body, queue_id=int(body[:2]) % QUEUES))
    return sent


def read_all(store: MessageStore) -> list[str]:
    return sorted(body for queue_id in range(QUEUES) for body in bodies(read_queue(store, queue_id=queue_id)))


@pytest.mark.parametrize("crashed", [False, True], ids=["clean stop", "crash"])
def test_a_log_of_many_segments_is_opened_read_and_written_with_few_descriptors(tmp_path: Path, crashed: bool) -> None:
    store = store_on(RealFileSystem(), tmp_path)
    sent = filled(store)
    store.close()
    if crashed:  # all queues and the index are built from the log
        (tmp_path / "abort").touch()
        (tmp_path / "checkpoint").unlink()
    volume = FewDescriptors(FEW)
    again = store_on(volume, tmp_path, max_open_queue_files=4)
    assert read_all(again) == sent
    put(again, message("more"))
    again.close()
    assert volume.open_files == 0


def test_queue_files_are_closed_when_there_is_no_descriptor_left(tmp_path: Path) -> None:
    volume = FewDescriptors(1_000)
    store = store_on(volume, tmp_path, resident_bytes=0, max_open_queue_files=1_000)
    sent = filled(store)
    store._queues.flush(QUEUES)
    store.flush()
    assert read_all(store) == sent
    assert len(store._queues.files) == QUEUES
    volume.limit = volume.open_files - 20  # other files have used them
    put(store, message("more", queue_id=QUEUES))
    store._queues.flush(1)
    assert read_all(store) == sent
    assert len(store._queues.files) < QUEUES
    volume.limit = 1_000
    store.close()


async def test_open_queue_files_are_given_up_for_a_checkpoint(tmp_path: Path) -> None:
    volume = FewDescriptors(1_000)
    store = store_on(volume, tmp_path, max_open_queue_files=1_000)
    filled(store)
    store._queues.flush(QUEUES)
    volume.limit = volume.open_files
    timers = HeldTimers(store)
    await timers.advance(11_000)
    put(store, message("more"))
    assert store.stats().writable
    store.close()


def test_without_any_descriptor_writes_are_refused_and_go_on_with_one(tmp_path: Path) -> None:
    volume = FewDescriptors(1_000)
    store = store_on(volume, tmp_path)
    sent = filled(store)
    volume.limit = 0
    with pytest.raises(OutOfResources, match="Too many open files"):
        store.append([message("x" * 1500)])
    volume.limit = 1_000
    store._log.preallocate()  # like the timer
    put(store, message("x" * 1500))
    assert read_all(store) == [*sent, "x" * 1500]
    store.close()


def test_a_sync_that_has_begun_and_finds_no_memory_is_a_failure_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    file = RealFileSystem().open(str(tmp_path / "file"), create=True)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.close()
