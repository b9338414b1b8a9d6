"""Recall handles: the text form of Apache RocketMQ, and invalid handles."""

from __future__ import annotations

import base64

import pytest

from raptormq.errors import MessageError
from raptormq.protocol.recall_handle import RecallHandle, decode_recall_handle, encode_recall_handle

HANDLE = RecallHandle("topic", "broker-a", "1700000000001", "7F0000010001")


def test_a_handle_survives_the_journey() -> None:
    text = encode_recall_handle(HANDLE)
    assert base64.urlsafe_b64decode(text) == b"v1 topic broker-a 1700000000001 7F0000010001"
    assert decode_recall_handle(text) == HANDLE
    assert decode_recall_handle(text.rstrip("=")) == HANDLE


@pytest.mark.parametrize("text", ["", "djE=", "!", "ä", base64.urlsafe_b64encode(b"v2 a b c d").decode(), "_____w=="])
def test_what_is_no_handle(text: str) -> None:
    with pytest.raises(MessageError, match="recall handle is invalid"):
        decode_recall_handle(text)
