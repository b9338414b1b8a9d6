"""The property with the unique ids of the messages in a batch that brokers cannot read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.protocol.inner_ids import MAX_CHARS, pack_ids, unpack_ids
from raptormq.protocol.message_id import UniqueIdFactory, ids_from
from raptormq.protocol.properties import encode_properties

FIRST = "0A" * 14 + "FFF0"
COUNTERS = st.lists(st.integers(0, 0xFFFF).flatmap(lambda first: st.tuples(st.just(first), st.integers(1, 40))))


def properties(value: str, count: object) -> str:
    return encode_properties({"__INNER_IDS": value, "INNER_NUM": str(count)})


@pytest.mark.parametrize("address", [bytes(4), bytes(16)], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("count", [1, 2, 40, 32_767])
def test_ids_made_together_are_one_run_however_many(address: bytes, count: int) -> None:
    factory = UniqueIdFactory(address, 1, 2)
    factory.next_ids(5, 0xFFF0)
    ids = factory.next_ids(5, count)
    value = pack_ids(ids)
    assert len(value) <= factory.id_length + 6
    assert unpack_ids(properties(value, count)) == ids


def test_the_format() -> None:
    ids = ids_from(FIRST, 17)
    assert pack_ids(ids) == f"{FIRST}*17"
    assert ids[-1] == "0A" * 14 + "0000"
    assert pack_ids([ids[3], ids[1], ids[2], FIRST]) == f"{ids[3]},{ids[1]}*2,{FIRST}"


@given(COUNTERS)
def test_ids_in_any_order_come_back_or_are_not_said(runs: list[tuple[int, int]]) -> None:
    ids = [each for first, count in runs for each in ids_from(f"{FIRST[:-4]}{first:04X}", count)]
    value = pack_ids(ids)
    assert len(value) <= MAX_CHARS
    if value:
        assert unpack_ids(properties(value, len(ids))) == ids
    else:
        assert not runs or len(runs) > MAX_CHARS // (len(FIRST) + 4)


@pytest.mark.parametrize("ids", [[], ["an id of one's own"], [FIRST, "A*3"], [FIRST.lower()], [FIRST, FIRST[:-1]]])
def test_ids_of_other_makers_are_not_said(ids: list[str]) -> None:
    assert pack_ids(ids) == ""


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (f"{FIRST}*3", 2),
        (f"{FIRST}*3", 4),
        (f"{FIRST}*3", "x"),
        (f"{FIRST}*0,{FIRST}*3", 3),
        (f"{FIRST}*-1", 1),
        (f"{FIRST}*", 1),
        (f"{FIRST}*99999", 99_999 - 70_000),
        (f"{FIRST},{FIRST + FIRST[:24]}", 2),
        (f"{FIRST[:-1]}*3", 3),
        (f"{FIRST},,{FIRST}", 3),
        (",".join([FIRST] * 40), 40),
    ],
)
def test_what_lies_about_itself_says_nothing(value: str, count: object) -> None:
    assert unpack_ids(properties(value, count)) == []


def test_most_batches_say_none() -> None:
    assert unpack_ids("INNER_NUM\x013\x02") == []
    assert unpack_ids(f"__INNER_IDS\x01{FIRST}*3\x02") == []
