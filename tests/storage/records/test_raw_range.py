"""Ranges of the log: record boundaries, and rejection of damaged ranges."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import RecordError
from raptormq.storage.records.raw_range import last_record_end, next_record_end, parse_range
from tests.storage.stores import SEGMENT_BYTES, message, open_store


def log_of(sizes: list[int]) -> tuple[bytes, list[int]]:
    """Return the bytes of a log with messages of these sizes, and the ends of its records and fillers."""
    store = open_store()
    ends = [0]
    for size in sizes:
        group = store.append([message("x" * size)])
        (place,) = group.physical_offsets
        if place != ends[-1]:
            ends.append(place)
        ends.append(group.end_offset)
    bounds = [*range(0, ends[-1], SEGMENT_BYTES), ends[-1]]
    parts = [store._log.read(low, high - low, wait=True) for low, high in pairwise(bounds)]
    return b"".join(map(bytes, parts)), ends


SIZES = st.lists(st.integers(0, 1500), min_size=1, max_size=12)


@given(SIZES, st.data())
def test_the_last_end_is_that_of_a_record_whatever_is_cut(sizes: list[int], data: st.DataObject) -> None:
    log, ends = log_of(sizes)
    start = data.draw(st.sampled_from(ends[:-1]))
    stop = data.draw(st.integers(start, len(log)))
    expected = max(end for end in ends if end <= stop and end >= start)
    assert last_record_end(log[start:stop], start, SEGMENT_BYTES) == expected


@given(SIZES)
def test_a_range_has_all_of_its_records(sizes: list[int]) -> None:
    log, ends = log_of(sizes)
    batch = parse_range(log, 0, SEGMENT_BYTES)
    assert batch.end_offset == len(log) == ends[-1]
    assert len(batch.records) == len(sizes)
    assert batch.queue_offsets == list(range(len(sizes)))
    assert {place + size for place, size in zip(batch.physical_offsets, batch.sizes, strict=True)} <= set(ends)


@given(SIZES, st.data())
def test_a_flipped_bit_in_a_body_or_head_refuses_the_range(sizes: list[int], data: st.DataObject) -> None:
    log, ends = log_of([size + 1 for size in sizes])
    begin = data.draw(st.sampled_from([end for end in ends[:-1] if end + 4 < len(log)]))
    at = begin + data.draw(st.integers(0, 7))  # size and magic
    damaged = bytearray(log)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RecordError):
        parse_range(bytes(damaged), 0, SEGMENT_BYTES)


def test_a_range_that_is_cut_or_of_another_place_is_refused() -> None:
    log, ends = log_of([100, 100])
    with pytest.raises(RecordError, match="incomplete"):
        parse_range(log[:-1], 0, SEGMENT_BYTES)
    with pytest.raises(RecordError, match="physical offset"):
        parse_range(log[ends[1] :], 0, SEGMENT_BYTES)
    with pytest.raises(RecordError, match="no record begins"):
        next_record_end(bytes(64), 0, 0, SEGMENT_BYTES)
