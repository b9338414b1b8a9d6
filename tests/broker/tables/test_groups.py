"""Consumer group table."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq.broker.tables.groups import GroupConfig, GroupTable
from raptormq.errors import BodyError


def test_round_trip_keeps_fields_that_are_not_ours() -> None:
    table = GroupTable(None, lambda: 7)
    table.put(GroupConfig.from_dict({"groupName": "g", "retryMaxTimes": 3, "consumeTimeoutMinute": 1, "novel": [1]}))
    again = GroupTable(table.to_dict(), lambda: 8)
    config = again.get("g")
    assert config is not None
    assert (config.retry_max_times, config.retry_queue_nums) == (3, 1)
    assert config.to_dict()["consumeTimeoutMinute"] == 1
    assert config.to_dict()["novel"] == [1]
    assert again.version == table.version


def test_defaults_are_rocketmqs() -> None:
    fields = GroupConfig("g").to_dict()
    assert fields["retryMaxTimes"] == 16
    assert fields["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert fields["whichBrokerWhenConsumeSlowly"] == 1


def test_changes_are_versions_and_are_heard() -> None:
    table, heard = GroupTable(None, lambda: 7), list[int]()
    table.listen(lambda: heard.append(1))
    table.put(GroupConfig("g"))
    table.put(GroupConfig("g"))
    assert table.delete("g")
    assert not table.delete("g")
    assert len(heard) == table.version.counter == 2


@pytest.mark.parametrize(
    "saved",
    [
        {"subscriptionGroupTable": "text"},
        {"subscriptionGroupTable": [1]},
        {"subscriptionGroupTable": {"g": 1}},
        {"dataVersion": 1},
    ],
)
def test_a_file_of_another_shape_is_an_error(saved: Any) -> None:
    with pytest.raises(BodyError):
        GroupTable(saved, lambda: 0)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"groupName": None},
        {"groupName": 7},
        {"groupName": "g", "retryQueueNums": "x"},
        {"groupName": "g", "retryQueueNums": 99_999},
        {"groupName": "g", "consumeEnable": "maybe"},
        3,
    ],
)
def test_a_bad_group_is_an_error(value: Any) -> None:
    with pytest.raises(BodyError):
        GroupConfig.from_dict(value)


def test_flags_that_are_text_say_what_they_say() -> None:
    """A script quotes every value. fastjson accepts this."""
    flags = dict.fromkeys(("consumeEnable", "consumeBroadcastEnable", "notifyConsumerIdsChangedEnable"), "false")
    group = GroupConfig.from_dict({"groupName": "g", **flags})
    read = group.consume_enable, group.consume_broadcast_enable, group.notify_consumer_ids_changed_enable
    assert read == (False, False, False)


def test_what_is_forbidden_is_kept_and_goes_with_its_group() -> None:
    table = GroupTable({"forbiddenTable": {"g": {"t": 4, "u": 1}}}, lambda: 7)
    table.put(GroupConfig("g"))
    assert [table.may_read("g", topic) for topic in ("t", "u", "v")] == [False, True, True]
    table.set_readable("g", "v", readable=False)
    table.set_readable("g", "t", readable=True)
    assert GroupTable(table.to_dict(), lambda: 8).forbidden == {"g": {"u": 1, "v": 4}}
    version = table.version
    table.set_readable("g", "t", readable=True)
    assert table.version == version
    table.delete("g")
    assert table.forbidden == {}


def test_a_table_of_what_is_forbidden_that_is_none_is_refused() -> None:
    with pytest.raises(BodyError):
        GroupTable({"forbiddenTable": {"g": 4}}, lambda: 7)


def test_what_is_written_is_what_is_known() -> None:
    table = GroupTable({"subscriptionGroupTable": {"old": {"groupName": "old"}}}, lambda: 1)
    table.put(GroupConfig("new"))
    table.put(GroupConfig("new", retry_max_times=3))
    table.delete("old")
    assert table.to_dict()["subscriptionGroupTable"] == {"new": GroupConfig("new", retry_max_times=3).to_dict()}
    before = table.to_dict()
    table.put(GroupConfig("newer"))
    assert list(before["subscriptionGroupTable"]) == ["new"]
