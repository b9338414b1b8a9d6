"""Arrow columns compared with the reference decoder of the protocol, for each message."""

from __future__ import annotations

import contextlib
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_raptormq.columns import DEFAULT_COLUMNS, KNOWN_COLUMNS, PropertiesAs, arrow_schema
from pyspark_raptormq.damage import Damage
from pyspark_raptormq.decode import RecordDecoder
from raptormq.errors import KeyMissing, RecordError
from raptormq.protocol.compression import decompress
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.message_id import offset_id
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import StoredMessage, SysFlag, encode_record, iter_records
from tests.spark.sample_records import COMPRESSIONS, QUEUE, buffer_of, message, properties_text, stored_messages

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EVERYTHING = 2**63 - 1


def batches(decoder: RecordDecoder, data: bytes, start: int = 0, end: int = EVERYTHING) -> list[pa.RecordBatch]:
    decoded = list(decoder.decode(data, start, end))
    assert all(batch.num_rows for batch in decoded)
    for batch in decoded:
        batch.validate(full=True)
    return decoded


def rows(decoder: RecordDecoder, data: bytes, start: int = 0, end: int = EVERYTHING) -> list[dict[str, Any]]:
    return [row for batch in batches(decoder, data, start, end) for row in batch.to_pylist()]


def expected_row(record: StoredMessage) -> dict[str, Any]:
    properties = decode_properties(record.properties)
    keys = [key for key in properties.get("KEYS", "").split(" ") if key]
    return {
        "key": keys[0] if keys else None,
        "value": decompress(record.body, record.sys_flag),
        "topic": QUEUE.topic,
        "brokerName": QUEUE.broker_name,
        "queueId": QUEUE.queue_id,
        "queueOffset": record.queue_offset,
        "storeTimestamp": EPOCH + timedelta(milliseconds=record.store_timestamp),
        "bornTimestamp": EPOCH + timedelta(milliseconds=record.born_timestamp),
        "tags": properties.get("TAGS"),
        "keys": keys,
        "msgId": properties.get("UNIQ_KEY") or offset_id(record.store_host, record.physical_offset),
        "properties": sorted(properties.items()),
    }


@given(st.lists(stored_messages(), max_size=6))
def test_every_column_is_what_the_reference_decoder_says(messages: list[StoredMessage]) -> None:
    data = buffer_of(*messages)
    found = rows(RecordDecoder(QUEUE, KNOWN_COLUMNS, PropertiesAs.MAP), data)
    for row in found:
        row["properties"] = sorted(row["properties"])
    assert found == [expected_row(record) for record in iter_records(data)]


@given(st.lists(stored_messages(), min_size=1, max_size=4))
def test_raw_properties_are_the_stored_bytes(messages: list[StoredMessage]) -> None:
    found = rows(RecordDecoder(QUEUE, ("properties",), PropertiesAs.RAW), buffer_of(*messages))
    assert [row["properties"] for row in found] == [record.properties.encode() for record in messages]


def test_batches_have_the_schema_that_spark_expects() -> None:
    data = buffer_of(message(0), message(1, properties=properties_text(KEYS="a b", TAGS="x")))
    for properties_as, columns in (
        (PropertiesAs.NONE, DEFAULT_COLUMNS),
        (PropertiesAs.RAW, KNOWN_COLUMNS),
        (PropertiesAs.MAP, KNOWN_COLUMNS),
        (PropertiesAs.NONE, ("queueOffset",)),
    ):
        (batch,) = RecordDecoder(QUEUE, columns, properties_as).decode(data, 0, 2)
        assert batch.schema.equals(arrow_schema(columns, properties_as))


def test_no_record_is_no_batch() -> None:
    assert rows(RecordDecoder(QUEUE, DEFAULT_COLUMNS), b"") == []


def test_what_is_outside_of_the_range_is_trimmed() -> None:
    data = buffer_of(*(message(offset) for offset in range(10, 20)))
    decoder = RecordDecoder(QUEUE, ("queueOffset",))
    assert [row["queueOffset"] for row in rows(decoder, data, 12, 15)] == [12, 13, 14]
    assert rows(decoder, data, 20, 30) == []


def test_tags_are_compared_as_text() -> None:
    # "Aa" and "BB" have the same hash, so a broker returns both for either tag.
    data = buffer_of(*(message(n, properties=properties_text(TAGS=tag)) for n, tag in enumerate(["Aa", "BB", "C"])))
    decoder = RecordDecoder(QUEUE, ("tags", "value"), tags=frozenset({"Aa", "C"}))
    assert [row["tags"] for row in rows(decoder, data)] == ["Aa", "C"]
    assert rows(RecordDecoder(QUEUE, ("value",), tags=frozenset({"D"})), data) == []
    assert rows(RecordDecoder(QUEUE, ("value",), tags=frozenset({"D"})), buffer_of(message(0))) == []


def test_of_equal_names_the_last_one_counts() -> None:
    text = properties_text(UNIQ_KEY="own", TAGS="t") + properties_text(UNIQ_KEY="of the batch")
    (row,) = rows(
        RecordDecoder(QUEUE, ("msgId", "properties"), PropertiesAs.MAP), buffer_of(message(0, properties=text))
    )
    assert row["msgId"] == "of the batch"
    assert sorted(row["properties"]) == [("TAGS", "t"), ("UNIQ_KEY", "of the batch")]


def test_many_different_names_make_a_map_too() -> None:
    texts = ["".join(f"n{row}-{pair}\x01v\x02" for pair in range(9)) * 2 for row in range(60)]
    data = buffer_of(*(message(n, properties=text) for n, text in enumerate(texts)))
    found = rows(RecordDecoder(QUEUE, ("properties",), PropertiesAs.MAP), data)
    assert [dict(row["properties"]) for row in found] == [decode_properties(text) for text in texts]
    assert all(len(row["properties"]) == 9 for row in found)


def test_properties_that_are_not_utf8_are_readable_all_the_same() -> None:
    record = bytearray(encode_record(message(0, properties=properties_text(TAGS="ab"))))
    record[record.rindex(b"ab")] = 0xFF
    (row,) = rows(RecordDecoder(QUEUE, ("tags",)), bytes(record))
    assert row["tags"] == "\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("sys_flag", COMPRESSIONS)
def test_compressed_bodies_come_out_in_portions(sys_flag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_raptormq.decode._PLAIN_BATCH_BYTES", 10_000)
    bodies = [bytes([n]) * 4000 for n in range(7)]
    data = buffer_of(
        *(message(n, COMPRESSIONS[sys_flag](body), sys_flag=sys_flag) for n, body in enumerate(bodies)),
        message(7, b"plain"),
    )
    portions = batches(RecordDecoder(QUEUE, ("queueOffset", "value")), data)
    assert [batch.num_rows for batch in portions] == [3, 3, 2]
    assert [body for batch in portions for body in batch.column("value").to_pylist()] == [*bodies, b"plain"]


def test_a_body_of_4_mb() -> None:
    body = random.Random(4).randbytes(4 * 1024 * 1024)
    (row,) = rows(RecordDecoder(QUEUE, ("value",)), buffer_of(message(0, body)))
    assert row["value"] == body


def test_a_damaged_body_is_noticed_unless_nobody_wants_to_know() -> None:
    record = bytearray(encode_record(message(5, b"precious")))
    record[record.index(b"precious")] ^= 1
    with pytest.raises(RecordError, match=r"offset 5 .* CRC"):
        rows(RecordDecoder(QUEUE, ("value",)), bytes(record))
    assert rows(RecordDecoder(QUEUE, ("value",), verify_crc=False), bytes(record)) == [{"value": b"qrecious"}]


def test_a_compressed_body_that_is_damaged_is_an_error() -> None:
    data = buffer_of(message(0, b"not zlib", sys_flag=int(SysFlag.COMPRESSED)))
    with pytest.raises(RecordError, match="compressed body"):
        rows(RecordDecoder(QUEUE, ("value",)), data)


class OneKey:
    """A key source with one key."""

    def current(self) -> tuple[str, bytes]:
        return "k1", bytes(16)

    def key(self, key_id: str) -> bytes:
        if key_id != "k1":
            raise KeyMissing(f"there is no key {key_id!r}")
        return bytes(16)


def encrypted(body: bytes, key_id: str = "k1", compression: int = 0) -> bytes:
    packed = COMPRESSIONS[compression](body) if compression else body
    return encrypt_body(packed, compression, key_id, bytes(16), bytes(12))


MARK = properties_text(TAGS="a", __ENCRYPTION_KEY="k1")


def test_encrypted_bodies_are_decrypted_and_never_passed_off_as_data() -> None:
    compressed = encrypted(b"long " * 100, compression=int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB))
    data = buffer_of(
        message(0, b"__ENCRYPTION_KEY\x01k0\x02"),
        message(1, encrypted(b"hush"), MARK),
        message(2, compressed, MARK),
        message(3, encrypted(encrypted(b"twice")), MARK),
        message(4, b"plain"),
    )
    with_key = RecordDecoder(QUEUE, ("value",), keys=OneKey())
    twice = encrypted(b"twice")
    expected = [b"__ENCRYPTION_KEY\x01k0\x02", b"hush", b"long " * 100, twice, b"plain"]
    assert [row["value"] for row in rows(with_key, data)] == expected
    without = RecordDecoder(QUEUE, ("value",))
    assert len(rows(without, data, 0, 1)) == 1
    with pytest.raises(KeyMissing, match=r"offset 1 of the queue .*'k1'.*; set option encryptionKeyFile"):
        rows(without, data)
    assert len(rows(RecordDecoder(QUEUE, ("tags",)), data)) == 5  # without the column of bodies


def test_damaged_ciphertext_is_damage() -> None:
    whole = encrypted(b"hush")
    data = buffer_of(message(0, whole, MARK), message(1, whole[:-1] + b"?", MARK), message(2, whole, MARK))
    with pytest.raises(RecordError, match="offset 1 of flights@broker-a:3 is damaged"):
        rows(RecordDecoder(QUEUE, ("value",), keys=OneKey()), data)
    lenient = Damage(QUEUE, fail=False)
    decoder = RecordDecoder(QUEUE, ("queueOffset", "value"), keys=OneKey(), damage=lenient)
    assert [row["queueOffset"] for row in rows(decoder, data)] == [0, 2]
    assert lenient.left_out == 1


@given(st.lists(stored_messages(), min_size=1, max_size=3), st.data())
@settings(max_examples=300)
def test_damage_is_an_error_of_ours_or_harmless(messages: list[StoredMessage], data: st.DataObject) -> None:
    damaged = bytearray(buffer_of(*messages))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for candidate in (bytes(damaged), bytes(damaged[:cut])):
        found = 0
        with contextlib.suppress(RecordError):
            decoder = RecordDecoder(QUEUE, KNOWN_COLUMNS, PropertiesAs.MAP, verify_crc=False)
            found = sum(batch.num_rows for batch in batches(decoder, candidate))
        assert found <= len(messages)


@given(st.binary(max_size=400))
def test_garbage_is_refused(garbage: bytes) -> None:
    if garbage:
        with pytest.raises(RecordError):
            rows(RecordDecoder(QUEUE, DEFAULT_COLUMNS), garbage)


def test_properties_that_begin_behind_their_record_are_refused() -> None:
    record = bytearray(encode_record(message(0, b"body")))
    topic_bytes_at = record.index(QUEUE.topic.encode()) - 1
    record[topic_bytes_at] += 1  # the length of the properties is then read from the last byte on
    record[-2:] = b"\xff\xff"
    with pytest.raises(RecordError, match="inconsistent lengths"):
        rows(RecordDecoder(QUEUE, ("properties",), PropertiesAs.RAW), bytes(record))


def test_a_size_of_zero_does_not_hang() -> None:
    with pytest.raises(RecordError, match="invalid size of 0 bytes"):
        rows(RecordDecoder(QUEUE, DEFAULT_COLUMNS), bytes(200))


def test_columns_share_no_memory_with_the_response() -> None:
    data = buffer_of(*(message(n, b"x" * 100) for n in range(100)))
    (batch,) = RecordDecoder(QUEUE, ("queueOffset", "value")).decode(data, 0, 100)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.nbytes < len(data)
