"""Files that a recovery trusts, with any bit flipped: no acknowledged message is lost without a report."""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections.abc import Iterator

import pytest

from raptormq.errors import StoreDamaged
from raptormq.files import read_file, write_file
from raptormq.storage import MessageStore
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.recovery.checkpoint_file import Checkpoint
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, bodies, checkpoint, message, put, read_queue, small_config

CHECKPOINT, ENDS, ABORT = "/store/checkpoint", "/store/queueEnds", "/store/abort"
DELETED, INDEX = "/store/config/deletedTopics.json", "/store/index"
INDEX_HEADER_BYTES = 40
TIMES = struct.Struct(">qq")
SEAL = slice(504, 512)
SETTLED, ALL = 12, 16
"""Entries for which one flipped bit makes the index count none."""
NAMES_THE_DAMAGE = re.compile("is damaged|keys in .* cannot be found|the checkpoint (says|covers)")
Found = dict[str, list[str]]


def opened(volume: FileSystem, clock: Clock) -> MessageStore:
    store = MessageStore(small_config(segment_size=1 << 14, index_slots=20, index_entries=100), fs=volume, clock=clock)
    store.open()
    return store


def send(store: MessageStore, clock: Clock, topic: str, number: int) -> None:
    clock.now += 1000
    put(store, message(f"{topic}{number}", topic)._replace(properties=b"KEYS\x01%s%d\x02" % (topic.encode(), number)))


def lived(clock: Clock) -> tuple[MemoryFileSystem, MessageStore]:
    """Topic "a" is deleted and recreated, "c" has long been idle, "e" has messages after the checkpoint."""
    volume = MemoryFileSystem()
    store = opened(volume, clock)

    send(store, clock, "a", 99)
    send(store, clock, "c", 0)
    store.delete_topic("a")
    checkpoint(store)
    send(store, clock, "a", 0)
    for number in range(ALL):
        send(store, clock, "e", number)
        if number == SETTLED:
            checkpoint(store)
    return volume, store


def crashed() -> tuple[MemoryFileSystem, Clock]:
    clock = Clock()
    volume, _ = lived(clock)
    return volume.after_kill(), clock


def expected() -> Found:
    numbers = {"a": 1, "c": 1, "e": ALL}
    return {topic: [f"{topic}{number}" for number in range(count)] for topic, count in numbers.items()}


def everything(store: MessageStore) -> Found:
    """Return the messages that a consumer receives, as far as they are found by their key."""
    read = {topic: bodies(read_queue(store, topic)) for topic in expected()}

    async def found_by_key() -> Found:
        return {
            topic: [key for key in keys if len(await store.find_by_key(topic, key, 0, 1 << 62, 9)) == 1]
            for topic, keys in read.items()
        }

    return asyncio.run(found_by_key())


def start(volume: MemoryFileSystem, clock: Clock, caplog: pytest.LogCaptureFixture) -> tuple[Found, bool]:
    """Return the state after a start, and whether it has reported damage."""
    caplog.clear()
    try:
        store = opened(volume, clock)
    except StoreDamaged:
        return {}, True
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return everything(store), any(map(NAMES_THE_DAMAGE.search, said))


def overwrite(volume: MemoryFileSystem, path: str, data: bytes) -> MemoryFileSystem:
    copy = volume.after_kill()
    copy.open(path).write_at(0, [data], len(data))
    return copy


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return all bits of used bytes, and one bit of each other byte in the first 512 bytes."""
    for at in range(min(len(data), 512)):
        near = data[max(0, at - 8) : at + 8]
        for bit in range(8) if any(near) else (at % 8,):
            yield at, data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def index_file(volume: MemoryFileSystem) -> str:
    (name,) = volume.names(INDEX)
    return f"{INDEX}/{name}"


def test_undamaged_all_is_there_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert start(*crashed(), caplog) == (expected(), False)


@pytest.mark.parametrize("path", [CHECKPOINT, ENDS, ABORT, DELETED, INDEX])
def test_no_flipped_bit_hides_a_message_without_a_word(path: str, caplog: pytest.LogCaptureFixture) -> None:
    volume, clock = crashed()
    path = index_file(volume) if path == INDEX else path
    data = read_file(volume, path)[: INDEX_HEADER_BYTES if path.startswith(INDEX) else None]
    assert any(data)
    silent = []
    for at, damaged in flips(data):
        found, is_said = start(overwrite(volume, path, damaged), clock, caplog)
        if found != expected() and not is_said:
            silent.append((at, damaged[at]))
    assert silent == []


@pytest.mark.parametrize("sealed", [True, False], ids=["ours", "of RocketMQ"])
@pytest.mark.parametrize("beyond_ms", [1, 1 << 40])
def test_times_that_the_log_does_not_have_count_as_unknown(
    sealed: bool, beyond_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    volume, clock = crashed()
    lie = TIMES.pack(clock.now + beyond_ms, clock.now + beyond_ms)
    if not sealed:
        page = lie + read_file(volume, CHECKPOINT)[len(lie) : SEAL.start]
        lie = page + bytes(SEAL.stop - SEAL.start)
    found, is_said = start(overwrite(volume, CHECKPOINT, lie), clock, caplog)
    assert (found, is_said) == (expected(), True)
    assert "the whole log is scanned" in caplog.text if sealed else "rebuilding all queues" in caplog.text


def test_times_of_messages_that_no_checkpoint_knew_are_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    volume, clock = crashed()
    found, is_said = start(overwrite(volume, CHECKPOINT, TIMES.pack(clock.now, clock.now)), clock, caplog)
    assert (found, is_said) == (expected(), True)


def test_a_whole_checkpoint_that_contradicts_itself_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    """It has the times of the last messages, but the queue ends of a much earlier time."""
    volume, clock = crashed()
    lie = Checkpoint(clock.now, clock.now, clock.now, confirmed_offset=1).encode()
    found, is_said = start(overwrite(volume, CHECKPOINT, lie), clock, caplog)
    assert (found, is_said) == (expected(), True)
    assert "the checkpoint covers the queues up to 1" in caplog.text


def test_a_checkpoint_of_another_log_is_told(caplog: pytest.LogCaptureFixture) -> None:
    volume, clock = crashed()
    volume.remove_tree("/store/commitlog")
    _, is_said = start(volume, clock, caplog)
    assert is_said
    assert "the newest message in the log is of 0" in caplog.text


def test_a_crash_whose_marker_is_gone_is_found_by_the_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    """A queue whose tail is on the disk hides the lost tails of the others."""
    clock = Clock()
    volume, store = lived(clock)
    send(store, clock, "z", 0)
    send(store, clock, "e", ALL)
    assert not store._queues.flush(1)
    killed = volume.after_kill()
    killed.remove(ABORT)
    survivor = opened(killed, clock)
    assert bodies(read_queue(survivor, "z")) == ["z0"]
    assert len(read_queue(survivor, "e")) == ALL + 1
    assert "rebuilding all queues from the log: the checkpoint covers the queues up to" in caplog.text


def test_a_clean_stop_leaves_a_checkpoint_that_covers_all(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    volume, store = lived(clock)
    store.close()
    assert start(volume, clock, caplog) == (expected(), False)


def test_a_store_that_rocketmq_has_gone_on_with_starts_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It does not change the checksum, and updates the times."""
    clock = Clock()
    volume, store = lived(clock)
    store.close()
    write_file(volume, CHECKPOINT, TIMES.pack(clock.now + 1, clock.now + 1) + read_file(volume, CHECKPOINT)[16:])
    assert start(volume, clock, caplog) == (expected(), False)
