"""Codes of timer messages: the order of delivery, and values that are not codes."""

from __future__ import annotations

import pytest

from raptormq.storage.records.parser import decode_timer_code, encode_timer_code


def test_a_code_tells_time_and_kind() -> None:
    message = encode_timer_code("TIMER_OUT_MS\x011700000000000\x02")
    recall = encode_timer_code("TIMER_OUT_MS\x011700000000000\x02TIMER_DEL_UNIQKEY\x01t+id\x02")
    assert decode_timer_code(message) == (1_700_000_000_000, False)
    assert decode_timer_code(recall) == (1_700_000_000_000, True)


@pytest.mark.parametrize("value", ["", "soon", "-5", "1" * 18, "٣"])
def test_properties_without_a_time_have_no_code(value: str) -> None:
    assert encode_timer_code(f"TIMER_OUT_MS\x01{value}\x02") == 0


@pytest.mark.parametrize("code", [0, -1, 2**31 - 1, -(2**31), 2**62, 2**63 - 1])
def test_hashes_of_tags_and_nonsense_are_no_codes(code: int) -> None:
    assert decode_timer_code(code) is None
