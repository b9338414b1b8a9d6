"""The ledger of queue conversions."""

from __future__ import annotations

import asyncio
import json

import pytest

from raptormq.errors import StoreDamaged
from raptormq.files import write_file
from raptormq.storage.fs.filesystem import StorePaths
from raptormq.storage.queue.topic_state import BUILDING, STOPPED, SWITCHED, ConversionEntry, ConversionLedger
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Inline

PATHS = StorePaths("/store", "/store/commitlog")
PATH = "/store/config/queueConversions.json"


def ledger(volume: MemoryFileSystem) -> ConversionLedger:
    volume.make_folders("/store/config")
    return ConversionLedger(volume, PATHS)


def test_entries_come_back() -> None:
    volume = MemoryFileSystem()
    written = ledger(volume)
    written.entries = {
        "a": ConversionEntry("a", to_batch=True, state=BUILDING),
        "b": ConversionEntry("b", to_batch=False, state=SWITCHED, offset=1 << 40),
        "c": ConversionEntry("c", to_batch=True, state=STOPPED),
    }
    asyncio.run(written.rewrite(Inline()))
    read = ledger(volume)
    read.load()
    assert read.entries == written.entries


@pytest.mark.parametrize(
    ("to_batch", "state", "is_batch"),
    [
        (True, BUILDING, False),
        (True, STOPPED, False),
        (True, SWITCHED, True),
        (False, BUILDING, True),
        (False, STOPPED, True),
        (False, SWITCHED, False),
    ],
)
def test_which_queues_count(to_batch: bool, state: str, is_batch: bool) -> None:
    assert ConversionEntry("t", to_batch, state).is_batch is is_batch


@pytest.mark.parametrize(
    "value",
    [
        "text",
        {"to": "RocksDBCQ", "state": "building", "offset": 0},
        {"to": "BatchCQ", "state": "gone", "offset": 0},
        {"to": "BatchCQ", "state": "building", "offset": "0"},
        {"state": "building", "offset": 0},
    ],
)
def test_a_file_with_what_is_no_entry_is_damage(value: object) -> None:
    volume = MemoryFileSystem()
    read = ledger(volume)
    good = {"to": "BatchCQ", "state": "stopped", "offset": 0}
    write_file(volume, PATH, json.dumps({"conversions": {"good": good, "bad": value}}).encode())
    with pytest.raises(StoreDamaged, match="not a conversion: 'bad'"):
        read.load()
    assert read.entries == {}


@pytest.mark.parametrize("topic", ["", ".", "..", "../config", "a/0", "a\0", "x" * 128])
def test_a_file_with_what_is_no_name_of_a_topic_is_damage(topic: str) -> None:
    volume = MemoryFileSystem()
    read = ledger(volume)
    entry = {"to": "BatchCQ", "state": "building", "offset": 0}
    write_file(volume, PATH, json.dumps({"conversions": {"good": entry, topic: entry}}).encode())
    with pytest.raises(StoreDamaged, match="not a conversion: "):
        read.load()
    assert read.entries == {}


def test_a_file_that_is_not_json_is_damage() -> None:
    volume = MemoryFileSystem()
    read = ledger(volume)
    write_file(volume, PATH, b"{")
    with pytest.raises(StoreDamaged, match=r"queueConversions\.json"):
        read.load()


def test_without_a_file_there_are_no_conversions() -> None:
    read = ledger(MemoryFileSystem())
    read.load()
    assert read.entries == {}
