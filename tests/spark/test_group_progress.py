"""Progress of a query as that of a consumer group, and groups that applications use."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from pyspark_raptormq.cluster import GroupUse
from pyspark_raptormq.errors import OptionError
from pyspark_raptormq.group_progress import GroupProgress
from pyspark_raptormq.offsets import QueueOffsets, StreamOffset
from raptormq.errors import RequestTimeout
from raptormq.protocol.message import MessageQueue

QUEUE = MessageQueue("t", "broker-a", 0)


class Group:
    """A consumer group at its brokers."""

    def __init__(self, offset: int = 0, members: list[str] | None = None) -> None:
        self.offsets: QueueOffsets = {QUEUE: offset} if offset else {}
        self.members = members or []
        self.requests = 0
        self.is_up = True

    def report(self, group: str, offsets: Mapping[MessageQueue, int]) -> list[str]:
        assert group == "reports"
        self._request()
        if not self.members:
            self.offsets |= offsets
        return self.members

    def group_use(self, group: str, queues: Collection[MessageQueue]) -> GroupUse:
        assert (group, list(queues)) == ("reports", [QUEUE])
        self._request()
        return GroupUse(self.members, self.offsets)

    def _request(self) -> None:
        self.requests += 1
        if not self.is_up:
            raise RequestTimeout("no response within 1 s")


def start(offset: int = 0) -> StreamOffset:
    return StreamOffset({QUEUE: offset}, {QUEUE: offset})


def read_to(offset: int) -> StreamOffset:
    return StreamOffset({QUEUE: offset})


def test_new_query_commits_when_it_has_read_messages() -> None:
    group = Group()
    progress = GroupProgress("reports", group)
    for _ in range(2):
        progress.commit(start(5))
    assert (group.offsets, group.requests) == ({}, 1)
    progress.commit(StreamOffset({QUEUE: 7}, {QUEUE: 5}))  # the end of the first batch
    assert group.offsets == {QUEUE: 7}
    for _ in range(2):
        progress.commit(read_to(9))
    assert (group.offsets, group.requests) == ({QUEUE: 9}, 3)


def test_query_that_starts_again_before_its_first_batch_is_not_refused() -> None:
    group = Group()
    GroupProgress("reports", group).commit(start(5))
    GroupProgress("reports", group).commit(start(6))
    GroupProgress("reports", group).commit(read_to(7))
    assert group.offsets == {QUEUE: 7}


@pytest.mark.parametrize("position", [start(5), read_to(9)])
def test_group_with_members_is_refused(position: StreamOffset) -> None:
    group = Group(3, ["a@1", "b@2", "c@3", "d@4"])
    with pytest.raises(OptionError, match=r"group reports has members \(a@1, b@2, c@3, …\).* group of the query's own"):
        GroupProgress("reports", group).commit(position)
    assert group.offsets == {QUEUE: 3}


def test_group_with_offsets_is_refused_to_a_new_query_and_taken_after_a_restart() -> None:
    group = Group(3)
    with pytest.raises(OptionError, match=r"such as 3 in t@broker-a:0\..* raptormq group delete reports"):
        GroupProgress("reports", group).commit(start(5))
    assert group.offsets == {QUEUE: 3}
    GroupProgress("reports", group).commit(read_to(2))  # the offsets of the checkpoint were rewritten
    assert group.offsets == {QUEUE: 2}


def test_members_that_join_later_keep_their_offsets_and_do_not_fail_the_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = Group()
    progress = GroupProgress("reports", group)
    progress.commit(read_to(2))
    group.members = ["a@1"]
    for offset in (3, 4):
        progress.commit(read_to(offset))
    assert group.offsets == {QUEUE: 2}
    assert [each.message for each in caplog.records] == [
        "no progress is committed for consumer group reports, which has members now"
    ]
    group.members = []
    progress.commit(read_to(4))
    assert group.offsets == {QUEUE: 4}


def test_unanswered_commit_is_logged_and_an_unanswered_check_of_a_new_query_fails() -> None:
    group = Group()
    group.is_up = False
    progress = GroupProgress("reports", group)
    progress.commit(read_to(2))
    with pytest.raises(RequestTimeout):
        progress.commit(start())
    group.is_up, group.members = True, ["a@1"]
    with pytest.raises(OptionError, match="has members"):
        progress.commit(read_to(2))
