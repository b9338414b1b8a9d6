"""Offsets of the consumer groups, and their file."""

from __future__ import annotations

import json

import pytest

from raptormq.errors import StoreDamaged
from raptormq.storage import ConsumerOffsets
from raptormq.storage.queue.consumer_offsets import offsets_file
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, bodies, message, open_store, put, read_queue

PATH = "/config/consumerOffset.json"


@pytest.fixture
def volume() -> MemoryFileSystem:
    volume = MemoryFileSystem()
    volume.make_folders("/config")
    return volume


def offsets(volume: MemoryFileSystem) -> ConsumerOffsets:
    table = ConsumerOffsets(offsets_file(PATH, volume), Clock())
    table.load()
    return table


def save(table: ConsumerOffsets) -> None:
    data = table.snapshot()
    assert data is not None
    table.save_snapshot(data)


def test_commit_and_get(volume: MemoryFileSystem) -> None:
    table = offsets(volume)
    assert table.get("topic", "group", 0) is None
    table.commit("topic", "group", 0, 5)
    table.commit("topic", "group", 3, 7)
    table.commit("topic", "group", 0, 4)
    table.commit("%RETRY%group", "group", 0, 1)
    table.commit("topic", "other", 0, 9)
    assert (table.get("topic", "group", 0), table.get("topic", "group", 3)) == (4, 7)
    assert table.get("topic", "group", 1) is None
    assert dict(table.of_group("group")) == {"topic": {0: 4, 3: 7}, "%RETRY%group": {0: 1}}
    assert sorted(table.groups_of_topic("topic")) == ["group", "other"]
    table.remove_topic("topic")
    assert (table.get("topic", "group", 0), table.get("%RETRY%group", "group", 0)) == (None, 1)
    table.remove_group("group")
    assert list(table.of_group("group")) == []


def test_the_file_has_the_form_of_the_reference(volume: MemoryFileSystem) -> None:
    table = offsets(volume)
    table.commit("topic", "group", 0, 5)
    save(table)
    data = volume.open(PATH)
    assert json.loads(data.read_at(0, data.size())) == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": Clock().now},
        "offsetTable": {"topic@group": {"0": 5}},
    }
    assert offsets(volume).get("topic", "group", 0) == 5


def test_only_changes_are_written(volume: MemoryFileSystem) -> None:
    table = offsets(volume)
    assert table.snapshot() is None
    table.commit("topic", "group", 0, 5)
    assert table.snapshot() is not None
    assert table.snapshot() is not None, "the file was not written"
    save(table)
    assert table.snapshot() is None
    table.commit("topic", "group", 0, 5)
    assert table.snapshot() is None
    table.remove_topic("unknown")
    assert table.snapshot() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"offsetTable": [1]}',
        '{"offsetTable": {"t@g": {"x": 1}}}',
        '{"offsetTable": {"t@g": {"0": 1.5}}}',
        '{"offsetTable": {"t@g": {"0": true}}}',
        '{"offsetTable": {"t@g": 5}}',
        '{"offsetTable": {"t": {"0": 1}}}',
        '{"offsetTable": {}, "dataVersion": 5}',
    ],
)
def test_a_file_of_another_shape_is_refused(volume: MemoryFileSystem, text: str) -> None:
    volume.open(PATH, create=True).write_at(0, [text.encode()], len(text))
    with pytest.raises(StoreDamaged, match=r"is damaged .*all consumer groups start as new groups"):
        offsets(volume)


@pytest.mark.parametrize(("committed", "kept"), [(2, 2), (3, 3), (4, 3), (5, 3)])
def test_a_power_cut_that_cuts_the_log_takes_progress_back_to_its_end(
    committed: int, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, *(message(body) for body in "abc"))
    store.flush()
    put(store, message("d"), message("e"))  # which consumers see before they are durable
    store.consumer_offsets.commit("topic", "group", 0, committed)
    save(store.consumer_offsets)  # without waiting for the log, like Apache RocketMQ
    again = open_store(volume.after_power_cut())
    assert again.consumer_offsets.get("topic", "group", 0) == kept
    assert ("beyond the end of their queues" in caplog.text) is (committed > 3)
    put(again, message("next"))
    assert bodies(read_queue(again))[kept:] == [*"abc", "next"][kept:]


def test_offsets_beyond_the_end_are_taken_back(volume: MemoryFileSystem) -> None:
    table = offsets(volume)
    table.commit("t", "g", 0, 7)
    table.commit("t", "g", 1, 5)
    table.commit("t", "g", 2, 6)
    table.commit("gone", "g", 0, 9)
    ends = {("t", 0): 5, ("t", 1): 5, ("t", 2): 5, ("gone", 0): 0}
    assert table.clamp(lambda topic, queue_id: ends[topic, queue_id]) == 3
    assert [table.get("t", "g", queue_id) for queue_id in range(3)] == [5, 5, 5]
    assert table.get("gone", "g", 0) == 0
    assert table.clamp(lambda topic, queue_id: ends[topic, queue_id]) == 0
