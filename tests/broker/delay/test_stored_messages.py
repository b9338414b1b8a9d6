"""Parsing of records of stored messages, some of them damaged."""

from __future__ import annotations

import pytest

from raptormq.broker.delay.stored_messages import decode_messages
from raptormq.protocol.record import StoredMessage, encode_record

RECORDS = [encode_record(StoredMessage("t", 0, b"%d" % n * 100, "", queue_offset=n)) for n in range(4)]
MAGIC_AT, BODY_AT = 4, 100


@pytest.mark.parametrize(
    ("place", "left"),
    [(BODY_AT, [0, 2, 3]), (MAGIC_AT, [0])],
    ids=["only the damaged one is lost", "nothing is read behind one without a size"],
)
def test_damage(place: int, left: list[int], caplog: pytest.LogCaptureFixture) -> None:
    data = bytearray(b"".join(RECORDS))
    data[len(RECORDS[0]) + place] ^= 1
    assert [message.queue_offset for message in decode_messages(data, "delayed")] == left
    assert caplog.text.count("skipped a damaged delayed message") == 1


def test_all_are_read() -> None:
    assert [message.queue_offset for message in decode_messages(b"".join(RECORDS), "timer")] == [0, 1, 2, 3]
    assert list(decode_messages(b"", "timer")) == []
