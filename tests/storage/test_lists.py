"""Lists of messages create the same records, items and keys as single messages."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import DiskFull, StorageError
from raptormq.protocol.batch import encode_batch, scan_batch
from raptormq.protocol.record import SysFlag, decode_record
from raptormq.protocol.tags import tag_hash
from raptormq.storage import MessageStore, PendingList, PendingRecord
from raptormq.storage.queue.append_batches import Arrival
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import bodies, open_store, put, read_queue

Simple = tuple[str, str, str, int]
"""Body, tag, keys and flag."""

MESSAGES = st.lists(
    st.tuples(
        st.text("ab", max_size=600), st.sampled_from(["", "A", "B"]), st.sampled_from(["", "k1", "k1 k2"]),
        st.integers(-(1 << 31), (1 << 31) - 1),
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip
GROUPS = st.lists(st.tuples(st.integers(0, 2), MESSAGES), min_size=1, max_size=5)
V6_HOST = bytes(range(20))


COMMON = b"TRACE_ON\x01true\x02CLUSTER\x01c\x02"


def properties_of(number: int, message: Simple) -> bytes:
    """Some properties have a separator after the last pair, like those of clients, some have none, some are empty."""
    _, tag, keys, flag = message
    pairs = [("UNIQ_KEY", f"U{number:04d}"), ("KEYS", keys), ("TAGS", tag)]
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs if value).encode()
    return b"" if flag % 5 == 1 and not tag else text[:-1] if flag % 5 == 2 else text


def stored_properties(own: bytes) -> bytes:
    return own + COMMON if not own or own.endswith(b"\x02") else own + b"\x02" + COMMON


def as_list(queue_id: int, messages: list[Simple], topic: str = "topic", born_host: bytes = V6_HOST) -> PendingList:
    batch = encode_batch(
        (message[3], message[0].encode(), properties_of(number, message)) for number, message in enumerate(messages)
    )
    tags = [tag_hash(tag) for _, tag, _, _ in messages]
    flags = int(SysFlag.MULTI_TAGS)
    return PendingList(topic, queue_id, batch, scan_batch(batch), tags, COMMON, 77, born_host, flags)


def as_records(queue_id: int, messages: list[Simple]) -> list[PendingRecord]:
    return [
        PendingRecord(
            "topic", queue_id, message[0].encode(), stored_properties(properties_of(number, message)),
            tag_hash(message[1]), 77, V6_HOST, message[3], int(SysFlag.MULTI_TAGS),
        )
        for number, message in enumerate(messages)
    ]  # fmt: skip


def files(volume: MemoryFileSystem, store: MessageStore) -> dict[str, bytes]:
    """Return all files of a clean stop except the checkpoint, which has times of flushes."""
    store.close()
    return {
        path: volume.open(path).read_at(0, volume.open(path).size())
        for folder in ("commitlog", "consumequeue/topic/0", "consumequeue/topic/1", "consumequeue/topic/2", "index")
        for path in [f"/store/{folder}/{name}" for name in volume.names(f"/store/{folder}")]
    }


@given(GROUPS)
def test_lists_leave_the_files_that_single_messages_leave(groups: list[tuple[int, list[Simple]]]) -> None:
    volumes = MemoryFileSystem(), MemoryFileSystem()
    stores = [open_store(volume, index_slots=40, index_entries=400) for volume in volumes]
    stores[0].append_lists([as_list(*group) for group in groups])
    stores[1].append([record for group in groups for record in as_records(*group)])
    arrivals = [store.dispatch() for store in stores]
    assert visible(arrivals[0]) == visible(arrivals[1])
    assert files(volumes[0], stores[0]) == files(volumes[1], stores[1])


def visible(arrivals: list[Arrival]) -> dict[tuple[str, int], tuple[int, set[int]]]:
    """Return the end of each queue, and the tag codes of the arrivals."""
    seen: dict[tuple[str, int], tuple[int, set[int]]] = {}
    for topic, queue_id, end, code in arrivals:
        before, codes = seen.get((topic, queue_id), (0, set()))
        seen[topic, queue_id] = max(before, end), codes | {code}
    return seen


@given(GROUPS)
def test_a_replay_of_the_log_leaves_the_queues_that_lists_left(groups: list[tuple[int, list[Simple]]]) -> None:
    volume = MemoryFileSystem()
    store = open_store(volume, index_slots=40, index_entries=400)
    for group in groups:
        store.append_lists([as_list(*group)])
    store.dispatch()
    store.flush()
    before = {queue_id: read_queue(store, queue_id=queue_id) for queue_id, _ in groups}
    again = open_store(volume.after_power_cut(), index_slots=40, index_entries=400)
    assert {queue_id: read_queue(again, queue_id=queue_id) for queue_id, _ in groups} == before


async def test_messages_of_a_list_are_found_by_their_keys() -> None:
    store = open_store()
    store.append_lists([as_list(0, [("a", "", "", 0), ("b", "", "k1 k2", 0), ("c", "", "", 0)])])
    store.dispatch()
    for key, body in (("U0000", b"a"), ("U0001", b"b"), ("k1", b"b"), ("k2", b"b"), ("U0002", b"c"), ("U0003", None)):
        found = await store.find_by_key("topic", key, 0, 1 << 62, 9)
        assert [decode_record(record).body for record in found] == ([body] if body else [])


def test_a_list_that_the_disk_has_no_room_for_uses_up_no_offsets() -> None:
    disk = FaultyFileSystem(MemoryFileSystem())
    store = open_store(disk)
    store.append_lists([as_list(0, [("a", "", "", 0)])])
    disk.faults.append(Fault(kind="allocate", error=errno.ENOSPC))
    with pytest.raises(DiskFull):
        store.append_lists([as_list(0, [("x" * 600, "", "", 0)] * 9), as_list(1, [("y", "", "", 0)])])
    store.dispatch()
    put(store, *as_records(0, [("b", "", "", 0)]), *as_records(1, [("c", "", "", 0)]))
    assert (bodies(read_queue(store)), bodies(read_queue(store, queue_id=1))) == (["a", "b"], ["c"])


def test_a_message_that_fits_no_segment_takes_its_group_along() -> None:
    store = open_store()
    with pytest.raises(StorageError, match="does not fit a segment of 2048"):
        store.append_lists([as_list(0, [("a", "", "", 0)]), as_list(1, [("b", "", "", 0), ("x" * 2048, "", "", 0)])])
    put(store, *as_records(1, [("c", "", "", 0)]))
    assert bodies(read_queue(store, queue_id=1)) == ["c"]
    assert read_queue(store) == []


def test_a_number_outside_its_field_is_refused() -> None:
    store = open_store()
    pending = as_list(0, [("a", "", "", 0)])._replace(queue_id=1 << 31)
    with pytest.raises(StorageError, match="does not fit its fields"):
        store.append_lists([pending])


def test_lists_of_a_deleted_topic_stay_out_of_its_queues() -> None:
    store = open_store()
    store.append_lists([as_list(0, [("a", "", "", 0)]), as_list(0, [("b", "", "", 0)], "other")])
    store.delete_topic("topic")
    assert store.dispatch() == [("other", 0, 1, 0)]
    assert bodies(read_queue(store, "other")) == ["b"]
