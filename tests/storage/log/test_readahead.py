"""Pages after the end of the log are prepared in proportion to the write rate."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.fs.page_cache import Extent
from raptormq.storage.fs.real import RealFileSystem
from raptormq.storage.log.commit_log import CommitLog
from raptormq.storage.log.readahead import LEAST_AHEAD_BYTES, MAX_AHEAD_BYTES, STEP_BYTES, PageWarmer
from raptormq.storage.log.write_gate import WriteGate
from tests.storage.memory_filesystem import MemoryFile, MemoryFileSystem
from tests.storage.stores import Clock

P = ParamSpec("P")
T = TypeVar("T")
MIB = 1 << 20
SEGMENT = 64 * MIB


class SlowRunner:
    """Records requested reads, and executes them when the test permits it."""

    def __init__(self) -> None:
        self.asked: list[list[Extent]] = []
        self._allowed = asyncio.Semaphore(0)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Runner`."""
        extents = args[1]
        assert isinstance(extents, list)
        self.asked.append(extents)
        await self._allowed.acquire()
        return work(*args, **kwargs)

    def allow(self) -> None:
        """Execute the first requested read."""
        self._allowed.release()


def a_log(segments: int = 1, size: int = SEGMENT) -> CommitLog:
    """A log whose files exist and are not read."""
    volume = MemoryFileSystem()
    volume.make_folders("/log")
    log = CommitLog(volume, "/log", size, MIB, WriteGate(), Clock())
    for number in range(segments):
        log._segment_for_write(number * size)
    return log


class Warmed:
    """A warmer with a clock that the test advances."""

    def __init__(self, log: CommitLog, volume: FileSystem | None = None) -> None:
        self.log = log
        self.now = 100.0
        self.executor = SlowRunner()
        self.warmer = PageWarmer(volume or MemoryFileSystem(), log, lambda: self.now)
        self.warmer.start(self.executor)

    async def grow(self, size: int) -> list[list[Extent]]:
        """Append to the log. Return the resulting reads."""
        before = len(self.executor.asked)
        self.log.end_offset += size
        self.warmer.appended()
        await asyncio.sleep(0)  # after one iteration of the event loop a new task has requested its read
        return self.executor.asked[before:]

    async def finish(self) -> None:
        """Execute all requested reads until the warmer's task has ended."""
        self.executor.allow()
        assert self.warmer._task is not None
        await asyncio.wait([self.warmer._task])


async def test_the_first_append_reads_a_little_and_the_next_ones_nothing() -> None:
    warmed = Warmed(a_log())
    path = warmed.log.segments[0].path
    assert await warmed.grow(1000) == [[Extent(path, 1000, LEAST_AHEAD_BYTES)]]
    assert await warmed.grow(LEAST_AHEAD_BYTES) == []  # one reader at a time
    await warmed.finish()
    assert await warmed.grow(0) != []


async def test_half_of_it_is_still_to_be_written_when_more_is_read() -> None:
    warmed = Warmed(a_log())
    await warmed.grow(0)
    await warmed.finish()
    assert await warmed.grow(LEAST_AHEAD_BYTES // 2 - 1) == []
    warmed.now += 100
    (extents,) = await warmed.grow(1)
    assert extents == [Extent(warmed.log.segments[0].path, LEAST_AHEAD_BYTES, LEAST_AHEAD_BYTES // 2)]


async def test_a_fast_log_is_read_further_ahead_and_a_slow_one_less() -> None:
    warmed = Warmed(a_log(segments=4))
    await warmed.grow(0)
    ahead: list[int] = []
    steps: list[int] = []
    for pause in [0.05] * 7 + [5.0] * 8:
        warmed.now += pause
        await warmed.finish()
        before = warmed.log.end_offset
        while not await warmed.grow(LEAST_AHEAD_BYTES // 2):
            pass
        steps.append(warmed.log.end_offset - before)
        last = warmed.executor.asked[-1][-1]
        end = int(last.path.rpartition("/")[2]) + last.offset + last.size
        ahead.append(end - warmed.log.end_offset)
    assert ahead[:6] == [2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 16 * MIB, 16 * MIB]
    assert max(ahead) == MAX_AHEAD_BYTES
    assert max(steps[:7]) == STEP_BYTES  # the distance is large, the reads are small
    assert ahead[-1] == LEAST_AHEAD_BYTES


async def test_the_next_file_is_read_into_and_what_is_not_there_is_waited_for() -> None:
    two, one = Warmed(a_log(segments=2)), Warmed(a_log())
    first, second = (segment.path for segment in two.log.segments)
    at = SEGMENT - 1000
    assert await two.grow(at) == [[Extent(first, at, 1000), Extent(second, 0, LEAST_AHEAD_BYTES - 1000)]]
    assert await one.grow(at) == [[Extent(first, at, 1000)]]
    one.now += 100
    await one.finish()
    assert await one.grow(999) == []
    one.log._segment_for_write(SEGMENT)
    assert await one.grow(1) == [[Extent(second, 0, LEAST_AHEAD_BYTES)]]


async def test_the_spare_file_counts() -> None:
    log = a_log()
    log.end_offset = SEGMENT - 1000
    log.preallocate()
    assert [extent.size for extent in log.extents(SEGMENT - 1000, SEGMENT + 10)] == [1000, 10]


async def test_nothing_is_read_before_the_start_and_after_the_stop() -> None:
    log = a_log()
    unstarted = PageWarmer(MemoryFileSystem(), log)
    unstarted.appended()
    warmed = Warmed(log)
    warmed.warmer.stop()
    assert await warmed.grow(1) == []
    busy = Warmed(log)
    await busy.grow(1)
    busy.warmer.stop()
    await busy.finish()
    assert await busy.grow(100 * MIB) == []


async def test_nothing_is_read_while_the_log_grows_by_what_was_given_back() -> None:
    warmed = Warmed(a_log(segments=3))
    warmed.warmer.skip_ahead(10 * MIB)
    assert await warmed.grow(4 * MIB) == []
    warmed.warmer.skip_ahead(10 * MIB)
    assert await warmed.grow(16 * MIB - 1) == []
    path = warmed.log.segments[0].path
    assert await warmed.grow(1) == [[Extent(path, 20 * MIB, LEAST_AHEAD_BYTES)]]
    warmed.warmer.skip_ahead(10 * MIB)
    await warmed.finish()
    assert await warmed.grow(10 * MIB - 1) == []
    assert await warmed.grow(1) == [[Extent(path, 30 * MIB, 2 * LEAST_AHEAD_BYTES)]]


async def test_what_was_given_back_long_ago_is_not_counted_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.storage.log.readahead.MAX_SKIPPED_BYTES", 10 * MIB)
    warmed = Warmed(a_log())
    for _ in range(3):
        warmed.warmer.skip_ahead(9 * MIB)
    assert await warmed.grow(10 * MIB - 1) == []
    assert await warmed.grow(1) != []


class UnreadableFileSystem(MemoryFileSystem):
    """A disk with bad sectors."""

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """See `FileSystem`."""
        raise OSError(errno.EIO, "Input/output error", path)


async def test_a_disk_that_cannot_be_read_stops_nothing() -> None:
    warmed = Warmed(a_log(), UnreadableFileSystem())
    await warmed.grow(0)
    await warmed.finish()
    assert await warmed.grow(MIB) != []


async def test_a_thread_that_cannot_be_started_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    warmed = Warmed(a_log())

    async def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    run, warmed.executor.run = warmed.executor.run, fail  # type: ignore[method-assign, assignment]
    await warmed.grow(1)
    await asyncio.sleep(0)
    assert "cannot load pages ahead of the commit log" in caplog.text
    warmed.executor.run = run  # type: ignore[method-assign]
    assert await warmed.grow(MAX_AHEAD_BYTES) != []


async def test_writing_needs_no_new_pages_then(tmp_path: Path) -> None:
    volume = RealFileSystem()
    log = CommitLog(volume, str(tmp_path), 8 * MIB, MIB, WriteGate(), Clock())
    log._segment_for_write(0)
    warmed = Warmed(log, volume)
    await warmed.grow(0)
    await warmed.finish()
    assert log.segments[0].file.read_cached(0, LEAST_AHEAD_BYTES) == bytes(LEAST_AHEAD_BYTES)
    log.close()
