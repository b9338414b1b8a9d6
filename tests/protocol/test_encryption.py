"""Encrypted bodies: there and back, and every way of not being one."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import RecordError
from raptormq.protocol.encryption import KEY_BYTES, added_bytes, is_sealed, key_id_of, seal, unseal

KEY, NONCE = b"k" * 32, b"n" * 12
SEALED = seal(b"plain", 0, "k1", KEY, NONCE)


@given(
    st.binary(max_size=200), st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.sampled_from(KEY_BYTES)
)
def test_there_and_back(plain: bytes, key_id: str, size: int) -> None:
    sealed = seal(plain, 0, key_id, b"x" * size, NONCE)
    assert is_sealed(sealed)
    assert key_id_of(memoryview(sealed)) == key_id
    assert unseal(memoryview(sealed), b"x" * size) == plain


@pytest.mark.parametrize("key_id", ["k1", "ä" * 100])
def test_how_much_longer_a_body_gets(key_id: str) -> None:
    assert len(seal(b"plain", 0, key_id, KEY, NONCE)) - len(b"plain") == added_bytes(key_id)


def test_the_layout() -> None:
    assert SEALED[:10] == b"RMQE\x01\x00\x00\x02k1"
    assert SEALED[10:22] == NONCE
    assert len(SEALED) == 22 + len(b"plain") + 16


def test_compressed_bodies_are_decompressed_up_to_a_limit() -> None:
    sealed = seal(zlib.compress(b"x" * 100), 0x301, "k1", KEY, NONCE)
    assert unseal(sealed, KEY, 100) == b"x" * 100
    with pytest.raises(RecordError, match="longer than 99 bytes"):
        unseal(sealed, KEY, 99)


def test_another_key_is_an_error() -> None:
    with pytest.raises(RecordError, match="another key than k1"):
        unseal(SEALED, b"K" * 32)


@pytest.mark.parametrize("at", range(len(SEALED)))
def test_every_changed_byte_is_found(at: int) -> None:
    damaged = bytearray(SEALED)
    damaged[at] ^= 1
    with pytest.raises(RecordError):
        unseal(bytes(damaged), KEY)


@given(st.binary(max_size=60), st.integers(0, len(SEALED) - 1))
def test_anything_else_is_refused(data: bytes, cut: int) -> None:
    for candidate in (data, b"RMQE" + data, SEALED[:cut]):
        with pytest.raises(RecordError):
            unseal(candidate, KEY)
