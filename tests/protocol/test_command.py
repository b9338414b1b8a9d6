"""Commands: both header encodings round-trip, lenient JSON of peers is decoded, damage is a CommandError."""

from __future__ import annotations

import contextlib

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raptormq.errors import CommandError, ProtocolError
from raptormq.protocol import binary_header, command, json_header
from raptormq.protocol.command import RemotingCommand, SerializeType
from raptormq.protocol.frame import FrameDecoder
from raptormq.protocol.headers.offset import OffsetResponseHeader
from raptormq.protocol.language import Language

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def commands(serialize_type: SerializeType) -> st.SearchStrategy[RemotingCommand]:
    binary = serialize_type is SerializeType.ROCKETMQ
    return st.builds(
        RemotingCommand,
        st.integers(0, 0x7FFF) if binary else int32,
        st.dictionaries(text, text, max_size=6),
        st.binary(max_size=100),
        int32,
        int32,
        text.filter(bool) | st.none(),
        st.sampled_from(list(Language)),
        st.integers(0, 0xFFFF) if binary else int32,
        st.just(serialize_type),
    )


@given(commands(SerializeType.JSON) | commands(SerializeType.ROCKETMQ))
def test_decode_undoes_encode(original: RemotingCommand) -> None:
    (frame,) = FrameDecoder().feed(command.encode(original))
    assert command.decode(frame) == original


@pytest.mark.parametrize("fields", [{"topic": "t\udcff"}, {"t\udcff": "topic"}])
def test_text_that_is_none_cannot_be_encoded(fields: dict[str, str]) -> None:
    with pytest.raises(CommandError, match="cannot be encoded"):
        command.encode(RemotingCommand(105, fields))


@given(st.integers(0, 255), st.binary(max_size=200))
@example(1, b"\0" * 13 + b"\x7f\xff\xff\xff" + b"\0" * 4)
def test_no_header_raises_anything_but_our_own_errors(serialize_type: int, header: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert command.decode((serialize_type, header, b"body")).body == b"body"


@given(st.binary(max_size=120))
def test_damaged_binary_headers_are_command_errors(header: bytes) -> None:
    with contextlib.suppress(CommandError):
        binary_header.decode(header)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | text, lambda s: st.lists(s) | st.dictionaries(text, s)
    )
)
def test_any_json_is_a_header_or_a_command_error(value: object) -> None:
    with contextlib.suppress(CommandError, TypeError):  # TypeError: integers that JSON cannot be written with
        json_header.decode(orjson.dumps(value))


def test_numbers_and_booleans_in_ext_fields_become_strings() -> None:
    header = b'{"code":11,"extFields":{"a":1,"b":true,"c":null,"d":"x","e":2.0},"flag":0,"opaque":7}'
    fields = json_header.decode(header)
    assert fields[-1] == {"a": "1", "b": "true", "d": "x", "e": "2"}


def test_a_missing_remark_and_map_are_absent() -> None:
    assert json_header.decode(b'{"code":1,"opaque":5}') == (1, Language.OTHER, 0, 5, 0, None, {})


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"nonsense",
        b"{}",
        b'{"code":"1"}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":{"a":{}}}',
        b'{"code":4294967296}',
    ],
)
def test_unusable_json_headers_are_refused(header: bytes) -> None:
    with pytest.raises(CommandError):
        json_header.decode(header)


def test_ext_fields_are_written_even_when_empty_because_java_dereferences_them() -> None:
    ((_, header, _),) = FrameDecoder().feed(command.encode(RemotingCommand(0)))
    assert orjson.loads(header)["extFields"] == {}


def test_pop_codes_fall_back_to_json() -> None:
    frame = command.encode(RemotingCommand(200_050, serialize_type=SerializeType.ROCKETMQ))
    assert frame[4] == SerializeType.JSON


def test_a_response_copies_opaque_and_encoding() -> None:
    asked = RemotingCommand(14, opaque=9, serialize_type=SerializeType.ROCKETMQ)
    answer = command.response_to(asked, 0, header=OffsetResponseHeader(5))
    assert (answer.opaque, answer.serialize_type, answer.ext_fields) == (9, SerializeType.ROCKETMQ, {"offset": "5"})
    assert answer.is_response
    assert not answer.is_oneway


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("size", [3_000, 4_095, 4_096, 300_000])
@pytest.mark.parametrize("read", [1_000, 1_000_000])
def test_large_bodies_in_any_reads(serialize_type: SerializeType, size: int, read: int) -> None:
    original = RemotingCommand(310, {"a": "b"}, bytes(range(250)) * (size // 250), serialize_type=serialize_type)
    stream = command.encode(original) * 2
    decoder = FrameDecoder()
    frames = [frame for at in range(0, len(stream), read) for frame in decoder.feed(stream[at : at + read])]
    assert [command.decode(frame) for frame in frames] == [original, original]
    assert all(type(body) is bytes for _, _, body in frames)
