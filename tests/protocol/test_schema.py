"""Header declarations: every declared header round-trips, and errors name the field."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptormq.errors import HeaderError
from raptormq.protocol.headers import client, offset, pull, route, send, topic
from raptormq.protocol.schema import Header, decode_header, encode_header

DECLARED = sorted(
    {
        declared
        for module in (client, offset, pull, route, send, topic)
        for declared in vars(module).values()
        if isinstance(declared, type) and issubclass(declared, Header) and declared is not Header
    },
    key=lambda declared: declared.__name__,
)
VALUES = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    int: st.integers(-(1 << 63), (1 << 63) - 1),
    bool: st.booleans(),
}


def value_of(hint: Any, optional: bool) -> st.SearchStrategy[Any]:
    kind = next((arg for arg in get_args(hint) if arg is not type(None)), hint)
    return VALUES[kind] | st.none() if optional else VALUES[kind]


@pytest.mark.parametrize("declared", DECLARED)
@settings(max_examples=25)
@given(data=st.data())
def test_every_header_round_trips(declared: type[Header], data: st.DataObject) -> None:
    hints = get_type_hints(declared)
    values = {
        field.name: data.draw(value_of(hints[field.name], field.default is None))
        for field in dataclasses.fields(declared)  # type: ignore[arg-type]
    }
    header = declared(**values)
    assert decode_header(declared, encode_header(header)) == header


@pytest.mark.parametrize("declared", DECLARED)
@settings(max_examples=25)
@given(ext_fields=st.dictionaries(st.sampled_from("abcdefghijklmn") | st.just("queueId"), st.text(max_size=30)))
def test_any_ext_fields_decode_or_are_a_header_error(declared: type[Header], ext_fields: dict[str, str]) -> None:
    with contextlib.suppress(HeaderError):
        decode_header(declared, ext_fields)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(HeaderError, match="required field queueId of QueueRequestHeader is missing"):
        decode_header(offset.QueueRequestHeader, {"topic": "t"})


@pytest.mark.parametrize("value", ["x", "", "1.5", str(1 << 63), "9" * 30])
def test_a_value_of_the_wrong_type_is_named(value: str) -> None:
    with pytest.raises(HeaderError, match="queueId"):
        decode_header(offset.QueueRequestHeader, {"topic": "t", "queueId": value})


def test_v2_letters_mean_what_v1_names_mean() -> None:
    names = [field.name for field in dataclasses.fields(send.SendMessageRequestHeader)]
    assert [field.name for field in dataclasses.fields(send.SendMessageRequestHeaderV2)] == names
    header = send.SendMessageRequestHeaderV2("g", "t", "TBW102", 4, -1, 0, 1, 2)
    assert encode_header(header) == {
        "a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "-1", "f": "0", "g": "1", "h": "2",
        "i": "", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
