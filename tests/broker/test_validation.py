"""Common checks of handlers, and the limit that keeps random group names from exhausting memory."""

from __future__ import annotations

import pytest

from raptormq.broker import validation as checks
from raptormq.broker.tables.groups import GroupConfig, GroupTable
from raptormq.broker.tables.topics import TopicTable
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable
from raptormq.protocol.codes import ResponseCode
from raptormq.transport.connection import Connection
from raptormq.transport.pool import RefuseRequests
from raptormq.transport.router import Refused

PEER = Connection(RefuseRequests())
PEER.peer = ("10.0.0.1", 2_000)


def test_queues() -> None:
    topics = TopicTable(TopicConfigTable({"t": TopicConfig("t", 4, 8)}), lambda: 0)
    assert checks.require_read_queue(topics, "t", 3, PEER).topic_name == "t"
    for topic, queue_id, code in (("t", 4, 29), ("t", -1, 29), ("u", 0, 17)):
        with pytest.raises(Refused) as refused:
            checks.require_read_queue(topics, topic, queue_id, PEER)
        assert refused.value.code == code
    with pytest.raises(Refused, match=r"^queueId\[4\] is illegal, .*readQueueNums:\[4\] consumer:\[/10.0.0.1:2000\]$"):
        checks.require_read_queue(topics, "t", 4, PEER)


def test_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = GroupTable(None, lambda: 0)
    groups.put(GroupConfig("known"))
    assert checks.require_group(groups, "known", auto_create=False).name == "known"
    assert checks.require_group(groups, "new", auto_create=True) is groups.get("new")
    monkeypatch.setattr(checks, "MAX_GROUPS", 2)
    for name, auto_create, code in (
        ("other", False, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ("bad name", True, ResponseCode.INVALID_PARAMETER),
        ("other", True, ResponseCode.SYSTEM_BUSY),
    ):
        with pytest.raises(Refused) as refused:
            checks.require_group(groups, name, auto_create=auto_create)
        assert refused.value.code == code
