"""Frames: any split of the stream yields the same frames; invalid lengths are refused before memory is allocated."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import FrameError, ProtocolError
from raptormq.protocol.frame import MAX_FRAME_BYTES, PIECE_BYTES, Frame, FrameDecoder, join_frame

frames_of_any_kind = st.lists(
    st.tuples(st.integers(0, 255), st.binary(max_size=100), st.binary(max_size=100)), max_size=8
)


def stream(frames: list[Frame]) -> bytes:
    return b"".join(join_frame(kind, header, len(body)) + body for kind, header, body in frames)


@given(frames_of_any_kind, st.lists(st.integers(0, 2000), max_size=12))
def test_any_split_gives_the_same_frames(frames: list[Frame], cuts: list[int]) -> None:
    data = stream(frames)
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    decoder = FrameDecoder()
    received = [frame for start, end in itertools.pairwise(bounds) for frame in decoder.feed(data[start:end])]
    assert received == frames
    assert (decoder.missing_bytes, decoder.held_bytes) == (0, 0)


def test_byte_by_byte() -> None:
    frames = [(0, b"", b""), (1, b"abc", b"\0" * 300)]
    decoder = FrameDecoder()
    assert [frame for byte in stream(frames) for frame in decoder.feed(bytes([byte]))] == frames


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 3, MAX_FRAME_BYTES + 1, 0x7FFFFFFF])
def test_length_out_of_bounds_is_refused_with_its_prefix(length: int) -> None:
    with pytest.raises(FrameError, match=str(length)):
        FrameDecoder().feed(length.to_bytes(4, "big", signed=True))


def test_the_largest_frame_passes() -> None:
    decoder = FrameDecoder(max_frame_bytes=1000)
    assert decoder.feed(stream([(0, bytes(96), bytes(900))])) == [(0, bytes(96), bytes(900))]
    with pytest.raises(FrameError):
        decoder.feed((1001).to_bytes(4, "big"))


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_garbage_raises_nothing_but_protocol_errors(chunks: list[bytes]) -> None:
    decoder = FrameDecoder(max_frame_bytes=4096)
    fed = 0
    try:
        for pieces, chunk in enumerate(chunks, 1):
            fed += len(chunk)
            decoder.feed(chunk)
            assert decoder.held_bytes <= fed + pieces * PIECE_BYTES
    except ProtocolError:
        pass
    else:
        assert fed == sum(map(len, chunks))


def feed_all(decoder: FrameDecoder, data: bytes, read: int) -> None:
    for at in range(0, len(data), read):
        decoder.feed(data[at : at + read])


@given(st.integers(4, 300), st.integers(1, 1 << 24), st.integers(1, 400))
def test_a_header_longer_than_its_frame_is_refused(length: int, excess: int, read: int) -> None:
    header_length = min(length - 4 + excess, (1 << 24) - 1)
    with pytest.raises(FrameError, match="is longer than the payload"):
        feed_all(FrameDecoder(), struct.pack(">ii", length, header_length) + bytes(length - 4), read)
