"""Queue files that were deleted or truncated while the broker was down are rebuilt from the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from raptormq.storage import MessageStore
from raptormq.storage.fs.filesystem import FileSystem
from tests.storage.batch_stores import BATCH_FILE_BYTES
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem, SimulatedCrash
from tests.storage.lived_stores import (
    BATCHES,
    SIMPLE,
    TOPICS,
    declare,
    everything,
    expected,
    folder,
    lived,
    opened,
    send,
)
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    QUEUE_FILE_BYTES,
    Clock,
    bodies,
    checkpoint,
    message,
    put,
    read_queue,
    run_retention,
)

WARNING = "rebuilding all queues from the log"
Loss = Callable[[MemoryFileSystem], object]


def file_of(volume: MemoryFileSystem, topic: str, number: int) -> str:
    names = volume.names(f"{folder(topic)}/0")
    return f"{folder(topic)}/0/{names[len(names) // 2 if number == 1 else number]}"


def remove_trees(volume: MemoryFileSystem, paths: tuple[str, ...]) -> None:
    for path in paths:
        volume.remove_tree(path)


def damage(volume: MemoryFileSystem, topic: str, number: int, how: str) -> None:
    path = file_of(volume, topic, number)
    if how == "gone":
        volume.remove(path)
        return
    file = volume.open(path)
    size = file.size()
    file.truncate(size // 40 * 20 if how == "cut" and topic in SIMPLE else 92 if how == "cut" else 0)
    if how == "zeros":
        file.truncate(size)


FOLDERS: dict[str, tuple[str, ...]] = {
    "both": ("/store/consumequeue", "/store/batchconsumequeue"),
    "simple": ("/store/consumequeue",),
    "batch": ("/store/batchconsumequeue",),
    **{topic: (folder(topic),) for topic in TOPICS},
    **{f"queue of {topic}": (f"{folder(topic)}/0",) for topic in TOPICS},
}
LOSSES: dict[str, Loss] = {
    **{name: partial(remove_trees, paths=paths) for name, paths in FOLDERS.items()},
    **{
        f"{place} file of {topic} {how}": partial(damage, topic=topic, number=number, how=how)
        for topic in TOPICS
        for place, number in (("first", 0), ("middle", 1), ("last", -1))
        for how in ("gone", "zeros", "empty", "cut")
    },
}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_lost_comes_back(loss: str, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    volume = lived(clock, clean=clean)
    before = sorted(volume.names("/store/consumequeue/idle/0"))
    LOSSES[loss](volume)

    store, _ = opened(volume, clock)

    assert everything(store) == expected()
    assert sum(WARNING in each.message for each in caplog.records) <= 1
    for topic in TOPICS:
        send(store, clock, range(500, 501), topic)
        assert read_queue(store, topic)[-1].queue_offset == len(expected()[topic]) + (topic in BATCHES)
    store.close()
    caplog.clear()
    store, report = opened(volume, clock)
    assert (report.clean, report.records, caplog.records) == (True, 0, [])
    assert sorted(volume.names("/store/consumequeue/idle/0")) == before


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_whole_queues_are_not_built_again(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    store, report = opened(lived(clock, clean=clean), clock)
    assert everything(store) == expected()
    assert (report.rebuilt, report.records < 70, caplog.records) == (False, True, [])


@pytest.mark.parametrize("loss", ["busy", "queue of busy", "busy-batches"])
@pytest.mark.parametrize("ends", ["none", "damaged", "older"])
def test_the_log_itself_tells_of_a_busy_queue(ends: str, loss: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    volume = lived(clock, clean=False)
    if ends == "none":
        volume.remove("/store/queueEnds")
    elif ends == "damaged":
        volume.open("/store/queueEnds").write_at(30, [b"\xff"], 1)
    else:  # another program has used the store since
        other = MemoryFileSystem()
        store, _ = opened(other, clock)
        store.close()
        data = other.open("/store/queueEnds").read_at(0, 1000)
        volume.open("/store/queueEnds").truncate(0)
        volume.open("/store/queueEnds").write_at(0, [data], len(data))
    LOSSES[loss](volume)

    store, report = opened(volume, clock)

    assert report.rebuilt
    assert everything(store) == expected()
    assert ("queueEnds is damaged" in caplog.text) is (ends == "damaged")


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_a_deleted_topic_stays_deleted(clean: bool, table: bool, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    volume = lived(clock, clean=True)
    store, _ = opened(volume, clock)
    for topic in ("busy", "idle-batches"):
        store.delete_topic(topic)
    if not table:
        volume.remove("/store/config/topics.json")
        checkpoint(store)
    else:
        declare(volume, "idle", "busy-batches")
    if clean:
        store.close()
    else:
        volume = volume.after_kill()

    for _ in range(2):
        store, report = opened(volume, clock)
        assert not report.rebuilt
        assert read_queue(store, "idle-batches") == []
        assert len(read_queue(store, "idle")) == 50
        assert caplog.records == []
        store.close()


@pytest.mark.parametrize("answered", [True, False])
def test_a_topic_deleted_and_made_again_shortly_before_a_crash_costs_one_rebuild_at_most(answered: bool) -> None:
    clock = Clock()
    volume = lived(clock, clean=True)
    store, _ = opened(volume, clock)
    store.delete_topic("idle")
    if answered:
        assert store._opened is not None
        store._parts.deletions.save_now()
    send(store, clock, range(3), "idle")
    volume = volume.after_kill()

    store, report = opened(volume, clock)
    assert report.rebuilt is not answered
    assert bodies(read_queue(store, "idle")) == ["0", "1", "2"]
    checkpoint(store)
    store, report = opened(volume.after_kill(), clock)
    assert not report.rebuilt
    assert bodies(read_queue(store, "idle")) == ["0", "1", "2"]


def forget_segments(volume: MemoryFileSystem, clock: Clock, count: int) -> int:
    """Let retention delete the oldest segments. Return the new start of the log."""
    store, _ = opened(volume, clock)
    store.config.disk_clean_ratio = 0.0
    store.config.delete_batch_max = count
    run_retention(store, 0)
    minimum = store.stats().min_offset
    store.close()
    return minimum


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("segments", [1, 2, 5, 9])
def test_what_retention_has_removed_is_not_missed(segments: int, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    volume = lived(clock, clean=True)
    assert forget_segments(volume, clock, segments) == segments * 2048
    caplog.clear()
    if not clean:
        volume.open("/store/abort", create=True)

    store, report = opened(volume, clock)

    assert (report.rebuilt, caplog.records) == (False, [])
    left = everything(store)
    assert all(left[topic] == expected()[topic][-len(left[topic]) :] for topic in TOPICS if left[topic])
    assert store.queue_end("idle", 0) == 50


@pytest.mark.parametrize("segments", [5, 10, 13])
def test_what_retention_has_just_removed_is_not_missed(segments: int) -> None:
    """At any time of the crash, the first remaining item is rarely that of the first record in the log."""
    clock = Clock()
    origin = lived(clock, clean=True)
    origin.sync_volume("/")

    def cleaned(volume: FileSystem) -> MessageStore:
        store, _ = opened(volume, clock)
        store.config.disk_clean_ratio = 0.0
        store.config.delete_batch_max = segments
        run_retention(store, 0)
        return store

    counting = FaultyFileSystem(origin.after_kill())
    after = everything(cleaned(counting))
    for nth in range(1, len(counting.operations) + 1):
        volume = origin.after_kill()
        with pytest.raises(SimulatedCrash):
            cleaned(FaultyFileSystem(volume, Fault(nth)))
        for survivor in (volume.after_kill(), volume.after_power_cut()):
            store, report = opened(survivor, clock)
            assert not report.rebuilt, f"operation {nth}, {counting.operations[nth - 1]}"
            assert all(found[-len(after[topic]) :] == after[topic] for topic, found in everything(store).items())


@pytest.mark.parametrize("ms", [0, 1_000], ids=["whole walk", "short walk"])
def test_a_queue_file_that_ends_where_the_removed_segments_do_is_not_missed(ms: int) -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store, _ = opened(volume, clock)
    for _ in range(60):  # ten in a segment, twenty in a queue file
        put(store, message("x" * 97))
        clock.now += ms
    checkpoint(store)
    store.config.disk_clean_ratio = 0.0
    store.config.delete_batch_max = 2
    run_retention(store, 0)
    assert volume.names("/store/commitlog")[0] == f"{2 * 2048:020d}"
    assert volume.names("/store/consumequeue/topic/0")[0] == f"{QUEUE_FILE_BYTES:020d}"
    store, report = opened(volume.after_kill(), clock)
    assert not report.rebuilt
    assert (report.start_offset > store.stats().min_offset) is (ms > 0)
    assert len(read_queue(store)) == 40


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("segments", [2, 5])
def test_what_the_log_still_has_comes_back(segments: int, loss: str, clean: bool) -> None:
    clock = Clock()
    volume = lived(clock, clean=True)
    forget_segments(volume, clock, segments)
    store, _ = opened(MemoryFileSystem.after_kill(volume), clock)
    before = everything(store)
    assert all(before.values())
    if not clean:
        volume.open("/store/abort", create=True)
    LOSSES[loss](volume)

    store, _ = opened(volume, clock)
    assert everything(store) == before
    store.close()
    store, report = opened(volume, clock)
    assert not report.rebuilt
    assert everything(store) == before


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_queues_that_only_retention_has_emptied_are_not_missed(clean: bool) -> None:
    clock = Clock()
    volume = lived(clock, clean=True)
    minimum = forget_segments(volume, clock, 30)
    assert minimum > 0
    volume.remove_tree(folder("idle"))
    if not clean:
        volume.open("/store/abort", create=True)
    _, report = opened(volume, clock)
    assert not report.rebuilt


def test_a_rebuild_that_is_cut_short_begins_again() -> None:
    clock = Clock()
    origin = lived(clock, clean=True)
    origin.remove("/store/queueEnds")  # like a store of RocketMQ, which has no other trace of the loss
    for path in FOLDERS["both"]:
        origin.remove_tree(path)
    origin.sync_volume("/")
    counting = FaultyFileSystem(origin.after_kill())
    opened(counting, clock)
    assert len(counting.operations) > 40
    for nth in range(1, len(counting.operations) + 1):
        volume = origin.after_kill()
        with pytest.raises(SimulatedCrash):
            opened(FaultyFileSystem(volume, Fault(nth, torn_bytes=60)), clock)
        for survivor in (volume.after_kill(), volume.after_power_cut()):
            store, _ = opened(survivor, clock)
            assert everything(store) == expected(), f"operation {nth}, {counting.operations[nth - 1]}"


def test_an_idle_store_writes_nothing_and_a_deletion_is_written() -> None:
    clock = Clock()
    volume = FaultyFileSystem(lived(clock, clean=True))
    store, _ = opened(volume, clock)
    before = len(volume.operations)
    checkpoint(store)
    assert volume.operations[before:] == []
    store.delete_topic("idle")
    checkpoint(store)
    assert any("queueEnds" in each for each in volume.operations[before:])


def test_files_have_the_sizes_that_the_losses_assume() -> None:
    volume = lived(Clock(), clean=True)
    assert len(volume.names("/store/commitlog")) > 5
    for topic in TOPICS:
        size = BATCH_FILE_BYTES if topic in BATCHES else QUEUE_FILE_BYTES
        assert len(volume.names(f"{folder(topic)}/0")) >= 3
        assert volume.open(file_of(volume, topic, 0)).size() == size


async def test_a_topic_deleted_while_a_checkpoint_is_made_is_not_missed_later(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    volume = lived(clock, clean=True)
    volume.remove("/store/config/topics.json")
    store, _ = opened(volume, clock)
    send(store, clock, range(600, 601), "busy")
    assert store._opened is not None
    maintenance = store._opened.maintenance

    class Disk:
        """Receives the function of the checkpoint when its data is collected."""

        async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            store.delete_topic("idle")
            return work(*args, **kwargs)

    store.flush()
    await maintenance.checkpointer.checkpoint(Disk(), force=True)
    store.close()

    store, report = opened(volume, clock)
    assert (report.rebuilt, report.clean, caplog.records) == (False, True, [])
    assert "idle" not in store.topics()
