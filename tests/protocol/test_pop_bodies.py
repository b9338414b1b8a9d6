"""Bodies of POP from misbehaving clients: decoding is bounded."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from raptormq.errors import BodyError
from raptormq.protocol.bodies.pop import CheckPoint, decode_batch_acks

ACK: dict[str, Any] = {"c": "g", "t": "t", "r": "0", "q": 0, "rq": 1, "so": 100, "pt": 1, "it": 1}
CHECKPOINT: dict[str, Any] = {"c": "g", "t": "t", "q": 0, "so": 100, "pt": 1, "it": 1, "n": 2, "bm": 0}


def offsets(bits: bytes) -> tuple[int, ...]:
    row = ACK | {"b": base64.b64encode(bits).decode()}
    (ack,) = decode_batch_acks(json.dumps({"acks": [row]}).encode())
    return ack.offsets


def test_the_bits_of_acknowledgements() -> None:
    assert offsets(b"") == ()
    assert offsets(b"\x05\n\x80") == (100, 102, 109, 111, 123)
    assert offsets(bytes(65_535) + b"\x80") == (100 + 65_536 * 8 - 1,)


@pytest.mark.parametrize("bits", [b"\xff" * 16, bytes(65_536) + b"\x01", b"\xff" * 2_000_000])
def test_more_bits_than_a_pop_hands_out_are_refused(bits: bytes) -> None:
    with pytest.raises(BodyError):
        offsets(bits)


def test_an_old_checkpoint_counts_its_messages() -> None:
    assert CheckPoint.from_json(json.dumps(CHECKPOINT).encode()).offsets == (100, 101)


@pytest.mark.parametrize(
    "change", [{"n": 10**12}, {"n": 128}, {"d": [0] * 128}, {"so": -1}, {"so": 1 << 63}, {"pt": 10**30}, {"d": [1e400]}]
)
def test_a_checkpoint_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BodyError):
        CheckPoint.from_json(json.dumps(CHECKPOINT | change).encode())


@pytest.mark.parametrize(("count", "is_refused"), [(4_096, False), (4_097, True)])
def test_a_batch_of_acknowledgements_has_an_end(count: int, is_refused: bool) -> None:
    body = json.dumps({"acks": [ACK] * count}).encode()
    if is_refused:
        with pytest.raises(BodyError):
            decode_batch_acks(body)
    else:
        assert len(decode_batch_acks(body)) == count
