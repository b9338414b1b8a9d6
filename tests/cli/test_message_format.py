"""Output of received messages."""

from __future__ import annotations

import json

import pytest

from raptormq.cli.message_format import as_json, preview, raw
from raptormq.client import MessageExt, MessageQueue


def message(body: bytes, **properties: str) -> MessageExt:
    return MessageExt(
        topic="t",
        body=body,
        properties=properties,
        queue=MessageQueue("t", "broker-a", 3),
        queue_offset=7,
        physical_offset=1234,
        message_id="id",
        offset_message_id="offset-id",
        born_timestamp=1,
        store_timestamp=2,
    )


def test_raw_is_the_body_and_a_line_feed() -> None:
    assert raw(message(b"\xff a\x00")) == b"\xff a\x00\n"


def test_json_is_one_line_with_all_there_is() -> None:
    line = as_json(message("grüße\n".encode(), TAGS="a", KEYS="k1 k2", colour="red"))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "t",
        "broker": "broker-a",
        "queue_id": 3,
        "queue_offset": 7,
        "message_id": "id",
        "offset_message_id": "offset-id",
        "born_timestamp": 1,
        "store_timestamp": 2,
        "tag": "a",
        "keys": ["k1", "k2"],
        "properties": {"TAGS": "a", "KEYS": "k1 k2", "colour": "red"},
        "body": "grüße\n",
    }


def test_a_body_that_is_not_text_comes_in_base64() -> None:
    value = json.loads(as_json(message(b"\xff\x00")))
    assert value["body_base64"] == "/wA="
    assert "body" not in value
    assert (value["tag"], value["keys"]) == (None, [])


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", ""),
        ("grüße\n\x1b[31man\talle".encode(), "grüße  [31man alle"),
        (b"x" * 40, "x" * 40),
        (b"x" * 41, "x" * 39 + "…"),
        (b"\xff" * 100, "(100 bytes)"),
    ],
)
def test_what_a_table_shows_of_a_body(body: bytes, shown: str) -> None:
    assert preview(message(body)) == shown
