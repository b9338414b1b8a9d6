"""Frames: splits a byte stream into commands.

A frame (Apache RocketMQ ``NettyDecoder``, ``RemotingCommand``), all integers big-endian::

    0        4        5            8                8+H              4+L
    +--------+--------+------------+----------------+----------------+
    | L i32  | type u8| H u24      | header, H bytes| body           |
    +--------+--------+------------+----------------+----------------+
             `------------------ L bytes ---------------------------'

``L`` does not include its own four bytes. ``type`` is the encoding of the header (0 JSON, 1 ROCKETMQ binary). This
module handles lengths only; :mod:`raptormq.protocol.command` decodes headers.
"""

from __future__ import annotations

import struct

from raptormq.errors import FrameError

MAX_FRAME_BYTES = 16_777_216
"""Default maximum of ``L``, as in Apache RocketMQ (``com.rocketmq.remoting.frameMaxLength``)."""

Frame = tuple[int, bytes, bytes]
"""``(serialize type, header, body)`` of a frame."""
PIECE_BYTES = 64
"""Memory in bytes that each piece of an incomplete frame takes in addition to its data."""
_MIN_PAYLOAD_BYTES = 4
_LENGTH = struct.Struct(">i")
_WORD = struct.Struct(">I")
_LENGTHS = struct.Struct(">iI")
_HEADER_LENGTH = 0xFFFFFF


class FrameDecoder:
    """Splits a byte stream into frames. Most bytes are copied once.

    The decoder holds at most one incomplete frame, so memory is bounded by ``max_frame_bytes`` plus one read. A length
    that is out of bounds is refused as soon as its four bytes have arrived, before anything is allocated for it.
    """

    __slots__ = ("_knows_length", "_max_frame_bytes", "_pending", "_pieces", "missing_bytes")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pieces: list[bytes] = []
        self._knows_length = False  # whether the pieces belong to the payload or to the length prefix
        self._pending = 0
        self.missing_bytes = 0
        """Bytes that are missing from the incomplete payload or length prefix; 0 if there is none."""

    @property
    def held_bytes(self) -> int:
        """Memory of the incomplete frame. A peer that sends byte by byte occupies more than it sends."""
        return self._pending + PIECE_BYTES * len(self._pieces)

    def clear(self) -> None:
        """Discard the incomplete frame; the stream cannot be decoded further."""
        self._pieces.clear()
        self._pending = self.missing_bytes = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that ``data`` completes, in order.

        Raises:
            FrameError: a length is out of bounds, or the header is longer than its frame. The stream cannot be decoded
                further: close the connection.
        """
        frames: list[Frame] = []
        position = 0
        pieces = self._pieces
        if pieces:
            missing = self.missing_bytes
            if (size := len(data)) < missing:  # join the pieces of a large frame once, not at every read
                pieces.append(data)
                self.missing_bytes = missing - size
                self._pending += size
                return frames
            if self._knows_length:  # bytes after the frame are not copied again
                frames.append(_join_pieces(pieces, memoryview(data)[:missing]))
                position = missing
            else:
                pieces.append(data)
                data = b"".join(pieces)
            pieces.clear()
            self._pending = self.missing_bytes = 0
        end = len(data)
        while end - position >= _LENGTHS.size:
            length, word = _LENGTHS.unpack_from(data, position)
            if not _MIN_PAYLOAD_BYTES <= length <= self._max_frame_bytes:
                raise self._out_of_bounds(length)
            position += 4
            stop = position + length
            if stop > end:
                self._keep(data[position:], stop - end)
                return frames
            body_at = position + 4 + (word & _HEADER_LENGTH)
            if body_at > stop:
                raise _too_long(word & _HEADER_LENGTH, length)
            frames.append((word >> 24, data[position + 4 : body_at], data[body_at:stop]))
            position = stop
        if position < end:
            self._keep_beginning(data[position:])
        return frames

    def _keep(self, piece: bytes, missing_bytes: int) -> None:
        """Keep the first piece of a payload."""
        self._knows_length = True
        self.missing_bytes = missing_bytes
        self._pending = len(piece)
        self._pieces.append(piece)

    def _keep_beginning(self, data: bytes) -> None:
        """Keep bytes that end before the length of the header is complete.

        Raises:
            FrameError: the length of the frame is out of bounds.
        """
        if len(data) >= 4:
            (length,) = _LENGTH.unpack_from(data)
            if not _MIN_PAYLOAD_BYTES <= length <= self._max_frame_bytes:
                raise self._out_of_bounds(length)
        self._knows_length = False
        self._pending = len(data)
        self.missing_bytes = _LENGTHS.size - len(data)
        self._pieces.append(data)

    def _out_of_bounds(self, length: int) -> FrameError:
        return FrameError(f"the frame length {length} is outside {_MIN_PAYLOAD_BYTES}..{self._max_frame_bytes}")


def _join_pieces(pieces: list[bytes], last: memoryview) -> Frame:
    """Return the frame whose payload arrived in pieces. The first piece has the length of the header.

    Raises:
        FrameError: the header is longer than the payload.
    """
    first = pieces[0]
    (word,) = _WORD.unpack_from(first)
    body_at = 4 + (word & _HEADER_LENGTH)
    if body_at <= len(first):
        return word >> 24, first[4:body_at], b"".join((memoryview(first)[body_at:], *pieces[1:], last))
    payload = b"".join((*pieces, last))
    if body_at > len(payload):
        raise _too_long(word & _HEADER_LENGTH, len(payload))
    return word >> 24, payload[4:body_at], payload[body_at:]


def _too_long(header_bytes: int, payload_bytes: int) -> FrameError:
    return FrameError(f"the header of {header_bytes} bytes is longer than the payload of {payload_bytes} bytes")


def join_frame(serialize_type: int, header: bytes, body_length: int) -> bytes:
    """Return length prefix, header length and ``header``. The caller sends ``body_length`` bytes of body after them.

    The body is separate so that slices of a mapped file can be sent without being copied.
    """
    return b"%b%c%b%b" % (
        _LENGTH.pack(4 + len(header) + body_length),
        serialize_type,
        len(header).to_bytes(3, "big"),
        header,
    )
