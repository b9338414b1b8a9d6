"""Replicas of a log: transfer, truncation and confirmation of ranges. All queues and indexes become equal."""

from __future__ import annotations

import asyncio
import errno
import random
from functools import partial
from typing import Any, cast

import pytest

from raptormq.errors import DiskFull, NotLeader, RecordError, StorageError, StoreReadOnly
from raptormq.storage import FlushDiskType, MessageStore
from raptormq.storage.queue import AppendedLists, AppendResult
from raptormq.storage.replica import EVERYTHING, Replica
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import SEGMENT_BYTES, Clock, bodies, message, read_queue, small_config

METADATA = "metadata"
REASON = NotLeader("this member follows another one")


def open_copy(volume: MemoryFileSystem | None = None, confirmed: int = 0, **settings: Any) -> MessageStore:
    store = MessageStore(small_config(replicated=True, **settings), fs=volume or MemoryFileSystem(), clock=Clock())
    store.open(confirmed_offset=confirmed)
    return store


def replica_of(store: MessageStore) -> Replica:
    assert store.replica is not None
    return store.replica


def copy(leader: MessageStore, follower: MessageStore, limit: int = 700) -> None:
    """Copy the leader's log to the follower, a few records at a time."""
    source, target = replica_of(leader), replica_of(follower)
    while (at := follower.end_offset) < leader.end_offset:
        end = source.align(at, at + limit)
        target.write(at, b"".join(map(bytes, source.read(at, end, wait=True))))


def confirm(*stores: MessageStore, offset: int | None = None) -> None:
    for store in stores:
        replica_of(store).confirm(stores[0].end_offset if offset is None else offset)
        while replica_of(store).has_more:
            store.dispatch()


def leading(store: MessageStore) -> MessageStore:
    replica_of(store).lead()
    return store


def contents(store: MessageStore) -> dict[tuple[str, int], list[str]]:
    return {
        (topic, queue_id): bodies(read_queue(store, topic, queue_id))
        for topic in sorted(store.topics())
        for queue_id in store.queue_ids(topic)
        if store.queue_end(topic, queue_id)
    }


def test_a_store_of_several_copies_takes_no_messages_before_it_leads() -> None:
    store = open_copy()
    with pytest.raises(NotLeader):
        store.append([message("early")])
    assert store.stats().writable is False
    leading(store).append([message("now")])
    replica_of(store).follow(REASON)
    with pytest.raises(NotLeader, match="follows another"):
        store.append([message("late")])


def test_nothing_is_seen_before_it_is_confirmed() -> None:
    leader, follower = leading(open_copy()), open_copy()
    ends = [leader.append([message(f"{number}")]).end_offset for number in range(3)]
    copy(leader, follower)
    leader.flush()
    follower.flush()
    for store in (leader, follower):
        store.dispatch()
        assert contents(store) == {}
    confirm(leader, follower, offset=ends[1])
    assert contents(leader) == {("topic", 0): ["0", "1"]}
    assert contents(follower) == {}, "only a part of its range is confirmed"
    confirm(leader, follower)
    assert contents(leader) == contents(follower) == {("topic", 0): ["0", "1", "2"]}


class TypesOf:
    """Applies the records of a topic with metadata: each makes the topic that its body names one of BatchCQ."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def build(self, batch: AppendResult) -> None:
        for record in batch.records:
            if record.topic == METADATA:
                self._store.set_batch_topic(bytes(record.body).decode())

    def build_lists(self, batch: AppendedLists) -> None:
        """There are none."""


def knows_types(store: MessageStore) -> Replica:
    """Return the replica of a store, which applies records of metadata from now on."""
    replica = replica_of(store)
    replica.metadata_topic = METADATA
    replica.attach(TypesOf(store))
    return replica


def check_type_of_orders(leader: MessageStore, follower: MessageStore, volume: MemoryFileSystem) -> None:
    """Send a message to the topic `orders`, and check that the follower has built its queue as BatchCQ."""
    leader.append([message("a", topic="orders")])
    copy(leader, follower)
    confirm(leader, follower)
    assert contents(follower)["orders", 0] == ["a"]
    follower.close()
    assert volume.names("/store/batchconsumequeue") == ["orders"]


def test_messages_wait_for_every_record_of_metadata_before_them() -> None:
    volume = MemoryFileSystem()
    leader, follower = leading(open_copy()), open_copy(volume)
    target = knows_types(follower)
    first = leader.append([message("other", topic=METADATA)]).end_offset
    leader.append([message("orders", topic=METADATA)])
    copy(leader, follower)  # one range with both records
    target.confirm(first)
    follower.dispatch()
    assert target.dispatched_offset == first
    check_type_of_orders(leader, follower, volume)


def test_messages_wait_for_metadata_from_before_a_restart() -> None:
    volume = MemoryFileSystem()
    leader, follower = leading(open_copy()), open_copy(volume)
    knows_types(follower)
    leader.append([message("orders", topic=METADATA)])
    copy(leader, follower)
    follower.close()
    follower = open_copy(volume)
    knows_types(follower)
    check_type_of_orders(leader, follower, volume)


def test_who_waits_is_told_when_it_is_confirmed_and_when_it_never_may_be() -> None:
    leader = leading(open_copy())
    told: list[tuple[int, StorageError | None]] = []
    ends = [leader.append([message(f"{number}")]).end_offset for number in range(3)]
    for number, end in enumerate(ends):
        leader.on_confirmed(end, partial(lambda number, error: told.append((number, error)), number))
    assert told == []
    replica_of(leader).confirm(ends[0])
    assert told == [(0, None)]
    replica_of(leader).follow(REASON)
    assert told == [(0, None), (1, REASON), (2, REASON)]
    replica_of(leader).confirm(ends[1])  # by the next leader
    assert len(told) == 3


def test_a_member_leads_only_when_everything_before_is_dispatched() -> None:
    leader, follower = leading(open_copy()), open_copy()
    leader.append([message("a"), message("b")])
    copy(leader, follower)
    with pytest.raises(ValueError, match="is dispatched up to 0"):
        replica_of(follower).lead()
    confirm(leader, follower)
    leading(follower)
    group = follower.append([message("c")])
    assert group.queue_offsets == [2]


def test_a_range_that_does_not_fit_changes_nothing() -> None:
    leader, follower = leading(open_copy()), open_copy()
    leader.append([message("a")])
    data = b"".join(map(bytes, replica_of(leader).read(0, leader.end_offset, wait=True)))
    target = replica_of(follower)
    with pytest.raises(ValueError, match="do not continue"):
        target.write(100, b"")
    for damaged in (data[:-1], data[:-1] + b"?", b"\0" * len(data), data[:30] + b"\xff" + data[31:]):
        if damaged == data:
            continue
        with pytest.raises(RecordError):
            target.write(0, damaged)
        assert follower.end_offset == 0
    target.write(0, data)
    with pytest.raises(ValueError, match="the leader accepts no ranges"):
        replica_of(leader).write(leader.end_offset, data)


def test_a_cut_through_a_group_keeps_what_is_before() -> None:
    leader = leading(open_copy())
    group = leader.append([message(f"{number}") for number in range(4)])
    cut = group.physical_offsets[2]
    replica_of(leader).follow(REASON)
    replica_of(leader).truncate(cut)
    assert leader.end_offset == cut
    confirm(leader, offset=cut)
    assert contents(leader) == {("topic", 0): ["0", "1"]}
    leading(leader)
    assert leader.append([message("new")]).queue_offsets == [2]
    confirm(leader)
    assert contents(leader) == {("topic", 0): ["0", "1", "new"]}


def test_what_is_dispatched_is_never_cut() -> None:
    leader = leading(open_copy())
    end = leader.append([message("a")]).end_offset
    confirm(leader)
    with pytest.raises(ValueError, match="is dispatched"):
        replica_of(leader).truncate(end - 1)


def test_cut_bytes_do_not_come_back_after_a_crash() -> None:
    volume = MemoryFileSystem()
    store = leading(open_copy(volume))
    ends = [store.append([message("x" * 150)]).end_offset for _ in range(30)]
    assert ends[-1] > 2 * SEGMENT_BYTES
    store.flush()
    replica_of(store).follow(REASON)
    replica_of(store).truncate(ends[3])
    again = open_copy(volume.after_power_cut())
    assert again.end_offset == ends[3]
    replica_of(again).confirm(ends[3])


@pytest.mark.parametrize("seed", range(60))
def test_copies_are_equal_whatever_is_sent_cut_confirmed_and_restarted(seed: int) -> None:
    """Two members whose leader changes. A follower with another tail is truncated at the first difference."""
    rng = random.Random(seed)
    volumes = [MemoryFileSystem(), MemoryFileSystem()]
    stores = [open_copy(volume) for volume in volumes]
    first = leading(stores[0])
    leader = 0
    assert first is stores[leader]
    confirmed = 0
    expected: list[tuple[int, str]] = []  # (end offset, body) of the current leader's messages
    number = 0
    for _ in range(40):
        other = 1 - leader
        match rng.choice(["send", "send", "send", "copy", "confirm", "change", "restart"]):
            case "send":
                texts = [f"{number + each}".ljust(rng.choice([1, 200, 700]), ".") for each in range(rng.randint(1, 4))]
                number += len(texts)
                group = stores[leader].append([message(text, queue_id=rng.randint(0, 1)) for text in texts])
                places = [*group.physical_offsets[1:], group.end_offset]
                sizes = group.sizes
                expected += [
                    (place + size, text) for place, size, text in zip(group.physical_offsets, sizes, texts, strict=True)
                ]
                assert places[-1] == stores[leader].end_offset
            case "copy":
                copy(stores[leader], stores[other], rng.choice([1, 300, 5000]))
            case "confirm":
                confirmed = max(confirmed, min(stores[0].end_offset, stores[1].end_offset))
                confirm(*stores, offset=confirmed)
            case "change":
                # The other member may lead if it has everything confirmed. The tail of the old leader is dropped.
                replica_of(stores[leader]).follow(REASON)
                replica_of(stores[leader]).truncate(stores[other].end_offset)
                expected = [each for each in expected if each[0] <= stores[other].end_offset]
                confirmed = stores[other].end_offset
                confirm(*stores, offset=confirmed)
                leader = other
                leading(stores[leader])
            case "restart":
                if rng.random() < 0.5:
                    stores[other].flush()
                    stores[other].close()
                    stores[other] = open_copy(volumes[other], confirmed)
                else:
                    stores[other].flush()
                    volumes[other] = volumes[other].after_power_cut()
                    stores[other] = open_copy(volumes[other], rng.choice([0, confirmed]))
                confirm(stores[other], offset=confirmed)
    copy(stores[leader], stores[1 - leader])
    confirm(*stores, offset=stores[leader].end_offset)
    seen = [contents(store) for store in stores]
    assert seen[0] == seen[1]
    assert sorted(text for texts in seen[0].values() for text in texts) == sorted(text for _, text in expected)


async def test_a_message_that_is_not_confirmed_is_not_found_by_its_place() -> None:
    leader = leading(open_copy())
    group = leader.append([message("a")])
    assert await leader.message_at(0) is None
    replica_of(leader).confirm(group.end_offset)
    assert await leader.message_at(0) is not None


def test_a_replica_ends_at_damage_and_fetches_the_rest() -> None:
    volume = MemoryFileSystem()
    leader, follower = leading(open_copy()), open_copy(volume)
    for number in range(6):
        leader.append([message(f"{number}" * 150)])
    copy(leader, follower)
    follower.flush()
    confirm(leader, follower)
    (name, *_) = volume.names("/store/commitlog")
    damaged = volume.after_power_cut()
    file = damaged.open(f"/store/commitlog/{name}")
    group_size = leader.end_offset // 6
    file.write_at(3 * group_size + 100, [b"????"], 4)
    file.sync()
    again = open_copy(damaged, confirmed=leader.end_offset)
    assert again.end_offset == 3 * group_size
    copy(leader, again)
    confirm(leader, again)
    assert contents(again) == contents(leader)


def test_an_empty_copy_begins_where_its_master_does() -> None:
    volume = MemoryFileSystem()
    store = open_copy(volume, EVERYTHING)
    for offset in (SEGMENT_BYTES + 1, SEGMENT_BYTES - 8):
        with pytest.raises(ValueError, match="cannot begin at"):
            replica_of(store).begin_at(offset)
    source = leading(open_copy())
    while source.end_offset < SEGMENT_BYTES:
        source.append([message("x" * 100)])
        confirm(source)
    source.append([message("last")])
    begin, end = SEGMENT_BYTES, source.end_offset
    replica_of(store).begin_at(begin)
    replica_of(store).write(begin, b"".join(map(bytes, source.read_log(begin, end, wait=True))))
    confirm(store, offset=end)
    assert bodies(read_queue(store))[-1] == "last"
    assert replica_of(store).last_queued_record is not None
    with pytest.raises(ValueError, match="cannot begin at"):
        replica_of(store).begin_at(2 * SEGMENT_BYTES)
    store.close()
    again = open_copy(volume, EVERYTHING)
    assert (again.start_offset, again.end_offset) == (begin, end)


def test_a_copy_without_room_says_that_and_not_who_leads() -> None:
    disk = FaultyFileSystem(MemoryFileSystem())
    store = open_copy(cast("MemoryFileSystem", disk))
    source = leading(open_copy())
    source.append([message("one")])
    data = b"".join(map(bytes, source.read_log(0, source.end_offset, wait=True)))
    disk.faults.append(Fault(kind="write", path="commitlog", error=errno.ENOSPC))
    with pytest.raises(DiskFull, match="No space left"):
        replica_of(store).write(0, data)
    replica_of(store).write(0, data)
    assert store.end_offset == source.end_offset


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_copy_whose_disk_has_failed_writes_no_more(kind: str) -> None:
    """It would report this offset to its leader, but the disk may lack what precedes it."""
    leader = leading(open_copy())
    leader.append([message("a"), message("b")])
    disk = FaultyFileSystem(MemoryFileSystem())
    follower = open_copy(cast(MemoryFileSystem, disk))
    copy(leader, follower)
    disk.faults.append(Fault(kind=kind, path="commitlog/0", error=errno.EIO))
    leader.append([message("c")])
    end = follower.end_offset
    with pytest.raises(StoreReadOnly):
        follower.flush() if kind == "sync" else copy(leader, follower)
    disk.faults.clear()
    with pytest.raises(StoreReadOnly):
        copy(leader, follower)
    assert follower.end_offset == end


def follower_to_truncate() -> tuple[FaultyFileSystem, MessageStore, list[int]]:
    """Return a follower with several segments, and the ends of its records."""
    disk = FaultyFileSystem(MemoryFileSystem())
    store = leading(open_copy(cast(MemoryFileSystem, disk)))
    ends = [store.append([message("x" * 150)]).end_offset for _ in range(30)]
    assert ends[-1] > 2 * SEGMENT_BYTES
    store.flush()
    replica_of(store).follow(REASON)
    return disk, store, ends


@pytest.mark.parametrize("kind", ["remove", "sync_directory", "write", "sync"])
def test_a_failed_truncation_claims_nothing_and_is_final(kind: str) -> None:
    disk, store, ends = follower_to_truncate()
    disk.faults.append(Fault(kind=kind, path="commitlog", error=errno.EIO))
    with pytest.raises(OSError, match=r"."):
        replica_of(store).truncate(ends[3])
    assert store.end_offset == store.flushed_offset == ends[3]
    with pytest.raises(StoreReadOnly, match="cannot truncate the log"):
        store.check_writable()
    with pytest.raises(StoreReadOnly):
        store.flush()  # although the disk works again


def test_a_truncation_without_descriptors_is_repeated() -> None:
    disk, store, ends = follower_to_truncate()
    disk.faults.append(Fault(kind="sync_directory", path="commitlog", error=errno.EMFILE))
    with pytest.raises(OSError, match=r"."):
        replica_of(store).truncate(ends[3])
    assert ends[3] < store.end_offset == SEGMENT_BYTES, "the first segment is intact"
    replica_of(store).truncate(ends[3])
    again = open_copy(cast(MemoryFileSystem, disk.inner).after_power_cut())
    assert again.end_offset == ends[3]
    assert again.stats().segments == 1


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_a_promoted_copy_confirms_by_its_own_disk(flush: FlushDiskType) -> None:
    store = open_copy(confirmed=EVERYTHING, flush_disk_type=flush)
    source = leading(open_copy())
    source.append([message("one")])
    copy(source, store)
    replica_of(store).confirm(store.end_offset)
    store.set_loop(asyncio.get_running_loop())
    try:
        store.consumer_offsets.commit("topic", "g", 0, 5)
        await store.promote()
        assert store.replica is None
        assert store.consumer_offsets.get("topic", "g", 0) == 1, "offsets are within the log"
        end = store.append([message("two")]).end_offset
        assert (store.confirmed_offset == end) is (flush is FlushDiskType.ASYNC_FLUSH)
        await store.wait_confirmed(end)
        store.dispatch()
        assert bodies(read_queue(store)) == ["one", "two"]
    finally:
        store.close()
