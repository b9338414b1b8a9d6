"""Cancelled saves of ledgers and of consumer offsets: a broker cancels its handlers when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raptormq.files import read_file
from raptormq.storage.fs.filesystem import StorePaths
from raptormq.storage.fs.topic_ledger import TopicLedger
from raptormq.storage.queue.topic_state import ConversionEntry, ConversionLedger, DeletionLedger
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Inline, message, open_store, put, until

PATHS = StorePaths("/store", "/store/commitlog")


class Busy:
    """An executor whose threads are all busy."""

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.Event().wait()


class Threads:
    """Uses one thread for each function."""

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(work, *args, **kwargs)


class SlowVolume(MemoryFileSystem):
    """The first write of a table waits before the rename."""

    def __init__(self) -> None:
        super().__init__()
        self.make_folders("/store/config")
        self.is_waiting = threading.Event()
        self.release = threading.Event()

    def replace(self, source: str, target: str) -> None:
        if source.endswith(".new") and not self.is_waiting.is_set():
            self.is_waiting.set()
            assert self.release.wait(30)
        super().replace(source, target)


def deletions(volume: MemoryFileSystem) -> DeletionLedger:
    return DeletionLedger(volume, PATHS)


def conversions(volume: MemoryFileSystem) -> ConversionLedger:
    return ConversionLedger(volume, PATHS)


def enter(ledger: TopicLedger[Any], topic: str) -> None:
    ledger.entries[topic] = 5 if isinstance(ledger, DeletionLedger) else ConversionEntry(topic, to_batch=True)
    ledger.mark_changed()


def topics(volume: MemoryFileSystem, ledger: TopicLedger[Any]) -> list[str]:
    return list(json.loads(read_file(volume, ledger.path))[ledger.key])


async def cancelled(save: Coroutine[Any, Any, None], when: Callable[[], object]) -> None:
    task = asyncio.create_task(save)
    await asyncio.sleep(0)
    await until(when)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("make", [deletions, conversions])
async def test_a_save_that_is_cancelled_before_it_began_is_made_up_for(
    make: Callable[[MemoryFileSystem], TopicLedger[Any]],
) -> None:
    volume = MemoryFileSystem()
    volume.make_folders("/store/config")
    ledger = make(volume)
    enter(ledger, "a")
    await cancelled(ledger.save(Busy()), lambda: True)
    ledger.save_now()
    assert topics(volume, ledger) == ["a"]
    enter(ledger, "b")
    await cancelled(ledger.save(Busy()), lambda: True)
    await ledger.save(Inline())
    assert topics(volume, ledger) == ["a", "b"]


@pytest.mark.parametrize("make", [deletions, conversions])
async def test_a_save_goes_on_when_it_is_cancelled_and_the_next_one_comes_after_it(
    make: Callable[[MemoryFileSystem], TopicLedger[Any]],
) -> None:
    volume = SlowVolume()
    ledger = make(volume)
    enter(ledger, "a")
    await cancelled(ledger.save(Threads()), volume.is_waiting.is_set)
    enter(ledger, "b")
    following = asyncio.create_task(ledger.save(Threads()))
    now = asyncio.create_task(asyncio.to_thread(ledger.save_now))
    await asyncio.sleep(0)
    volume.release.set()
    await asyncio.gather(following, now)
    assert ledger.is_saved
    assert topics(volume, ledger) == ["a", "b"]
    assert volume.names("/store/config") == [f"{ledger.path.rpartition('/')[2]}{end}" for end in ("", ".bak")]


async def test_consumer_offsets_whose_save_is_cancelled_are_written_at_the_end() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, *(message(str(number)) for number in range(7)))
    store.consumer_offsets.commit("topic", "group", 0, 7)
    assert store._opened is not None
    await cancelled(store._opened.maintenance.save_offsets(Busy()), lambda: True)
    store.close()
    assert open_store(volume).consumer_offsets.get("topic", "group", 0) == 7
