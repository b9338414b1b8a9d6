"""The text of message traces: decoded like RocketMQ's tools, and split by the size limit of messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.client import (
    ConsumeContext,
    ConsumeStatus,
    Delay,
    EndTransactionContext,
    Message,
    MessageExt,
    MessageQueue,
    SendContext,
    SendResult,
    SendStatus,
    TransactionState,
)
from raptormq.client.trace.records import (
    MAX_BODY_BYTES,
    MAX_KEYS_BYTES,
    TraceRecord,
    consumed_records,
    consuming_records,
    ended_transaction_record,
    pack,
    sent_record,
)

QUEUE = MessageQueue("t", "broker-a", 0)
OFFSET_ID = "7F00000100002A9F0000000000000010"
HOST = "127.0.0.1:10911"


def fields(record: TraceRecord) -> list[str]:
    """Split a line like Java, which drops empty fields at the end."""
    assert record.line.endswith("\x02")
    assert record.line.count("\x02") == 1
    line = record.line[:-1].split("\x01")
    while line and not line[-1]:
        line.pop()
    return line


def result(*ids: str, offset_id: str = OFFSET_ID, status: SendStatus = SendStatus.SEND_OK) -> SendResult:
    return SendResult(status, ",".join(ids), offset_id, QUEUE, 0)


def message(number: int, **properties: str) -> MessageExt:
    return MessageExt("t", b"x", properties, QUEUE, number, number, f"id{number}", OFFSET_ID, 0, 0)


def test_a_send() -> None:
    sent = Message("t", b"12345", tags="paid", keys=("17", "18"))
    record = sent_record(SendContext("p", sent, None, result=result("id"), duration=0.0123), 1_000)
    assert record is not None
    assert fields(record) == [
        *("Pub", "1000", "DefaultRegion", "p", "t", "id", "paid", "17 18", HOST, "5", "12", "0", OFFSET_ID, "true")
    ]
    assert record.keys == ("id", "17", "18")


def test_a_send_without_tag_and_keys_has_all_fields() -> None:
    context = SendContext("p", Message("t", b""), None, result=result("id", offset_id=""))
    record = sent_record(context, 0)
    assert record is not None
    assert fields(record) == [
        *("Pub", "0", "DefaultRegion", "p", "t", "id", "null", "null", "", "0", "0", "0", "", "true")
    ]
    assert record.keys == ("id",)


@pytest.mark.parametrize(
    ("given", "in_transaction", "kind"),
    [
        (Message("t", b""), False, "0"),
        (Message("t", b""), True, "1"),
        (Message("t", b"", delay=Delay.by(1)), False, "3"),
        (Message("t", b"", properties={"DELAY": "3"}), False, "3"),
    ],
)
def test_the_type_of_a_message(given: Message, in_transaction: bool, kind: str) -> None:
    context = SendContext("p", given, None, in_transaction=in_transaction, result=result("id"))
    record = sent_record(context, 0)
    assert record is not None
    assert fields(record)[11] == kind


@pytest.mark.parametrize("offset_ids", [[OFFSET_ID], [OFFSET_ID[:-1] + digit for digit in "012"]])
def test_messages_of_a_list_have_their_own_ids(offset_ids: list[str]) -> None:
    sent = result("a", "b", "c", offset_id=",".join(offset_ids), status=SendStatus.FLUSH_DISK_TIMEOUT)
    lines = []
    for index in range(3):
        record = sent_record(SendContext("p", Message("t", b""), None, 3, index, result=sent), 0)
        assert record is not None
        lines.append(fields(record))
    assert [line[5] for line in lines] == ["a", "b", "c"]
    assert [line[12] for line in lines] == (offset_ids if len(offset_ids) == 3 else offset_ids * 3)
    assert {line[13] for line in lines} == {"false"}


def test_a_send_without_a_result_is_not_traced() -> None:
    assert sent_record(SendContext("p", Message("t", b""), None, error=TimeoutError()), 0) is None


def test_a_consumption() -> None:
    messages = [message(1, MSG_REGION="east", KEYS="17 18"), message(2), message(3, TRACE_ON="false")]
    context = ConsumeContext("g", "t", messages, status=ConsumeStatus.RETRIED, failed=messages[1:2], duration=0.3)
    before = consuming_records(context, "R", 1_000)
    assert [fields(record) for record in before] == [
        ["SubBefore", "1000", "east", "g", "R", "id1", "0", "17 18"],
        ["SubBefore", "1000", "DefaultRegion", "g", "R", "id2", "0", "null"],
    ]
    after = consumed_records(context, "R", 2_000)
    assert [fields(record) for record in after] == [
        ["SubAfter", "R", "id1", "100", "true", "17 18", "0", "2000", "g"],
        ["SubAfter", "R", "id2", "100", "false", "null", "4", "2000", "g"],
    ]
    assert [record.keys for record in after] == [record.keys for record in before] == [("id1", "17", "18"), ("id2",)]


@pytest.mark.parametrize(
    ("status", "error", "success", "code"),
    [
        (ConsumeStatus.CONSUMED, None, "true", "0"),
        (ConsumeStatus.RETRIED, TimeoutError(), "false", "1"),
        (ConsumeStatus.RETRIED, KeyError(), "false", "2"),
        (ConsumeStatus.RETRIED, None, "false", "4"),
        (ConsumeStatus.DEAD_LETTER, None, "false", "4"),
        (ConsumeStatus.ABANDONED, None, "false", "4"),
    ],
)
def test_how_a_consumption_ends(status: ConsumeStatus, error: Exception | None, success: str, code: str) -> None:
    messages = [message(1)]
    failed = messages if status in {ConsumeStatus.RETRIED, ConsumeStatus.ABANDONED} else []
    [record] = consumed_records(ConsumeContext("g", "t", messages, status=status, failed=failed, error=error), "R", 0)
    assert (fields(record)[4], fields(record)[6]) == (success, code)


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (TransactionState.COMMIT, "COMMIT_MESSAGE"),
        (TransactionState.ROLLBACK, "ROLLBACK_MESSAGE"),
        (TransactionState.UNKNOWN, "UNKNOW"),
    ],
)
def test_the_end_of_a_transaction(state: TransactionState, name: str) -> None:
    context = EndTransactionContext("p", Message("t", b"", keys=("17",)), "id", OFFSET_ID, state, from_check=True)
    record = ended_transaction_record(context, 1_000)
    assert fields(record) == [
        *("EndTransaction", "1000", "DefaultRegion", "p", "t", "id", "null", "17", HOST, "2", "id", name, "true")
    ]
    assert record.keys == ("id", "17")


KEYS = st.text(st.characters(codec="utf-8", exclude_characters=" \x01\x02"), min_size=1, max_size=MAX_KEYS_BYTES)
LINES = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=MAX_BODY_BYTES // 3).map(
    "{}\x02".format
)
RECORDS = st.builds(
    lambda line, number, more: TraceRecord(line, (f"id{number}", *more)),
    LINES,
    st.integers(0, 5),
    st.lists(KEYS, max_size=3),
)


@given(st.lists(RECORDS, max_size=20), st.integers(1, 400))
def test_lines_are_packed_in_order_within_the_limits(records: list[TraceRecord], times: int) -> None:
    records = [record for record in records for _ in range(times if len(record.line) < 300 else 1)]
    packed = list(pack(records))
    assert b"".join(data.body for data in packed) == "".join(record.line for record in records).encode()
    lines = iter(records)
    for data in packed:
        own = [next(lines) for _ in range(data.body.count(b"\x02"))]
        assert len(own) == 1 or len(data.body) <= MAX_BODY_BYTES
        assert len(" ".join(data.keys).encode()) <= MAX_KEYS_BYTES
        assert len(set(data.keys)) == len(data.keys)
        wanted = {key for record in own for key in record.keys}
        assert {record.keys[0] for record in own} <= set(data.keys) <= wanted


def test_records_share_messages() -> None:
    records = [TraceRecord("x" * 99 + "\x02", (f"id{number}",)) for number in range(1_000)]
    assert len(list(pack(records))) == 1
    assert len(list(pack(records * 2))) == 2


def test_every_message_can_be_found_by_its_id_and_keys() -> None:
    records = [TraceRecord("x\x02", (f"id{number}", f"{number:0500}")) for number in range(100)]
    packed = list(pack(records))
    assert [key for data in packed for key in data.keys] == [key for record in records for key in record.keys]
    assert len(packed) == 4
