"""Encrypted bodies: round trips, and bodies that are damaged or not encrypted."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import RecordError
from raptormq.protocol.encryption import (
    KEY_BYTES,
    decrypt_body,
    encrypt_body,
    encryption_overhead,
    is_encrypted_body,
    key_id_of,
)

KEY, NONCE = b"k" * 32, b"n" * 12
ENCRYPTED = encrypt_body(b"plain", 0, "k1", KEY, NONCE)


@given(
    st.binary(max_size=200), st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.sampled_from(KEY_BYTES)
)
def test_there_and_back(plain: bytes, key_id: str, size: int) -> None:
    encrypted = encrypt_body(plain, 0, key_id, b"x" * size, NONCE)
    assert is_encrypted_body(encrypted)
    assert key_id_of(memoryview(encrypted)) == key_id
    assert decrypt_body(memoryview(encrypted), b"x" * size) == plain


@pytest.mark.parametrize("key_id", ["k1", "ä" * 100])
def test_how_much_longer_a_body_gets(key_id: str) -> None:
    assert len(encrypt_body(b"plain", 0, key_id, KEY, NONCE)) - len(b"plain") == encryption_overhead(key_id)


def test_the_layout() -> None:
    assert ENCRYPTED[:10] == b"RMQE\x01\x00\x00\x02k1"
    assert ENCRYPTED[10:22] == NONCE
    assert len(ENCRYPTED) == 22 + len(b"plain") + 16


def test_compressed_bodies_are_decompressed_up_to_a_limit() -> None:
    encrypted = encrypt_body(zlib.compress(b"x" * 100), 0x301, "k1", KEY, NONCE)
    assert decrypt_body(encrypted, KEY, 100) == b"x" * 100
    with pytest.raises(RecordError, match="longer than 99 bytes"):
        decrypt_body(encrypted, KEY, 99)


def test_another_key_is_an_error() -> None:
    with pytest.raises(RecordError, match="not encrypted with the key k1"):
        decrypt_body(ENCRYPTED, b"K" * 32)


@pytest.mark.parametrize("at", range(len(ENCRYPTED)))
def test_every_changed_byte_is_found(at: int) -> None:
    damaged = bytearray(ENCRYPTED)
    damaged[at] ^= 1
    with pytest.raises(RecordError):
        decrypt_body(bytes(damaged), KEY)


@given(st.binary(max_size=60), st.integers(0, len(ENCRYPTED) - 1))
def test_anything_else_is_refused(data: bytes, cut: int) -> None:
    for candidate in (data, b"RMQE" + data, ENCRYPTED[:cut]):
        with pytest.raises(RecordError):
            decrypt_body(candidate, KEY)
