"""Bodies compressed by producers."""

from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import RecordError
from raptormq.protocol.compression import decompress
from raptormq.protocol.record import SysFlag

ZLIB = SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB
LZ4 = SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4
ZSTD = SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD
COMPRESSORS = {ZLIB: zlib.compress, LZ4: lz4.frame.compress, ZSTD: zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize("flag", COMPRESSORS)
@given(body=st.binary(max_size=2000))
def test_round_trip(flag: SysFlag, body: bytes) -> None:
    assert decompress(COMPRESSORS[flag](body), flag, max_bytes=2001) == body


def test_old_clients_set_no_kind_and_mean_zlib() -> None:
    assert decompress(zlib.compress(b"x"), SysFlag.COMPRESSED) == b"x"
    assert decompress(b"x", 0) == b"x"


@pytest.mark.parametrize("flag", COMPRESSORS)
def test_a_bomb_is_refused(flag: SysFlag) -> None:
    with pytest.raises(RecordError, match="longer than 1000"):
        decompress(COMPRESSORS[flag](bytes(1_000_000)), flag, max_bytes=1000)


@pytest.mark.parametrize("flag", COMPRESSORS)
def test_cut_and_damaged_bodies_are_refused(flag: SysFlag) -> None:
    packed = COMPRESSORS[flag](b"some text that is long enough" * 10)
    for damaged in (packed[: len(packed) // 2], b"garbage"):
        with pytest.raises(RecordError):
            decompress(damaged, flag)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RecordError, match="0x500"):
        decompress(b"", SysFlag.COMPRESSED | 0x500)
