"""Scans of the log that skip records."""

from __future__ import annotations

from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import SEGMENT_BYTES, message, open_store, put

V6 = b"\xfe\x80" + bytes(14) + b"\0\0\x2a\x9f"


def test_the_records_that_are_made_of_others_are_found_in_all_segments_and_behind_damage() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    for number in range(60):
        if number == 30:
            store.set_store_host(V6)
        record = message(str(number), prepared_transaction_offset=number * (number % 3))
        put(store, record._replace(born_host=V6) if number % 4 else record)
    assert store.end_offset > 3 * SEGMENT_BYTES
    all_records = [
        (each.physical_offset, each.queue_offset) for each in store.scan_log(0).records_with_prepared_offset()
    ]
    assert [number for _, number in all_records] == [number for number in range(60) if number % 3 and number]
    start, _ = all_records[10]
    assert [each.physical_offset for each in store.scan_log(start).records_with_prepared_offset()] == [
        place for place, _ in all_records[10:]
    ]
    damaged, _ = all_records[20]
    file = volume.open(f"/store/commitlog/{damaged // SEGMENT_BYTES * SEGMENT_BYTES:020d}")
    file.write_at(damaged % SEGMENT_BYTES, [bytes(8)], 8)
    left = [place for place, _ in all_records if place != damaged]
    assert [each.physical_offset for each in store.scan_log(0).records_with_prepared_offset()] == left
    assert list(store.scan_log(store.end_offset).records_with_prepared_offset()) == []
