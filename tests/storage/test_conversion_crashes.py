"""The process or the machine fails at each disk operation of a conversion of queues while messages are appended. The
next start serves every acknowledged message at its offset, and the conversion completes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from raptormq.errors import StorageError
from raptormq.storage import FlushDiskType, MessageStore
from raptormq.storage.background import Executor
from raptormq.storage.conversion import job as conversion_run
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.queue.topic_state import ConversionLedger, declared_topics
from tests.storage.conversions import TOPIC, Table, declare, finish, open_store, order
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem, SimulatedCrash
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, Inline, checkpoint, message, put, read_queue, run_retention

LEDGER = "/store/config/queueConversions.json"
QUEUES = 2


@pytest.fixture(autouse=True)
def one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run execute the same operations, independently of the clock."""
    monkeypatch.setattr(conversion_run, "_SLICE_S", 60.0)


class Life:
    """The script, and the messages acknowledged so far."""

    def __init__(self, volume: FileSystem, *, to_batch: bool) -> None:
        self.volume = volume
        self.to_batch = to_batch
        self.clock = Clock()
        self.acknowledged: list[str] = []
        self.appended: set[str] = set()
        self.store: MessageStore | None = None

    def send(self, store: MessageStore, *, dispatched: bool = True) -> None:
        """Send one message to each queue. Without a dispatch it is durable, but not yet visible."""
        names = [f"{len(self.appended) + queue_id}" for queue_id in range(QUEUES)]
        self.appended.update(names)
        records = [message(name, topic=TOPIC, queue_id=queue_id) for queue_id, name in enumerate(names)]
        result = store.append([*records, message("other", topic="other")])
        self.clock.now += 900

        def flushed(error: StorageError | None) -> None:
            if error is None:
                self.acknowledged.extend(names)

        store.on_confirmed(result.end_offset, flushed)
        store.flush()
        if dispatched:
            store.dispatch()

    def run(self) -> None:
        declare(self.volume, is_batch=not self.to_batch)
        store = self.store = open_sync(self.volume, self.clock)
        for _ in range(24):
            self.send(store)
        asyncio.run(self.convert(store))
        self.send(store)
        store.close()

    async def convert(self, store: MessageStore) -> None:
        """Convert when a checkpoint covers everything."""
        assert store._opened is not None
        await store._opened.maintenance.checkpointer.checkpoint(Inline(), force=True)
        store.converter.start(Chatty(lambda: self.send(store)), store._opened.maintenance.checkpointer)
        await order(store, to_batch=self.to_batch)
        ended = await finish(store, Table(self.volume, is_batch=not self.to_batch))
        assert ended is not None
        assert (ended.phase, ended.remark) == ("done", "")


class Chatty(Inline):
    """A background that appends messages before and after each wait for the disk."""

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._send()
        result = work(*args, **kwargs)
        self._send()
        return result


def open_sync(volume: FileSystem, clock: Clock) -> MessageStore:
    return open_store(volume, clock, flush_disk_type=FlushDiskType.SYNC_FLUSH)


def served(store: MessageStore) -> dict[int, list[tuple[int, str]]]:
    return {
        queue_id: [(each.queue_offset, each.body.decode()) for each in read_queue(store, TOPIC, queue_id)]
        for queue_id in range(QUEUES)
    }


def assert_recovered(volume: MemoryFileSystem, life: Life, where: str) -> None:
    store = open_sync(volume, life.clock)
    found = served(store)
    bodies = [body for items in found.values() for _, body in items]
    assert len(bodies) == len(set(bodies)), where
    assert set(life.acknowledged) <= set(bodies) <= life.appended, where
    for items in found.values():
        assert [offset for offset, _ in items] == list(range(len(items))), where

    async def go_on() -> None:
        in_table = TOPIC in declared_topics(volume, store.config.paths).batch
        table = Table(volume, is_batch=store.converter.types().get(TOPIC, in_table))
        assert store.is_batch_topic(TOPIC) is table.is_batch, where
        await order(store, to_batch=life.to_batch)
        ended = await finish(store, table)
        assert ended is None or (ended.phase, ended.remark) == ("done", ""), where

    if volume.exists("/store/config/topics.json"):
        asyncio.run(go_on())
        assert store.is_batch_topic(TOPIC) is life.to_batch, where
        assert served(store) == found, where
    store.close()
    store = open_sync(volume, life.clock)
    assert served(store) == found, where
    store.close()


def life_on(volume: FileSystem, *, to_batch: bool) -> Life:
    return Life(volume, to_batch=to_batch)


def operations(*, to_batch: bool) -> list[str]:
    volume = FaultyFileSystem(MemoryFileSystem())
    life_on(volume, to_batch=to_batch).run()
    return volume.operations


def live_until(nth: int, torn_bytes: int, *, to_batch: bool) -> tuple[MemoryFileSystem, Life]:
    disk = MemoryFileSystem(clock=Clock())
    life = life_on(FaultyFileSystem(disk, Fault(nth, torn_bytes=torn_bytes)), to_batch=to_batch)
    with pytest.raises(SimulatedCrash):
        life.run()
    return disk, life


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("to_batch", [True, False])
def test_a_crash_at_every_operation(part: int, to_batch: bool) -> None:
    script = operations(to_batch=to_batch)
    begin = next(n for n, line in enumerate(script, 1) if "queueConversions" in line)
    assert len(script) - begin > 60
    for nth in range(begin + part, len(script) + 1, 4):
        for torn_bytes in (0, 70) if script[nth - 1].startswith("write") else (0,):
            disk, life = live_until(nth, torn_bytes, to_batch=to_batch)
            where = f"operation {nth}, {script[nth - 1]}, {torn_bytes} bytes written"
            assert_recovered(disk.after_kill(), life, f"{where}, kill")
            assert_recovered(disk.after_power_cut(), life, f"{where}, power cut")
            some = disk.after_power_cut(random.Random(nth))
            assert_recovered(some, life, f"{where}, power cut with some sectors through")


@pytest.mark.parametrize("to_batch", [True, False])
def test_a_full_disk_stops_it_and_it_goes_on(to_batch: bool) -> None:
    script = operations(to_batch=to_batch)
    folder = "/batchconsumequeue/" if to_batch else f"/consumequeue/{TOPIC}"
    for kind, path in (("create", folder), ("write", folder), ("write", "queueConversions"), ("sync", "/checkpoint")):
        assert any(line.startswith(kind) and path in line for line in script)
        disk = MemoryFileSystem(clock=Clock())
        volume = FaultyFileSystem(disk)
        life = life_on(volume, to_batch=to_batch)
        declare(volume, is_batch=not to_batch)
        store = open_sync(volume, life.clock)
        for _ in range(24):
            life.send(store)
        found = served(store)
        table = Table(volume, is_batch=not to_batch)

        async def run() -> None:
            await order(store, to_batch=to_batch)  # noqa: B023 - runs at once
            fault = Fault(kind=kind, path=path, error=28, repeats=True)  # noqa: B023
            volume.faults.append(fault)  # noqa: B023
            ended = await finish(store, table)  # noqa: B023
            assert ended is not None
            assert ended.phase == "failed"
            assert "No space left" in ended.remark
            assert served(store) == found  # noqa: B023
            volume.faults.clear()  # noqa: B023
            await order(store, to_batch=to_batch)  # noqa: B023
            ended = await finish(store, table)  # noqa: B023
            assert ended is not None
            assert (ended.phase, ended.remark) == ("done", "")

        asyncio.run(run())
        assert served(store) == found
        assert store.is_batch_topic(TOPIC) is to_batch
        store.close()
        assert served(open_sync(disk, life.clock)) == found


@pytest.mark.parametrize("to_batch", [True, False])
def test_a_crash_at_every_operation_of_the_start_after_the_switch(to_batch: bool) -> None:
    script = operations(to_batch=to_batch)
    saves = [n for n, line in enumerate(script, 1) if line == f"replace {LEDGER}"]
    assert len(saves) == 4  # building, switched, the same in the backup, complete
    disk, life = live_until(saves[1] + 2, 0, to_batch=to_batch)
    for survivor in (disk.after_kill, disk.after_power_cut):
        counting = FaultyFileSystem(survivor())
        store = open_sync(counting, life.clock)
        assert store.converter.types() == {TOPIC: to_batch}
        for again in range(1, len(counting.operations) + 1):
            volume = survivor()
            with pytest.raises(SimulatedCrash):
                open_sync(FaultyFileSystem(volume, Fault(again, torn_bytes=60)), life.clock)
            where = f"operation {again} of the start, {counting.operations[again - 1]}"
            assert_recovered(volume.after_kill(), life, f"{where}, kill")
            assert_recovered(volume.after_power_cut(), life, f"{where}, power cut")


@pytest.mark.parametrize("to_batch", [True, False])
def test_the_backup_of_the_ledger_knows_of_the_switch_before_the_old_queues_go(to_batch: bool) -> None:
    script = operations(to_batch=to_batch)
    saves = [n for n, line in enumerate(script, 1) if line == f"replace {LEDGER}"]
    for step in range(saves[2], saves[3]):
        disk, life = live_until(step, 0, to_batch=to_batch)
        for volume in (disk.after_kill(), disk.after_power_cut()):
            volume.remove(LEDGER)
            assert_recovered(volume, life, f"operation {step}, {script[step - 1]}")


@pytest.mark.parametrize("crash", [True, False])
def test_an_offset_that_retention_has_taken_is_not_walked_from(crash: bool) -> None:
    """The switch was long ago, but the broker could not write it to its table."""
    disk = MemoryFileSystem(clock=Clock())
    life = life_on(disk, to_batch=True)
    declare(disk, is_batch=False)
    at_any_hour = {"delete_when": ";".join(map(str, range(24))), "flush_disk_type": FlushDiskType.SYNC_FLUSH}
    store = open_store(disk, life.clock, **at_any_hour)

    class Unwritable(Table):
        async def saved(self) -> None:
            raise StorageError("no")

    async def run() -> None:
        await order(store, to_batch=True)
        assert not await store.converter.convert(TOPIC, Unwritable(disk, is_batch=False))

    life.send(store)
    asyncio.run(run())
    assert store.converter.types() == {TOPIC: True}
    for _ in range(40):
        life.send(store)
    put(store, message("." * 7000, topic="other"))
    life.clock.now += 100 * 3_600_000
    for _ in range(40):
        life.send(store)
    checkpoint(store)
    run_retention(store, life.clock.now)
    assert store.stats().min_offset > 0
    found = served(store)
    assert found[0][0][0] > 30
    if not crash:
        store.close()
    store = open_sync(disk.after_kill() if crash else disk, life.clock)
    assert store.is_batch_topic(TOPIC)
    assert served(store) == found
    assert asyncio.run(finish(store, Table(disk))) is not None
    assert served(store) == found


@pytest.mark.parametrize("to_batch", [True, False])
def test_a_quiet_topic_survives_a_power_cut_after_the_switch(to_batch: bool) -> None:
    """The checkpoint already has the values of the one after the switch."""
    disk = MemoryFileSystem(clock=Clock())
    life = life_on(disk, to_batch=to_batch)
    declare(disk, is_batch=not to_batch)
    store = open_sync(disk, life.clock)
    for _ in range(24):
        life.send(store)
    assert store._opened is not None
    maintenance = store._opened.maintenance

    async def run() -> None:
        await maintenance.checkpointer.checkpoint(Inline(), force=True)
        await order(store, to_batch=to_batch)
        ended = await finish(store, Table(disk, is_batch=not to_batch))
        assert ended is not None
        assert ended.phase == "done"

    asyncio.run(run())
    assert_recovered(disk.after_power_cut(), life, "power cut")


@pytest.mark.parametrize("to_batch", [True, False])
@pytest.mark.parametrize("crash", [True, False])
def test_a_file_that_is_ahead_of_the_broker(to_batch: bool, crash: bool) -> None:
    """The entry of the switch is on the disk although its write failed, and the broker continues with the old
    queues.
    """
    disk = MemoryFileSystem(clock=Clock())
    volume = FaultyFileSystem(disk)
    life = life_on(volume, to_batch=to_batch)
    declare(volume, is_batch=not to_batch)
    store = open_sync(volume, life.clock)
    for _ in range(24):
        life.send(store)
    assert store._opened is not None
    maintenance = store._opened.maintenance

    async def run() -> None:
        await order(store, to_batch=to_batch)
        synced = sum(line == "sync_directory /store/config" for line in volume.operations)
        table = Table(volume, is_batch=not to_batch)
        settles = 0 if to_batch else 1
        fault = Fault(1 + settles, kind="sync_directory", path="/store/config", error=28, repeats=True)
        volume.faults.append(fault)
        ended = await finish(store, table)
        assert ended is not None
        assert ended.phase == "failed"
        assert sum(line == "sync_directory /store/config" for line in volume.operations) > synced
        volume.faults.clear()
        for _ in range(10):
            life.send(store)
        await maintenance.checkpointer.checkpoint(Inline(), force=True)

    saved = ConversionLedger.save

    async def save_once(self: ConversionLedger, background: Executor) -> None:
        if any(entry.state == "stopped" for entry in self.entries.values()):
            raise StorageError("no")
        await saved(self, background)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ConversionLedger, "save", save_once)
        asyncio.run(run())
    if not crash:
        store.close()
    store = open_sync(disk.after_kill(), life.clock)
    assert store.converter.types() == {TOPIC: to_batch is crash}
    found = served(store)
    assert [offset for offset, _ in found[0]] == list(range(34))
    assert_recovered(disk.after_kill(), life, "kill")


def test_what_is_not_confirmed_at_the_switch_comes_afterwards() -> None:
    disk = MemoryFileSystem(clock=Clock())
    life = life_on(disk, to_batch=True)
    declare(disk, is_batch=False)
    store = open_sync(disk, life.clock)
    life.send(store)

    async def run() -> None:
        await order(store, to_batch=True)
        working = asyncio.ensure_future(finish(store, Table(disk, is_batch=False)))
        while (progress := store.converter.progress(TOPIC)) is None or progress.phase != "switching":
            await asyncio.sleep(0)
        life.send(store, dispatched=False)
        for _ in range(200):
            await asyncio.sleep(0)
        assert store.is_batch_topic(TOPIC)
        assert await store.queue_bounds(TOPIC, 0) == (0, 1)
        assert not working.done()
        store.dispatch()
        await working

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(conversion_run, "_PAUSE_S", 0.0)
        asyncio.run(run())
    life.send(store)
    assert [offset for offset, _ in served(store)[0]] == [0, 1, 2]
