"""Which broker a consumer is told to read from."""

from __future__ import annotations

import pytest

from raptormq.broker.config import HaSettings
from raptormq.broker.pull import ReadAdvice
from raptormq.broker.tables import GroupConfig, GroupTable
from raptormq.protocol.record import StoredMessage, encode_record
from raptormq.storage.read import GetResult, GetStatus


@pytest.mark.parametrize(
    ("behind", "settings", "wanted"),
    [
        (1_000, {"slave_read": True}, 0),
        (4_001, {"slave_read": True}, 3),
        (4_001, {"slave_read": True, "memory_percent": 50}, 0),
        (4_001, {"slave_read": False}, 0),
    ],
)
def test_who_is_far_behind_is_sent_to_a_slave(behind: int, settings: dict[str, bool | int], wanted: int) -> None:
    groups = GroupTable(None, lambda: 0)
    groups.put(GroupConfig.from_dict({"groupName": "g", "whichBrokerWhenConsumeSlowly": 3}))
    advice = ReadAdvice(HaSettings(**settings), groups, lambda: 10_000, memory=10_000)  # type: ignore[arg-type]
    record = encode_record(StoredMessage("t", 0, b"", "", physical_offset=10_000 - behind))
    assert advice.broker_id("g", GetResult(GetStatus.FOUND, [record], 1, 0, 1)) == wanted
    assert advice.broker_id("g", GetResult(GetStatus.OFFSET_OVERFLOW_ONE, [], 1, 0, 1)) == 0
