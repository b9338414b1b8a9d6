"""Unpacking of batches on the event loop and in a thread."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.inner_batch import INNER_BATCH, unwrap
from raptormq.protocol.record import StoredMessage, decode_record, encode_record, iter_records
from raptormq.storage import GetResult, MessageStore, PendingRecord
from raptormq.storage.read import batch_unpacker as batch_records
from raptormq.storage.read.batch_unpacker import MAX_INLINE_BYTES
from raptormq.storage.read.options import ReadOptions
from tests.storage.batch_stores import open_batch_store

LARGE = MAX_INLINE_BYTES + 1


def compressed(name: str, size: int, count: int = 1, said: int | None = None) -> PendingRecord:
    """Return a batch whose messages have this total size, and which is small when compressed."""
    own = f"UNIQ_KEY\x01{name}\x02".encode()
    body = zlib.compress(encode_batch([(0, bytes(size // count), own)] * count))
    text = f"UNIQ_KEY\x01b-{name}\x02INNER_NUM\x01{said or count}\x02"
    return PendingRecord("batches", 0, body, text.encode(), sys_flag=INNER_BATCH | 0x301)


@asynccontextmanager
async def opened(*batches: PendingRecord) -> AsyncIterator[MessageStore]:
    store = open_batch_store(segment_size=1 << 20)
    try:
        store.set_loop(asyncio.get_running_loop())
        store.append(batches)
        store.dispatch()
        yield store
    finally:
        store.close()


@pytest.fixture
def unpacked_by(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Unpacked batches: their sizes, and whether this thread, that of the event loop, unpacked them."""
    loop, found = threading.get_ident(), []

    def observed(wrapper: StoredMessage, max_bytes: int) -> list[StoredMessage]:
        messages = unwrap(wrapper, max_bytes)
        found.append((sum(len(each.body) for each in messages), threading.get_ident() == loop))
        return messages

    monkeypatch.setattr(batch_records, "unwrap", observed)
    return found


def get(store: MessageStore, offset: int = 0) -> GetResult:
    return store.get_messages("batches", 0, offset, ReadOptions(32, 1 << 18))


def offsets(result: GetResult) -> list[int]:
    return [each.queue_offset for each in iter_records(b"".join(result.buffers))]


async def test_a_large_batch_is_taken_apart_by_a_thread_and_once(unpacked_by: list[tuple[int, bool]]) -> None:
    async with opened(compressed("large", 40 * 105_000, 40)) as store:
        assert get(store).non_resident
        first = await store.load_messages("batches", 0, 0, ReadOptions(32, 1 << 18))
        second = get(store, first.next_offset)
        assert offsets(first) == [0, 1]
        assert offsets(second) == [2, 3]
        place = next(iter_records(b"".join(first.buffers))).physical_offset
        assert await store.message_at(place) is not None, "reads by position and by queue share unpacked batches"
    assert unpacked_by == [(40 * 105_000, False)]


async def test_a_read_ends_before_the_batch_that_is_too_much_for_one(unpacked_by: list[tuple[int, bool]]) -> None:
    half = MAX_INLINE_BYTES // 2
    batches = [compressed("a", 100), compressed("b", half), compressed("c", half), compressed("d", LARGE)]
    async with opened(*batches) as store:
        found = get(store)
        assert (offsets(found), found.next_offset) == ([0], 1), "the second message exceeds the remaining size"
        found = get(store, 1)
        assert (offsets(found), found.next_offset) == ([1], 2)
        assert get(store, 3).non_resident
    assert all(by_loop and size <= half for size, by_loop in unpacked_by)


async def test_a_bomb_costs_a_thread_once_however_often_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    bombs = [compressed(f"bomb-{number}", 15 << 20) for number in range(3)]
    async with opened(*bombs, compressed("behind", 5)) as store:
        for offset in range(3):
            assert get(store, offset).non_resident
            cold = await store.load_messages("batches", 0, offset, ReadOptions(1, 1 << 18))
            again = store.get_messages("batches", 0, offset, ReadOptions(1, 1 << 18))
            assert [(offsets(found), found.next_offset) for found in (cold, again)] == [([], offset + 1)] * 2
        assert offsets(get(store, 3)) == [3]
    assert caplog.text.count("longer than 14680064 bytes") == 3


async def test_damage_needs_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(compressed("a", 5), compressed("damaged", 5, said=2), compressed("b", 5)) as store:
        found = get(store)
        assert (found.non_resident, offsets(found), found.next_offset) == (False, [0, 3], 4)
    assert "holds 1 messages, a different number than INNER_NUM" in caplog.text


async def test_what_is_found_by_key_or_place_is_unpacked_by_a_thread_too(unpacked_by: list[tuple[int, bool]]) -> None:
    async with opened(compressed("x", 2 * LARGE, 2), compressed("y", LARGE)) as store:
        for _ in range(2):
            found = await store.find_by_key("batches", "b-x", 0, 1 << 60, 32)
            keys = [decode_record(bytes(each)).properties for each in found]
            assert keys == ["UNIQ_KEY\x01x\x02UNIQ_KEY\x01b-x\x02"] * 2, "the cached data does not change"
        place = decode_record(bytes(found[0])).physical_offset
        at_place = await store.message_at(place)
        assert at_place is not None
        assert decode_record(bytes(at_place)).properties == "UNIQ_KEY\x01x\x02"
        sent_back = await store.message_at(place - 1, "x")
        assert sent_back is not None
    assert unpacked_by == [(2 * LARGE, False)]


@pytest.mark.parametrize(("limit", "value"), [("_CACHE_BATCHES", 2), ("_CACHE_BYTES", 6)])
def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(batch_records, limit, value)
    unpacker = batch_records.BatchUnpacker()
    costs = []
    for physical in (0, 1000, 2000, 1000, 0):
        body = encode_batch([(0, b"abc", b"")])
        wrapper = StoredMessage("batches", 0, body, "INNER_NUM\x011\x02", 0, INNER_BATCH, 0, physical)
        apart = unpacker.unpack(encode_record(wrapper), physical, wait=False)
        assert [(each.body, each.physical_offset) for each in apart.messages] == [(b"abc", physical + 1)]
        costs.append(apart.unpacked_bytes)
    assert costs == [3, 3, 3, 0, 3]
