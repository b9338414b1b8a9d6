"""Commits of staged rows at several broker groups, and repeated batches with other rows."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pyspark_raptormq.errors import DifferentReplay
from pyspark_raptormq.sink.stager import Published, StagedRows, check_replay, publish
from raptormq.client import StagedCommit
from raptormq.protocol.bodies.staging import Ranges

ROWS = StagedRows("q", 4, {"broker-a": [(3, 5)], "broker-b": [(0, 0)]})
EARLIER: dict[str, Ranges] = {"broker-a": [(0, 1)], "broker-c": [(7, 7)]}


class Groups:
    """Broker groups that have published a batch, or publish it now."""

    def __init__(self, held: dict[str, Ranges] | None) -> None:
        self.held = held
        self.commits: list[str] = []

    def commit(self, broker: str, query: str, batch: int, decision: Mapping[str, Ranges]) -> StagedCommit:
        assert (query, batch) == ("q", 4)
        if self.held is None:
            self.held = dict(decision)
        self.commits.append(broker)
        return StagedCommit(self.held, True, 10 if self.held else 0)


def test_a_first_commit_publishes_its_own_rows() -> None:
    groups = Groups(None)
    assert publish(groups.commit, "broker-a", ROWS, 1.0) == Published(20, False)
    assert groups.commits == ["broker-a", "broker-b"]
    assert publish(groups.commit, "broker-a", ROWS, 1.0) == Published(20, False)


def test_a_repeated_commit_publishes_the_earlier_rows() -> None:
    groups = Groups(EARLIER)
    assert publish(groups.commit, "broker-a", ROWS, 1.0) == Published(20, True)
    assert groups.commits == ["broker-a", "broker-c"]


def test_a_commit_of_a_batch_before_the_last_one_fails() -> None:
    with pytest.raises(DifferentReplay, match="batch 4 of query q are not published, because broker-a reports"):
        publish(Groups({}).commit, "broker-a", ROWS, 1.0)


def test_a_replay_fails_only_if_it_was_published_before_with_another_number_of_rows() -> None:
    check_replay(ROWS, Published(20, True), 20, fail=True)
    check_replay(ROWS, Published(20, False), 21, fail=True)  # a topic was deleted between commit and publication
    for rows in (0, 19, 21):
        check_replay(ROWS, Published(20, True), rows, fail=False)
        with pytest.raises(DifferentReplay, match=f"with 20 messages, but its repetition has {rows} rows"):
            check_replay(ROWS, Published(20, True), rows, fail=True)
