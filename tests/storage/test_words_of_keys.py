"""KEYS are separated by blanks only, not by other white space, as in RocketMQ."""

from __future__ import annotations

import pytest

from raptormq.protocol.record import decode_record
from raptormq.storage.queue.append_batches import PendingRecord
from tests.storage.stores import open_store, put


@pytest.mark.parametrize("key", ["a\u3000b", "a\u00a0b", "a\u2003b", "a\x1fb", "a\tb", "x\x0cy", "\t", "\u3000"])
async def test_white_space_that_is_no_blank_belongs_to_a_key(key: str) -> None:
    store = open_store(index_slots=50, index_entries=200)
    put(store, PendingRecord("topic", 0, b"one", f"KEYS\x01 first {key}  last\x02".encode()))
    for word in ("first", key, "last"):
        found = await store.find_by_key("topic", word, 0, 1 << 60, 32)
        assert [decode_record(each).body for each in found] == [b"one"]
    assert await store.find_by_key("topic", "a", 0, 1 << 60, 32) == []
