"""Messages of a batch that are found by the key of the batch, with properties near the size limit."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES, UNIQUE_KEY, find_property
from raptormq.protocol.record import decode_record
from raptormq.storage import PendingRecord
from tests.storage.batch_stores import open_batch_store

ID = "UNIQ_KEY\x01BATCH\x02"


@pytest.mark.parametrize("letter", ["x", "\u00e4"])
@pytest.mark.parametrize("too_many", [0, 1, len(ID)])
async def test_a_message_without_room_for_the_id_of_its_batch_goes_without_its_largest(
    letter: str, too_many: int
) -> None:
    size = MAX_PROPERTIES_BYTES - len(ID) + too_many
    value = letter * ((size - 3) // len(letter.encode()))
    long = f"p\x01{value}{'.' * (size - 3 - len(value.encode()))}\x02"
    assert len(long.encode()) == size
    record = PendingRecord(
        "batches",
        0,
        encode_batch([(0, b"a", long.encode()), (0, b"b", b"")]),
        f"{ID}INNER_NUM\x012\x02".encode(),
        sys_flag=INNER_BATCH,
    )
    store = open_batch_store(segment_size=1 << 20)
    try:
        store.set_loop(asyncio.get_running_loop())
        store.append([record])
        store.dispatch()
        found = [decode_record(bytes(each)) for each in await store.find_by_key("batches", "BATCH", 0, 1 << 60, 32)]
    finally:
        store.close()
    assert [each.body for each in found] == [b"a", b"b"]
    assert found[0].properties == (f"{ID}__LEFT_OUT\x01p\x02" if too_many else long + ID)
    assert find_property(found[1].properties, UNIQUE_KEY) == "BATCH"
