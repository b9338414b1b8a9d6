"""Queues of both types and the index, built by several processes: they are byte-identical to those of the sequential
build for any log, after a crash at any point, and if processes are killed or cannot be started.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import zlib
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.tags import tag_hash
from raptormq.storage import MessageStore, PendingRecord, StoreConfig
from raptormq.storage.records import scanner as concurrent_scanner
from raptormq.storage.records import scanner as log_scanner
from raptormq.storage.records.scanner import ParsedBlock
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem, SimulatedCrash
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, message, put, small_config

BUILT = ("/consumequeue/", "/batchconsumequeue/", "/index/")
SMALL: dict[str, Any] = {"batch_queue_file_size": 46 * 5, "index_slots": 50, "index_entries": 500}


@contextmanager
def threads() -> Iterator[tuple[Executor, int]]:
    with ThreadPoolExecutor(2) as executor:
        yield executor, 2


def inner_batch(count: int, form: str, name: str, queue_id: int = 0) -> PendingRecord:
    """Return an inner batch. The contents of one that is not plain are known only to the producer."""
    body = encode_batch(
        [(0, b"x" * each, f"UNIQ_KEY\x01{name}-{each}\x02KEYS\x01k{each}\x02".encode()) for each in range(count)]
    )
    flags = INNER_BATCH
    if form == "compressed":
        body, flags = zlib.compress(body), flags | 0x301
    elif form == "encrypted":
        body = encrypt_body(body, 0, "k1", bytes(16), bytes(12))
    elif form == "damaged":
        body = body[:-1]
    properties = f"UNIQ_KEY\x01{name}\x02TAGS\x01A\x02KEYS\x01all {name}\x02INNER_NUM\x01{count}\x02".encode()
    return PendingRecord("batches", queue_id, body, properties, tag_hash("A"), sys_flag=flags)


FORMS = ("simple", "single", "plain", "compressed", "encrypted", "damaged")
SENT = st.lists(st.tuples(st.sampled_from(FORMS), st.integers(1, 9), st.integers(0, 2)), min_size=1, max_size=40)


def filled(sent: list[tuple[str, int, int]]) -> MemoryFileSystem:
    """Return a log as a crash leaves it, with no durable queues or index."""
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock)
    for number, (form, count, queue_id) in enumerate(sent):
        clock.now += 7
        if form == "simple":
            put(store, message("s" * 40 * count, queue_id=queue_id, tag="B"))
        elif form == "single":
            put(store, message("s" * 9 * count, topic="batches", queue_id=queue_id))
        else:
            put(store, inner_batch(count, form, f"n{number}", queue_id))
    store.flush()
    return volume.after_kill()


def opened(volume: MemoryFileSystem | FaultyFileSystem, clock: Clock | None = None, **more: Any) -> MessageStore:
    store = MessageStore(small_config(**SMALL, **more), fs=volume, clock=clock or Clock(1_800_000_000_000))
    store.set_batch_topic("batches")
    store.open()
    return store


def built(volume: MemoryFileSystem, **more: Any) -> dict[str, bytes]:
    """Return all bytes that a start builds from a log."""
    opened(volume, **more).close()
    files = volume.now.files
    return {path: bytes(node.data) for path, node in files.items() if any(each in path for each in BUILT)}


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_scanner, "MIN_CONCURRENT_BYTES", 0)
    monkeypatch.setattr(concurrent_scanner, "parsing_processes", threads)
    monkeypatch.setattr(log_scanner, "WINDOW_BYTES", 700)


@pytest.mark.usefixtures("_small_blocks")
@settings(max_examples=60)
@given(SENT, st.integers(1, 60), st.booleans())
def test_it_is_bit_for_bit_the_sequential_build_also_across_a_crash(
    sent: list[tuple[str, int, int]], nth: int, power_cut: bool
) -> None:
    log = filled(sent)
    expected = built(log.after_kill())
    assert any("/batchconsumequeue/" in path or "/consumequeue/" in path for path in expected)
    assert built(log.after_kill(), concurrent_build=True) == expected
    disk = log.after_kill()
    try:
        opened(FaultyFileSystem(disk, Fault(nth, torn_bytes=11)), concurrent_build=True)
    except SimulatedCrash:
        survivor = disk.after_power_cut() if power_cut else disk.after_kill()
        assert without_index(built(survivor, concurrent_build=True)) == without_index(expected)


def without_index(files: dict[str, bytes]) -> dict[str, bytes]:
    """The index is an append-only hash table. Entries of a first attempt stay, and are found once."""
    return {path: data for path, data in files.items() if "/index/" not in path}


def large_log(root: Path) -> int:
    """Append some hundred KiB of messages and batches. Return the number of records."""
    chance = random.Random(5)
    store = MessageStore(StoreConfig(root, segment_size=1 << 19, index_slots=500, index_entries=50_000))
    store.open()
    store.set_batch_topic("batches")
    for number in range(1500):
        if number % 3:
            properties = f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01{number % 3}\x02".encode()
            body = chance.randbytes(chance.randrange(900))
            store.append([PendingRecord(f"t{number % 4}", number % 5, body, properties, number % 3)])
        else:
            store.append([inner_batch(number % 20 + 1, FORMS[2 + number % 4], f"n{number}", number % 2)])
    store.flush()
    return 1500


def built_on_disk(root: Path, log: Path, *, concurrent: bool) -> dict[str, bytes]:
    (root / "commitlog").mkdir(parents=True)
    for segment in log.iterdir():
        os.link(segment, root / "commitlog" / segment.name)
    config = StoreConfig(root, segment_size=1 << 19, index_slots=500, index_entries=50_000, concurrent_build=concurrent)
    store = MessageStore(config, clock=Clock())
    store.set_batch_topic("batches")
    assert store.open().records == 1500
    store.close()
    folders = ("consumequeue", "batchconsumequeue", "index")
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*")) if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def _some_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_scanner, "MIN_CONCURRENT_BYTES", 1 << 15)
    monkeypatch.setattr(log_scanner, "WINDOW_BYTES", 1 << 14)


@pytest.mark.usefixtures("_some_blocks")
def test_a_process_that_is_killed_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert large_log(tmp_path / "a") == 1500
    expected = built_on_disk(tmp_path / "one", tmp_path / "a" / "commitlog", concurrent=False)
    executors: list[ProcessPoolExecutor] = []
    real_processes, real_batch = concurrent_scanner.parsing_processes, concurrent_scanner._batch
    blocks: list[int] = []

    @contextmanager
    def watched() -> Iterator[tuple[Executor, int]]:
        with real_processes() as (executor, count):
            assert isinstance(executor, ProcessPoolExecutor)
            executors.append(executor)
            yield executor, count

    def kills(block: ParsedBlock, offset: int) -> Any:
        blocks.append(offset)
        if len(blocks) == 3:
            for process in executors[0]._processes.values():
                os.kill(process.pid or 0, signal.SIGKILL)
        return real_batch(block, offset)

    monkeypatch.setattr(concurrent_scanner, "parsing_processes", watched)
    monkeypatch.setattr(concurrent_scanner, "_batch", kills)
    assert built_on_disk(tmp_path / "many", tmp_path / "a" / "commitlog", concurrent=True) == expected
    assert len(blocks) >= 3
    assert "the rest is parsed in this process" in caplog.text
    assert sum("batchconsumequeue" in path for path in expected) == 2


class NoMore(ThreadPoolExecutor):
    """A machine that cannot start a process."""

    def submit(self, *_: Any, **__: Any) -> Any:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@contextmanager
def no_processes() -> Iterator[tuple[Executor, int]]:
    with NoMore(1) as executor:
        yield executor, 1


def no_semaphores() -> AbstractContextManager[tuple[Executor, int]]:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("processes", [no_processes, no_semaphores])
def test_where_there_are_no_processes_it_is_built_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, processes: Any
) -> None:
    log = filled([("simple", 9, 0), ("plain", 9, 1), ("single", 2, 0)] * 9)
    expected = built(log.after_kill())
    monkeypatch.setattr(concurrent_scanner, "parsing_processes", processes)
    assert built(log.after_kill(), concurrent_build=True) == expected
    assert "the rest is parsed in this process" in caplog.text
