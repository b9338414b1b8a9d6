"""Resolution of positions: earliest, latest, JSON, time; and positions that a batch must not use."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_raptormq.cluster_offsets import (
    available_queues,
    check_assigned,
    check_available,
    check_bounds,
    offsets_at,
    selected_queues,
)
from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import BrokerUnavailable, DataLoss, MissingTopic, OptionError
from pyspark_raptormq.offsets import EARLIEST, LATEST
from pyspark_raptormq.options import Position, SourceOptions
from raptormq.protocol.message import MessageQueue
from tests.spark.test_stream_progress import Topic

Q0, Q1, Q2 = (MessageQueue("t", "broker-a", number) for number in range(3))
TOPIC = Topic(q0=(3, 10), q1=(0, 5), q2=(0, 0))
QUEUES = [Q0, Q1, Q2]
AWAY = MessageQueue("t", "broker-b", 0)


def test_words() -> None:
    assert offsets_at(Position(word="earliest"), QUEUES, TOPIC, unnamed="latest") == {Q0: 3, Q1: 0, Q2: 0}
    assert offsets_at(Position(word="latest"), QUEUES, TOPIC, unnamed="earliest") == {Q0: 10, Q1: 5, Q2: 0}


def test_time() -> None:
    assert offsets_at(Position(timestamp_ms=1), [Q0, Q1], TOPIC, unnamed="earliest") == {Q0: 4, Q1: 1}


def test_json_with_relative_and_left_out_queues() -> None:
    position = Position(offsets={Q0: LATEST, Q1: 2})
    assert offsets_at(position, QUEUES, TOPIC, unnamed="earliest") == {Q0: 10, Q1: 2, Q2: 0}
    assert offsets_at(Position(offsets={Q0: EARLIEST}), [Q0, Q1], TOPIC, unnamed="latest") == {Q0: 3, Q1: 5}


def test_json_that_names_another_queue() -> None:
    with pytest.raises(OptionError, match="t@broker-a:2, which is not one of the queues to read"):
        offsets_at(Position(offsets={Q2: 0}), [Q0], TOPIC, unnamed="earliest")


def test_queues_by_name_by_pattern_and_one_by_one() -> None:
    server = ("127.0.0.1:1",)
    assert selected_queues(SourceOptions(Connection(server), topics=("t",)), TOPIC) == QUEUES
    assert selected_queues(SourceOptions(Connection(server), topic_pattern="t"), TOPIC) == QUEUES
    assert selected_queues(SourceOptions(Connection(server), topic_pattern="nothing"), TOPIC) == []
    assert selected_queues(SourceOptions(Connection(server), queues=(Q1,)), TOPIC) == [Q1]
    with pytest.raises(MissingTopic):
        selected_queues(SourceOptions(Connection(server), topics=("missing",)), TOPIC)


def test_an_assigned_queue_has_to_be_there_where_its_broker_is_up() -> None:
    server = ("127.0.0.1:1",)
    away = MessageQueue("t", "broker-b", 7)
    check_assigned(SourceOptions(Connection(server), topics=("missing",)), TOPIC)
    check_assigned(SourceOptions(Connection(server), queues=(Q0, Q2, away)), TOPIC)
    with pytest.raises(OptionError, match="option assign names t@broker-a:3; broker-a has 3 queues of t"):
        check_assigned(SourceOptions(Connection(server), queues=(Q0, MessageQueue("t", "broker-a", 3))), TOPIC)
    with pytest.raises(MissingTopic):
        check_assigned(SourceOptions(Connection(server), queues=(MessageQueue("missing", "broker-a", 0),)), TOPIC)


def test_bounds_that_hold_are_kept() -> None:
    start, end = {Q0: 4, Q1: 0}, {Q0: 10, Q1: 5}
    assert check_bounds(start, end, TOPIC, fail=True) == (start, end)


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (2, 10, "t@broker-a:0 should be read from offset 2 but begins at 3"),
        (3, 11, "t@broker-a:0 should be read up to offset 11 but ends at 10"),
        (12, 10, "t@broker-a:0 should be read from offset 12 but ends at 10"),
    ],
)
def test_bounds_that_do_not_hold(start: int, end: int, reason: str) -> None:
    with pytest.raises(DataLoss, match=reason):
        check_bounds({Q0: start}, {Q0: end}, TOPIC, fail=True)
    cut_start, cut_end = check_bounds({Q0: start}, {Q0: end}, TOPIC, fail=False)
    assert (cut_start[Q0], cut_end[Q0]) == (max(start, 3), 10)


def test_a_topic_that_went_away_is_left_out_if_asked() -> None:
    server = ("127.0.0.1:1",)
    assert (
        selected_queues(SourceOptions(Connection(server), topics=("gone", "t"), fail_on_data_loss=False), TOPIC)
        == QUEUES
    )
    assert selected_queues(SourceOptions(Connection(server), topic_pattern="t|other"), TOPIC) == QUEUES


class Lossy(Topic):
    """A topic with a queue of a broker that is registered again after a number of requests."""

    def __init__(self, requests: int) -> None:
        super().__init__(q0=(3, 10))
        self.requests = requests

    def lost_queues(self) -> list[MessageQueue]:
        self.requests -= 1
        away = [MessageQueue(topic, "broker-b", 0) for topic in ("other", "rmq_sys_x", "t")]
        return away if self.requests >= 0 else []


def check(options: SourceOptions, bounds: Lossy, *brokers: str) -> float:
    """Check with a clock that only pauses advance. Return the time in seconds."""
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    check_available(options, bounds, lambda queue: not brokers or queue.broker_name in brokers, lambda: now[0], pause)
    return now[0]


@pytest.mark.parametrize("choice", [{"topics": ("t",)}, {"topic_pattern": "t|r.*"}, {"queues": (AWAY,)}])
def test_a_batch_waits_for_the_brokers_of_its_queues_and_then_fails(choice: dict[str, Any]) -> None:
    options = SourceOptions(Connection(("127.0.0.1:1",), retry_timeout_s=3.0), **choice)
    assert 0.0 < check(options, Lossy(2)) < 3.0
    with pytest.raises(BrokerUnavailable, match=r"^1 queues of t cannot be read, because broker-b is not available"):
        check(options, Lossy(100))
    assert check(options, Lossy(100), "broker-a") == 0.0


def test_a_batch_that_may_skip_queues_does_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    options = SourceOptions(Connection(("127.0.0.1:1",)), topics=("t", "other"), fail_on_unavailable_broker=False)
    assert check(options, Lossy(100)) == 0.0
    assert "2 queues of other, t cannot be read, because broker-b is not available; they are skipped" in caplog.text


def test_a_broker_that_is_lost_before_the_routes_are_requested_is_waited_for() -> None:
    class Racing(Lossy):
        routes = 0

        def queues(self, topic: str) -> list[MessageQueue]:
            self.routes += 1
            if self.routes == 1:
                self.requests = 1
                return [Q0]
            return [Q0, AWAY]

    options = SourceOptions(Connection(("127.0.0.1:1",)), topics=("t",))
    assert available_queues(options, Racing(0), lambda _: True) == [Q0, AWAY]
