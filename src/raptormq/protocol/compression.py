"""Compression of bodies, as declared by SYSFLAG (Apache RocketMQ ``CompressorFactory``): zlib, LZ4 frame, zstd.

Producers compress once and consumers decompress once; brokers rarely look inside. So LZ4 and zstd are imported on first
use.
"""

from __future__ import annotations

import enum
import zlib

from raptormq.errors import BodyTooLarge, RecordError
from raptormq.protocol.record import Bytes, SysFlag

_ZLIB_LEVEL = 5
_ZSTD_STEP_BYTES = 512
MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
"""Maximum size of a decompressed body. No body that brokers accept under their size limit legitimately exceeds it."""


class Compression(enum.Enum):
    """Compression used by producers; the value is the bits of SYSFLAG."""

    LZ4 = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4)
    ZSTD = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD)
    ZLIB = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)


def compress(body: bytes, compression: Compression) -> tuple[bytes, int]:
    """Return the compressed body and its bits for SYSFLAG. A body that does not shrink stays uncompressed."""
    if compression is Compression.ZLIB:
        smaller = zlib.compress(body, _ZLIB_LEVEL)
    elif compression is Compression.LZ4:
        import lz4.frame

        smaller = lz4.frame.compress(body)
    else:
        import zstandard

        smaller = zstandard.compress(body)
    return (smaller, compression.value) if len(smaller) < len(body) else (body, 0)


def decompress(body: Bytes, sys_flag: int, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return the decompressed body of a record with this SYSFLAG.

    Raises:
        RecordError: the body is damaged, or its compression is unknown.
        BodyTooLarge: the result is longer than ``max_bytes``.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return bytes(body)
    kind = sys_flag & SysFlag.COMPRESSION_MASK
    try:
        if kind in (0, SysFlag.COMPRESSION_ZLIB):
            inflater = zlib.decompressobj()
            plain = inflater.decompress(body, max_bytes)
            complete = inflater.eof
        elif kind == SysFlag.COMPRESSION_LZ4:
            import lz4.frame

            decompressor = lz4.frame.LZ4FrameDecompressor()
            plain = decompressor.decompress(body, max_length=max_bytes)
            complete = decompressor.eof
        elif kind == SysFlag.COMPRESSION_ZSTD:
            plain, complete = _decompress_zstd(body, max_bytes)
        else:
            raise RecordError(f"unknown compression {kind:#x}")
    except (zlib.error, RuntimeError) as error:
        raise RecordError(f"the compressed body is damaged: {error}") from error
    if not complete:
        if len(plain) >= max_bytes:
            raise BodyTooLarge(f"the compressed body is longer than {max_bytes} bytes")
        raise RecordError("the compressed body is truncated")
    return plain


def _decompress_zstd(body: Bytes, max_bytes: int) -> tuple[bytes, bool]:
    """Decompress in small steps: the library has no limit of the output, and 512 bytes grow to 16 MiB at most."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    total = 0
    try:
        for position in range(0, len(body), _ZSTD_STEP_BYTES):
            parts.append(decompressor.decompress(body[position : position + _ZSTD_STEP_BYTES]))
            total += len(parts[-1])
            if total > max_bytes or decompressor.eof:
                break
    except zstandard.ZstdError as error:
        raise RecordError(f"the compressed body is damaged: {error}") from error
    return b"".join(parts), decompressor.eof and total <= max_bytes
