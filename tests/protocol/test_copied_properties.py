"""Properties of a copy that do not fit: which are kept, which are removed, and how the copy lists them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import MessageError
from raptormq.protocol.copied_properties import MAX_LEFT_OUT_BYTES, fit_properties, merge_properties
from raptormq.protocol.properties import LEFT_OUT, MAX_PROPERTIES_BYTES, decode_properties, join_properties

MARK = len(LEFT_OUT) + 2 + MAX_LEFT_OUT_BYTES
"""Maximum size of the marker."""


def padded(size: int, name: str = "pad") -> dict[str, str]:
    """Return one property with this number of bytes."""
    return {name: "v" * (size - len(name) - 2)}


@pytest.mark.parametrize("letter", ["v", "\u00e4"])
@pytest.mark.parametrize("too_many", [0, 1, 2])
def test_nothing_is_left_out_up_to_the_last_byte(letter: str, too_many: int) -> None:
    needed = {"REAL_TOPIC": "t"}
    room = MAX_PROPERTIES_BYTES - len(join_properties(needed)) - len("note") - 2 + too_many
    note = letter * (room // len(letter.encode())) + "." * (room % len(letter.encode()))
    text, left_out = fit_properties({"note": note}, needed)
    if too_many:
        assert decode_properties(text) == {"REAL_TOPIC": "t", LEFT_OUT: "note"}
        assert left_out == ("note",)
    else:
        assert (len(text.encode()), left_out) == (MAX_PROPERTIES_BYTES, ())


def test_the_largest_of_the_application_go_first_and_the_systems_last() -> None:
    found = {
        "TAGS": "t" * 3_000,
        "UNIQ_KEY": "u" * 5_000,
        "KEYS": "k" * 4_000,
        "small": "s" * 1_000,
        "large": "l" * 2_000,
        "also large": "l" * 1_999,
        "__SHARDINGKEY": "o" * 3_500,
        "CLUSTER": "c" * 4_500,
    }
    order = ["also large", "large", "small", "KEYS", "__SHARDINGKEY", "TAGS", "UNIQ_KEY", "CLUSTER"]
    needed = {"DELAY": "3"}
    for count in range(1, len(order) + 1):
        stay = {name: value for name, value in found.items() if name not in order[:count]}
        text, left_out = fit_properties(found, needed, limit=len(join_properties(stay | needed)) + MARK)
        assert list(left_out) == order[:count]
        assert decode_properties(text) == stay | needed | {LEFT_OUT: ",".join(order[:count])}


def test_what_is_needed_takes_the_place_of_what_was_there_and_is_not_left_out() -> None:
    text, left_out = fit_properties(padded(1000) | {"DELAY": "9" * 5_000}, {"DELAY": "3"}, limit=900)
    assert (decode_properties(text), left_out) == ({"DELAY": "3", LEFT_OUT: "pad"}, ("pad",))


def test_what_a_copy_can_do_without_goes_before_anything_that_came() -> None:
    optional = {"PUSH_REPLY_TIME": "1", "MSG_REGION": "here"}
    found = padded(900) | {"MSG_REGION": "there"}
    everything = len(join_properties(found | optional))
    assert decode_properties(fit_properties(found, {}, optional, everything).text) == found | optional
    assert fit_properties(found, {}, optional, everything - 1) == (join_properties(found), ())


def test_needs_that_have_no_room_alone_are_an_error() -> None:
    assert merge_properties({}, padded(100)) == fit_properties({}, padded(100), limit=100).text
    with pytest.raises(MessageError, match="have 101 bytes, more than"):
        fit_properties({}, padded(101), limit=100)
    with pytest.raises(MessageError, match="longer than 32767"):
        merge_properties(padded(32_000), padded(800, "more"))


def test_a_copy_of_a_copy_names_what_both_have_left_out() -> None:
    first = fit_properties({"a": "x" * 700, "b": "x" * 600, "c": "x" * 5}, {}, limit=1_200)
    assert (first.left_out, decode_properties(first.text)[LEFT_OUT]) == (("a",), "a")
    second = fit_properties(decode_properties(first.text), {"DELAY": "1"}, limit=600)
    assert decode_properties(second.text) == {"c": "xxxxx", "DELAY": "1", LEFT_OUT: "a,b"}
    assert second.left_out == ("b",)


def test_names_without_room_are_counted() -> None:
    names = {f"{number:0100}": "v" * 2_000 for number in range(9)} | {"short": "v" * 1_999}
    text, left_out = fit_properties(names, {}, limit=1_000)
    assert len(left_out) == 10
    told = decode_properties(text)[LEFT_OUT].split(",")
    assert told == [*(f"{number:0100}" for number in range(4)), "short", "+5"]
    more, _ = fit_properties(decode_properties(text) | {"n" * 600: "v" * 5_000}, {}, limit=1_000)
    assert decode_properties(more)[LEFT_OUT].split(",") == [*told[:-1], "+6"]


NAMES = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "RETRY_TOPIC", "DELAY", LEFT_OUT]) | st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=40
)
FOUND = st.dictionaries(
    NAMES, st.builds(lambda letter, count: letter * count, st.sampled_from("a\u00e4\u4e2d"), st.integers(1, 900)),
    max_size=30,
)  # fmt: skip


@given(FOUND, st.integers(1_000, 20_000))
def test_every_property_is_there_or_named_within_the_limit(found: dict[str, str], limit: int) -> None:
    needed = {"REAL_TOPIC": "t", "REAL_QID": "0"}
    text, left_out = fit_properties(found, needed, limit=limit)
    assert len(text.encode()) <= limit
    kept = decode_properties(text)
    assert {name: kept[name] for name in needed} == needed
    before = found.pop(LEFT_OUT, None)
    mark = kept.pop(LEFT_OUT, None)
    assert kept.keys() | set(left_out) == found.keys() | needed.keys()
    assert all(kept[name] == (found | needed)[name] for name in kept)
    if left_out:
        assert mark is not None
    assert mark == before or len((mark or "").encode()) <= MAX_LEFT_OUT_BYTES
