"""The concurrent scan of a log finds the same records as the sequential scan, for any contents of the log."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.storage import AppendResult, MessageStore, PendingRecord, StoreConfig
from raptormq.storage.log.commit_log import CommitLog
from raptormq.storage.records import scanner as concurrent_scanner
from raptormq.storage.records import scanner as log_scanner
from raptormq.storage.records.scanner import ConcurrentScanner, DamagedRange, LogScanner, ParsedBlock
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem, SimulatedCrash
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import message, open_store, put, read_queue, small_config

Processes = Callable[[], AbstractContextManager[tuple[Executor, int]]]


@contextmanager
def threads() -> Iterator[tuple[Executor, int]]:
    with ThreadPoolExecutor(2) as executor:
        yield executor, 2


class Dying(ThreadPoolExecutor):
    """Processes that are killed one after the other."""

    def submit(self, *_: Any, **__: Any) -> Any:
        raise BrokenProcessPool("killed")


@contextmanager
def dying() -> Iterator[tuple[Executor, int]]:
    with Dying(1) as executor:
        yield executor, 1


def filled(sizes: list[int]) -> tuple[MemoryFileSystem, CommitLog, int]:
    volume = MemoryFileSystem()
    store = open_store(volume)
    for number, size in enumerate(sizes):
        put(store, message("x" * size, topic=f"topic{number % 2}", queue_id=number % 3, tag="A" if number % 5 else ""))
    store.flush()
    return volume, store._log, store.end_offset


def walk(scanner: LogScanner | ConcurrentScanner) -> tuple[list[tuple[object, ...]], int, list[DamagedRange]]:
    rows: list[tuple[object, ...]] = []
    for batch in scanner.batches():
        assert batch.start_offset <= batch.physical_offsets[0]
        columns = batch.records, batch.physical_offsets, batch.sizes, batch.queue_offsets, batch.store_timestamps
        rows += zip(*columns, strict=True)
    return rows, scanner.end_offset, scanner.damaged


SMALL_WINDOW_BYTES = 700


def walk_concurrently(
    log: CommitLog, processes: Processes = threads, worth_bytes: int = 0, window_bytes: int = SMALL_WINDOW_BYTES
) -> tuple[list[tuple[object, ...]], int, list[DamagedRange]]:
    """Use small blocks, so that a segment has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concurrent_scanner, "MIN_CONCURRENT_BYTES", worth_bytes)
        patch.setattr(concurrent_scanner, "parsing_processes", processes)
        patch.setattr(log_scanner, "WINDOW_BYTES", window_bytes)
        return walk(ConcurrentScanner(log, 0))


@given(st.lists(st.integers(0, 1500), min_size=1, max_size=30), st.lists(st.integers(0, 5000), max_size=3), st.data())
def test_records_end_and_damage_are_those_of_the_careful_walk(
    sizes: list[int], hits: list[int], data: st.DataObject
) -> None:
    volume, log, end = filled(sizes)
    for hit in hits:
        name = data.draw(st.sampled_from(volume.names("/store/commitlog")))
        file = volume.open(f"/store/commitlog/{name}")
        at = hit % file.size()
        file.write_at(at, [bytes([file.read_at(at, 1)[0] ^ 0x55])], 1)
    with pytest.MonkeyPatch.context() as patch:  # the reason of damage depends on the window
        patch.setattr(log_scanner, "WINDOW_BYTES", SMALL_WINDOW_BYTES)
        expected = walk(LogScanner(log, 0))
    assert walk_concurrently(log) == expected
    if not hits:
        assert expected[1:] == (end, [])


def test_a_short_walk_needs_no_processes() -> None:
    def none() -> AbstractContextManager[tuple[Executor, int]]:
        raise AssertionError("processes were not requested")

    _, log, end = filled([10] * 20)
    assert walk_concurrently(log, none, worth_bytes=4096)[1] == end


def test_when_a_process_dies_the_walk_goes_on_alone(caplog: pytest.LogCaptureFixture) -> None:
    _, log, _ = filled([200] * 40)
    assert walk_concurrently(log, dying) == walk(LogScanner(log, 0))
    assert "the rest is parsed in this process" in caplog.text


def test_queues_and_index_are_bit_for_bit_those_of_the_sequential_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent_scanner, "MIN_CONCURRENT_BYTES", 1 << 18)
    monkeypatch.setattr(log_scanner, "WINDOW_BYTES", 1 << 15)
    blocks: list[int] = []
    batch_of = concurrent_scanner._batch

    def counted(block: ParsedBlock, offset: int) -> AppendResult:
        blocks.append(offset)
        return batch_of(block, offset)

    monkeypatch.setattr(concurrent_scanner, "_batch", counted)
    chance = random.Random(3)
    sizes = {"segment_size": 1 << 19, "index_slots": 500, "index_entries": 50_000}
    store = MessageStore(StoreConfig(tmp_path / "a", **sizes))  # type: ignore[arg-type]
    store.open()
    for number in range(3000):
        properties = f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01{number % 3}\x02".encode()
        body = chance.randbytes(chance.randrange(900))
        store.append([PendingRecord(f"t{number % 4}", number % 5, body, properties, number % 3)])
    store.flush()  # without closing, so the next start builds everything from the log
    del store
    built = {}
    for name, with_processes in (("one", False), ("many", True)):
        root = tmp_path / name
        (root / "commitlog").mkdir(parents=True)
        for segment in (tmp_path / "a" / "commitlog").iterdir():
            os.link(segment, root / "commitlog" / segment.name)
        again = MessageStore(StoreConfig(root, concurrent_build=with_processes, **sizes))  # type: ignore[arg-type]
        assert again.open().records == 3000
        again.close()
        built[name] = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for folder in ("consumequeue", "index")
            for path in sorted((root / folder).rglob("*"))
            if path.is_file()
        }
    assert len(blocks) > 10  # built by processes
    names = [sorted(files, key=lambda name: "" if name.startswith("index/") else name) for files in built.values()]
    assert names[0][1:] == names[1][1:]  # the name of the index file is its creation time
    for one, many in zip(*names, strict=True):
        assert built["one"][one] == built["many"][many], one


def test_a_crash_in_the_middle_of_a_concurrent_build_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_scanner, "MIN_CONCURRENT_BYTES", 0)
    monkeypatch.setattr(concurrent_scanner, "parsing_processes", threads)
    volume, _, _ = filled([300] * 30)
    expected = read_queue(open_store(volume.after_kill()), "topic0", 0)
    for nth in range(1, 200):
        disk = FaultyFileSystem(volume.after_kill(), Fault(nth))
        try:
            MessageStore(small_config(concurrent_build=True), fs=disk).open()
        except SimulatedCrash:
            assert isinstance(disk.inner, MemoryFileSystem)
            again = open_store(disk.inner.after_kill(), concurrent_build=True)
            assert read_queue(again, "topic0", 0) == expected
        else:
            assert nth > 10
            return
    raise AssertionError("every start was interrupted")
