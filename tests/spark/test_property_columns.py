"""Properties from the positions of their separators, compared with parsing each message."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_raptormq.property_columns import ParsedProperties, SeparatedProperties, property_table
from raptormq.protocol.properties import decode_properties

NAMES = [
    "a",
    "bc",
    "TAGS",
    "KEYS",
    "seven77",
    "UNIQ_KEY",
    "UNIQ_KEZ",
    "longer than eight",
    "longer than eighu",
    "\u00e9",
]
SYSTEM_NAMES = ("TAGS", "KEYS", "UNIQ_KEY")
PAIRS = st.tuples(st.sampled_from(NAMES), st.sampled_from(["x", "yy", "\u20ac 5"])).map("\x01".join)
TEXTS = st.lists(PAIRS, max_size=5).flatmap(
    lambda pairs: st.sampled_from(["\x02".join(pairs), "".join(p + "\x02" for p in pairs)])
)


def column(*texts: str) -> pa.Array:
    return pa.array([text.encode() for text in texts], pa.binary())


@given(st.lists(TEXTS, max_size=6), st.integers(0, 2))
def test_both_ways_agree(texts: list[str], skipped: int) -> None:
    raw = column(*texts)[skipped:]
    quick, slow = SeparatedProperties(raw), ParsedProperties(raw)
    for name in [*NAMES, "absent"]:
        assert quick.values(name).to_pylist() == slow.values(name).to_pylist()
    for found, text in zip(quick.map().to_pylist(), texts[skipped:], strict=True):
        assert dict(found) == decode_properties(text)
        assert len(found) == len(dict(found))
    for table in (quick, slow):
        for found, text in zip(table.map(without_system=True).to_pylist(), texts[skipped:], strict=True):
            everything = decode_properties(text).items()
            assert dict(found) == {name: value for name, value in everything if name not in SYSTEM_NAMES}
            assert len(found) == len(dict(found))


@pytest.mark.parametrize(
    "text", ["a\x01b\x01c\x02", "a\x02", "\x01b\x02", "a\x01\x02", "a\x01b\x02\x02", "a\x00b\x01c\x02"]
)
def test_irregular_texts_are_parsed_one_by_one(text: str) -> None:
    table = property_table(column(text, "k\x01v\x02"))
    assert isinstance(table, ParsedProperties)
    assert [dict(row) for row in table.map().to_pylist()] == [decode_properties(text), {"k": "v"}]


def test_no_message_and_no_property() -> None:
    assert property_table(column()).values("KEYS").to_pylist() == []
    assert property_table(column("", "")).map().to_pylist() == [[], []]
