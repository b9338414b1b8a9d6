"""Queues converted to the other type: their contents, refused conversions, and concurrent appends."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.storage import FlushDiskType
from raptormq.storage.conversion import rebuild as queue_conversion
from raptormq.storage.queue.consume_queue import ConsumeQueue
from tests.storage.batch_stores import batch
from tests.storage.conversions import (
    BATCH,
    SIMPLE,
    TOPIC,
    Table,
    contents,
    convert,
    declare,
    filled,
    finish,
    one,
    open_store,
    order,
    queue_bytes,
)
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    Clock,
    bodies,
    checkpoint,
    message,
    offset_by_time,
    put,
    queue_bounds,
    read_queue,
    run_retention,
)

pytestmark = pytest.mark.usefixtures("small_slices")


@pytest.mark.parametrize("to_batch", [True, False])
def test_the_new_queues_are_what_a_build_from_the_log_gives(to_batch: bool) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = filled(volume, is_batch=not to_batch, clock=clock)
    before = contents(store)

    progress = convert(store, volume, to_batch=to_batch)

    assert (progress.phase, progress.done, progress.total) == ("done", 70, 70)
    assert progress.checksums is not None
    assert progress.checksums.before == progress.checksums.after
    assert store.is_batch_topic(TOPIC) is to_batch
    assert contents(store) == before
    put(store, one("next"))
    store.close()
    folder, other = (BATCH, SIMPLE) if to_batch else (SIMPLE, BATCH)
    converted = queue_bytes(volume, folder)
    assert converted
    assert queue_bytes(volume, other) == {}
    assert not volume.exists(f"/store/{other}/{TOPIC}")
    volume.remove_tree(f"/store/{SIMPLE}")
    volume.remove_tree(f"/store/{BATCH}")
    store = open_store(volume, clock)
    store.close()
    assert queue_bytes(volume, folder) == converted


def test_times_and_tags_are_found_in_the_new_queues() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = filled(volume, is_batch=False, clock=clock)
    asked = [clock.now - 700 + step for step in range(0, 800, 7)]
    before = [offset_by_time(store, TOPIC, 1, time) for time in asked]
    convert(store, volume, to_batch=True)
    assert [offset_by_time(store, TOPIC, 1, time) for time in asked] == before
    assert len(set(before)) > 30


def test_there_and_back_and_there() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False)
    before = contents(store)
    for to_batch in (True, False, True):
        assert convert(store, volume, to_batch=to_batch).phase == "done"
        assert contents(store) == before
    store.close()
    assert contents(open_store(volume)) == before


@pytest.mark.parametrize("names", [["a", "b", "c"], ["alone"]])
def test_an_inner_batch_keeps_queues_what_they_are(names: list[str]) -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=True)
    put(store, batch(names, topic=TOPIC, queue_id=1))
    put(store, one("after", 1))
    before = contents(store)

    progress = convert(store, volume, to_batch=False)

    assert progress.phase == "refused"
    assert f"queue 1 of {TOPIC} holds an inner batch of {len(names)} messages at offset 35" in progress.remark
    assert store.is_batch_topic(TOPIC)
    assert contents(store) == before
    assert not volume.exists(f"/store/{SIMPLE}/{TOPIC}")
    store.close()
    assert contents(open_store(volume)) == before


def test_a_batch_that_comes_in_meanwhile_refuses_as_well() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=True)
    table = Table(volume, is_batch=True)

    async def run() -> str:
        await order(store, to_batch=False)
        working = asyncio.ensure_future(finish(store, table))
        while (progress := store.converter.progress(TOPIC)) is None or progress.phase == "waiting":
            await asyncio.sleep(0)
        put(store, batch(["x", "y"], topic=TOPIC))
        ended = await working
        assert ended is not None
        return ended.remark

    assert "inner batch of 2 messages at offset 35" in asyncio.run(run())
    assert store.is_batch_topic(TOPIC)
    assert table.is_batch
    assert bodies(read_queue(store, TOPIC))[-2:] == ["x", "y"]


@pytest.mark.parametrize("to_batch", [True, False])
@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
def test_what_comes_in_meanwhile_is_in_the_new_queues(to_batch: bool, flush: FlushDiskType) -> None:
    volume = MemoryFileSystem()
    declare(volume, is_batch=not to_batch)
    store = open_store(volume, flush_disk_type=flush)
    for number in range(300):
        put(store, one(f"m{number}", number % 2))
    sent = {queue_id: [f"m{number}" for number in range(queue_id, 300, 2)] for queue_id in range(4)}
    sent[2], sent[3] = [], []

    async def run() -> None:
        await order(store, to_batch=to_batch)
        working = asyncio.ensure_future(finish(store, Table(volume, is_batch=not to_batch)))
        number = 0
        while not working.done():
            # Some messages are neither flushed nor dispatched at the switch. A third and a fourth queue begin.
            store.append([one(f"n{number}", number % 4)])
            sent[number % 4].append(f"n{number}")
            if number % 5 == 0:
                store.flush()
                store.dispatch()
            number += 1
            await asyncio.sleep(0)
        ended = await working
        assert ended is not None
        assert (ended.phase, ended.remark) == ("done", "")
        assert number > 20

    asyncio.run(run())
    store.flush()
    store.dispatch()
    for queue_id, expected in sent.items():
        found = read_queue(store, TOPIC, queue_id)
        assert [each.queue_offset for each in found] == list(range(len(expected)))
        assert bodies(found) == expected
    store.close()
    reopened = open_store(volume, flush_disk_type=flush)
    assert {queue_id: bodies(read_queue(reopened, TOPIC, queue_id)) for queue_id in sent} == sent


@pytest.mark.parametrize("to_batch", [True, False])
def test_what_retention_has_taken_is_not_missed(to_batch: bool) -> None:
    """Retention keeps only the offsets of queue 1, and the newer messages of queue 0."""
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    declare(volume, is_batch=not to_batch)
    at_any_hour = {"delete_when": ";".join(map(str, range(24)))}
    store = open_store(volume, clock, **at_any_hour)
    for number in range(25):
        put(store, one(f"old{number}", 1), one(f"old{number}"))
    put(store, message("." * 7000, topic="other"))
    store.flush()
    clock.now += 100 * 3_600_000
    for number in range(60):
        put(store, one(f"new{number}".ljust(200, ".")))
    checkpoint(store)
    run_retention(store, clock.now)
    assert queue_bounds(store, TOPIC, 1) == (25, 25)
    before = contents(store)
    bounds = [queue_bounds(store, TOPIC, each) for each in (0, 1)]
    assert bounds[0] == (25, 85)

    progress = convert(store, volume, to_batch=to_batch)

    assert progress.phase == "done"
    assert [queue_bounds(store, TOPIC, each) for each in (0, 1)] == bounds
    assert contents(store) == before
    store.close()
    store = open_store(volume, clock)
    assert [queue_bounds(store, TOPIC, each) for each in (0, 1)] == bounds
    assert contents(store) == before
    put(store, one("next", 1))
    assert contents(store)[1] == [(25, "next")]


def test_a_step_is_for_one_queue() -> None:
    """Thousands of queues with little or no work must not be converted without yielding."""
    store = filled(MemoryFileSystem(), is_batch=False)
    conversion = queue_conversion.QueueConversion(TOPIC, store._log, store._queues, to_batch=True)

    def steps() -> int:
        count = 1
        while not conversion.copy(wait=True):
            count += 1
        return count

    conversion.begin()
    first = steps()
    conversion.begin()
    assert steps() == len(store.queue_ids(TOPIC)) > 1
    assert first > len(store.queue_ids(TOPIC))


def test_cold_pages_are_fetched() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False, count=300)
    store.close()
    store = open_store(volume, resident_bytes=0)
    before = contents(store)
    volume.non_resident = "/store/"
    assert convert(store, volume, to_batch=True).phase == "done"
    volume.non_resident = None
    assert contents(store) == before


def test_a_new_queue_that_a_disk_damages_is_built_again() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False, count=300)
    before = contents(store)

    async def run() -> str:
        await order(store, to_batch=True)
        working = asyncio.ensure_future(finish(store, Table(volume, is_batch=False)))
        path = f"/store/{BATCH}/{TOPIC}/0/{920:020d}"
        while True:
            store._queues.flush(10)
            node = volume.now.files.get(path)
            if node is not None and any(node.data):
                node.data[60:70] = b"\xff" * 10
                break
            await asyncio.sleep(0)
        ended = await working
        assert ended is not None
        return ended.phase

    assert asyncio.run(run()) == "done"
    assert contents(store) == before


def test_a_queue_that_is_damaged_again_and_again_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False, count=300)
    before = contents(store)
    write = store._queues.files.write_tail

    def write_and_damage(queue: ConsumeQueue) -> None:
        write(queue)
        node = volume.now.files.get(f"/store/{BATCH}/{TOPIC}/1/{0:020d}")
        if node is not None:
            node.data[46 * 3 + 11] = 255

    monkeypatch.setattr(store._queues.files, "write_tail", write_and_damage)
    monkeypatch.setattr(queue_conversion, "_TAIL_BYTES", 1)

    progress = convert(store, volume, to_batch=True)

    assert progress.phase == "refused"
    assert f"queue 1 of {TOPIC} still differs after a second copy" in progress.remark
    assert contents(store) == before
    assert not volume.exists(f"/store/{BATCH}/{TOPIC}")


@pytest.mark.parametrize("to_batch", [True, False])
@pytest.mark.parametrize("damage", [b"\0" * 12, b"\xff" * 12, b"\x7f" * 12])
def test_a_damaged_item_refuses_and_a_build_from_the_log_helps(to_batch: bool, damage: bytes) -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=not to_batch, count=100)
    before = contents(store)
    while not store._queues.flush(10):
        pass
    folder, item_bytes = (SIMPLE, 20) if to_batch else (BATCH, 46)
    path = f"/store/{folder}/{TOPIC}/1/{0:020d}"
    volume.now.files[path].data[item_bytes * 7 : item_bytes * 7 + 12] = damage

    progress = convert(store, volume, to_batch=to_batch)

    assert progress.phase == "refused"
    assert f"an item of queue 1 of {TOPIC} is damaged" in progress.remark
    store.close()
    for each in (SIMPLE, BATCH):
        assert each in progress.remark
        volume.remove_tree(f"/store/{each}")
    store = open_store(volume)
    assert contents(store) == before
    assert convert(store, volume, to_batch=to_batch).phase == "done"
    assert contents(store) == before
