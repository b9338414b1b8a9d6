"""Encoders and decoders compared with recorded bytes of Apache RocketMQ 5.3.3 (`tests/golden/README.md`)."""

from __future__ import annotations

import base64
import json
from typing import Any
from zlib import crc32

import pytest

from raptormq.protocol import batch, command, message_id, properties, record
from raptormq.protocol.frame import FrameDecoder
from raptormq.protocol.language import Language
from raptormq.protocol.message_id import decode_host
from tests.protocol.golden import GOLDEN, RECORDINGS, all_frames, decode, entries


def assert_bytes_are(content: bytes, expected: dict[str, Any]) -> None:
    assert (len(content), crc32(content)) == (expected["length"], expected["crc32"])
    assert "base64" not in expected or content == base64.b64decode(expected["base64"])


def assert_stored_message_is(message: record.StoredMessage, expected: dict[str, Any]) -> None:
    assert_bytes_are(message.body, expected["body"])
    assert properties.decode_properties(message.properties) == expected["properties"]
    assert {
        "storeSize": message.total_size,
        "queueId": message.queue_id,
        "flag": message.flag,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": "{}:{}".format(*decode_host(message.born_host)),
        "storeTimestamp": message.store_timestamp,
        "storeHost": "{}:{}".format(*decode_host(message.store_host)),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "topic": message.topic,
        "bodyCrc": crc32(message.body) & 0x7FFFFFFF,
        "offsetMessageId": message_id.offset_id(message.store_host, message.physical_offset),
    } == {name: value for name, value in expected.items() if name not in {"body", "properties"}}


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_recorded_stream_falls_into_the_recorded_frames(recording: str) -> None:
    stream = (GOLDEN / f"{recording}.bin").read_bytes()
    decoder = FrameDecoder()
    frames = [frame for at in range(0, len(stream), 7) for frame in decoder.feed(stream[at : at + 7])]
    assert [8 + len(header) + len(body) for _, header, body in frames] == [
        entry["length"] for entry in entries(recording)
    ]
    assert decoder.held_bytes == 0


@pytest.mark.parametrize(("frame", "expected"), all_frames())
def test_a_header_decodes_to_what_java_reads(frame: bytes, expected: dict[str, Any]) -> None:
    decoded = decode(frame)
    assert {
        "code": decoded.code,
        "language": Language(decoded.language).name,
        "version": decoded.version,
        "opaque": decoded.opaque,
        "flag": decoded.flag,
        "remark": decoded.remark,
        "extFields": decoded.ext_fields,
        "serializeType": command.SerializeType(decoded.serialize_type).name,
    } == {
        **{
            name: expected[name]
            for name in ("code", "language", "version", "opaque", "flag", "remark", "serializeType")
        },
        "extFields": expected["extFields"] or {},
    }
    assert_bytes_are(decoded.body, expected["body"])


@pytest.mark.parametrize(("frame", "expected"), all_frames())
def test_a_frame_encodes_to_what_java_wrote(frame: bytes, expected: dict[str, Any]) -> None:
    decoded = decode(frame)
    encoded = command.encode(decoded)
    if decoded.serialize_type == command.SerializeType.ROCKETMQ:
        assert encoded == frame
    else:  # JSON has no canonical form, so the values are compared
        assert decode(encoded) == decoded
        assert encoded[8:].startswith(b"{")


@pytest.mark.parametrize(("frame", "expected"), [each for each in all_frames() if "messages" in each.values[1]])
def test_the_messages_of_a_response_decode_and_encode(frame: bytes, expected: dict[str, Any]) -> None:
    body = decode(frame).body
    messages = list(record.iter_records(body))
    assert len(messages) == len(expected["messages"])
    for message, values in zip(messages, expected["messages"], strict=True):
        assert_stored_message_is(message, values)
    assert b"".join(map(record.encode_record, messages)) == body


@pytest.mark.parametrize(("frame", "expected"), [each for each in all_frames() if "batch" in each.values[1]])
def test_a_batch_body_decodes_and_encodes(frame: bytes, expected: dict[str, Any]) -> None:
    body = decode(frame).body
    records = batch.decode_batch(body)
    assert len(records) == len(expected["batch"])
    for each, values in zip(records, expected["batch"], strict=True):
        assert each.flag == values["flag"]
        assert_bytes_are(each.body, values["body"])
        assert properties.decode_properties(each.properties.decode()) == values["properties"]
    assert batch.encode_batch(records) == body


def test_every_record_of_the_commit_log_decodes_and_encodes() -> None:
    log = (GOLDEN / "store" / "commitlog.bin").read_bytes()
    expected = json.loads((GOLDEN / "store" / "messages.json").read_text(encoding="utf-8"))
    messages = list(record.iter_records(log))
    assert [message.physical_offset for message in messages] == [values["commitLogOffset"] for values in expected]
    for message, values in zip(messages, expected, strict=True):
        assert_stored_message_is(message, values)
    assert b"".join(map(record.encode_record, messages)) == log


def test_the_recordings_hold_what_the_tests_above_need() -> None:
    by_code = {(entry["requestCode"], entry["code"]) for name in RECORDINGS for entry in entries(name)}
    sends_pulls_offsets = {
        (310, 310),
        (310, 0),
        (310, 13),
        (320, 320),
        (320, 0),
        (11, 0),
        (11, 19),
        (11, 20),
        (11, 21),
        (14, 22),
    }
    assert sends_pulls_offsets <= by_code
    assert {(34, 34), (36, 36), (38, 0), (41, 0), (40, 40), (103, 103), (105, 17), (106, 0), (351, 0)} <= by_code
