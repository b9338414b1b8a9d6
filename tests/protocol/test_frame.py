"""Frames: any split of the stream gives the same payloads; bad lengths are refused before anything is kept for them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import FrameError, ProtocolError
from raptormq.protocol.frame import MAX_FRAME_BYTES, FrameDecoder, join_frame, split_payload

payloads = st.lists(st.binary(min_size=4, max_size=200), max_size=8)


def stream(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@given(payloads, st.lists(st.integers(0, 2000), max_size=12))
def test_any_split_gives_the_same_payloads(frames: list[bytes], cuts: list[int]) -> None:
    data = stream(frames)
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    decoder = FrameDecoder()
    received = [frame for start, end in itertools.pairwise(bounds) for frame in decoder.feed(data[start:end])]
    assert received == frames
    assert decoder.pending_bytes == 0


def test_byte_by_byte() -> None:
    frames = [b"abcd", b"\0" * 300]
    decoder = FrameDecoder()
    assert [frame for byte in stream(frames) for frame in decoder.feed(bytes([byte]))] == frames


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 3, MAX_FRAME_BYTES + 1, 0x7FFFFFFF])
def test_length_out_of_bounds_is_refused_with_its_prefix(length: int) -> None:
    with pytest.raises(FrameError, match=str(length)):
        FrameDecoder().feed(length.to_bytes(4, "big", signed=True))


def test_the_largest_frame_passes() -> None:
    decoder = FrameDecoder(max_frame_bytes=1000)
    assert decoder.feed(stream([bytes(1000)])) == [bytes(1000)]
    with pytest.raises(FrameError):
        decoder.feed((1001).to_bytes(4, "big"))


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_garbage_raises_nothing_but_protocol_errors(chunks: list[bytes]) -> None:
    decoder = FrameDecoder(max_frame_bytes=4096)
    fed = 0
    try:
        for chunk in chunks:
            fed += len(chunk)
            decoder.feed(chunk)
            assert decoder.pending_bytes <= fed
    except ProtocolError:
        pass
    else:
        assert fed == sum(map(len, chunks))


@given(st.integers(0, 1), st.binary(max_size=300), st.binary(max_size=50))
def test_join_and_split_are_inverse(serialize_type: int, header: bytes, body: bytes) -> None:
    frame = join_frame(serialize_type, header, len(body)) + body
    (payload,) = FrameDecoder().feed(frame)
    kind, start, end = split_payload(payload)
    assert (kind, payload[start:end], payload[end:]) == (serialize_type, header, body)


def test_a_header_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="does not fit"):
        split_payload(b"\0\0\0\5abc")
