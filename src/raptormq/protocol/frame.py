"""Frames: how commands are cut out of a byte stream.

A frame (Apache RocketMQ ``NettyDecoder``, ``RemotingCommand``), all integers big-endian::

    0        4        5            8                8+H              4+L
    +--------+--------+------------+----------------+----------------+
    | L i32  | type u8| H u24      | header, H bytes| body           |
    +--------+--------+------------+----------------+----------------+
             `------------------ L bytes ---------------------------'

``L`` does not count itself; ``type`` says how the header is serialised (0 JSON, 1 ROCKETMQ binary). This module knows
lengths only; :mod:`raptormq.protocol.command` knows what is inside.
"""

from __future__ import annotations

import struct

from raptormq.errors import FrameError

MAX_FRAME_BYTES = 16_777_216
"""Largest ``L`` accepted, as in the reference (``com.rocketmq.remoting.frameMaxLength``)."""

Payload = bytes | memoryview
"""Everything of a frame after the length prefix. A large one is a view of what was read: whoever takes it apart copies
the body once, not twice."""
_VIEW_BYTES = 4096
"""From here a copy takes longer than to make a view."""
PIECE_BYTES = 64
"""What every piece of an unfinished frame takes besides its bytes."""
_MIN_PAYLOAD_BYTES = 4
_LENGTH = struct.Struct(">i")
_TYPE_AND_LENGTH = struct.Struct(">I")


class FrameDecoder:
    """Cuts a byte stream into frame payloads (everything after the length prefix).

    It holds at most one incomplete frame, so memory is bounded by ``max_frame_bytes`` plus one read; a length that is
    out of bounds is refused as soon as its four bytes are there, before anything is allocated for it.
    """

    __slots__ = ("_knows_length", "_max_frame_bytes", "_pending", "_pieces", "missing_bytes")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pieces: list[bytes] = []
        self._knows_length = False  # then the pieces are of the payload, else of the length prefix
        self._pending = 0
        self.missing_bytes = 0
        """Bytes that the incomplete payload or length prefix lacks; 0 when there is none."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of the incomplete payload or length prefix held back."""
        return self._pending

    @property
    def held_bytes(self) -> int:
        """The memory that these take: a peer that sends byte by byte takes more than it sends."""
        return self._pending + PIECE_BYTES * len(self._pieces)

    def clear(self) -> None:
        """Let go of what is incomplete; the stream is lost."""
        self._pieces.clear()
        self._pending = self.missing_bytes = 0

    def feed(self, data: bytes) -> list[Payload]:
        """Return the payloads that ``data`` completes, in order. They keep ``data`` in memory.

        Raises:
            FrameError: a length prefix is below 4 or above the limit. The stream is lost: close the connection.
        """
        frames: list[Payload] = []
        position = 0
        pieces = self._pieces
        if pieces:
            missing = self.missing_bytes
            if (size := len(data)) < missing:  # a large frame arrives in many reads: join once, not at every read
                pieces.append(data)
                self.missing_bytes = missing - size
                self._pending += size
                return frames
            if self._knows_length:  # nothing behind the payload is copied once more
                frames.append(b"".join((*pieces, memoryview(data)[:missing])))
                position = missing
            else:
                pieces.append(data)
                data = b"".join(pieces)
            pieces.clear()
            self._pending = self.missing_bytes = 0
        end = len(data)
        while end - position >= 4:
            (length,) = _LENGTH.unpack_from(data, position)
            if not _MIN_PAYLOAD_BYTES <= length <= self._max_frame_bytes:
                raise FrameError(f"frame length {length} is outside {_MIN_PAYLOAD_BYTES}..{self._max_frame_bytes}")
            position += 4
            stop = position + length
            if stop > end:
                self._knows_length = True
                self.missing_bytes = stop - end
                self._pending = end - position
                pieces.append(data[position:])
                return frames
            frames.append(data[position:stop] if length < _VIEW_BYTES else memoryview(data)[position:stop])
            position = stop
        if position < end:
            self._knows_length = False
            self._pending = end - position
            self.missing_bytes = 4 - self._pending
            pieces.append(data[position:])
        return frames


def split_payload(payload: Payload) -> tuple[int, int, int]:
    """Return ``(serialize type, header start, header end)`` of a payload; the body is ``payload[header end:]``.

    Raises:
        FrameError: the header is said to be longer than the payload.
    """
    length = len(payload)
    if length < _MIN_PAYLOAD_BYTES:
        raise FrameError(f"payload of {length} bytes is too short for a header length")
    (word,) = _TYPE_AND_LENGTH.unpack_from(payload)
    header_end = 4 + (word & 0xFFFFFF)
    if header_end > length:
        raise FrameError(f"header of {header_end - 4} bytes does not fit the payload of {length} bytes")
    return word >> 24, 4, header_end


def join_frame(serialize_type: int, header: bytes, body_length: int) -> bytes:
    """Return length prefix, header length and ``header``; the caller sends ``body_length`` bytes of body behind it.

    The body stays apart so that slices of a mapped file can follow without being copied.
    """
    return b"%b%c%b%b" % (
        _LENGTH.pack(4 + len(header) + body_length),
        serialize_type,
        len(header).to_bytes(3, "big"),
        header,
    )
