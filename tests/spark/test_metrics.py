"""Lag from progress reports."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from pyspark_raptormq.metrics import Lag, LagListener, PrometheusListener, lag_between, log_lag
from pyspark_raptormq.offsets import ReportedEnds, StreamOffset
from raptormq.protocol.message import MessageQueue

Q0, Q1 = (MessageQueue("t", "broker-a", number) for number in range(2))


def text(offset: StreamOffset | ReportedEnds) -> str:
    return json.dumps(offset.to_document())


def test_lag_is_what_is_left_in_each_queue() -> None:
    end = text(StreamOffset({Q0: 5}, start={Q0: 0}))
    assert lag_between(end, text(ReportedEnds({Q0: 9, Q1: 2}))) == {Q0: (4, 0), Q1: (2, 0)}
    assert lag_between(end, text(ReportedEnds({Q0: 4}))) == {Q0: (0, 0)}


def test_what_retention_has_deleted_is_lost_and_no_lag() -> None:
    end = text(StreamOffset({Q0: 110}))
    assert lag_between(end, text(ReportedEnds({Q0: 400, Q1: 40}, {Q0: 300, Q1: 30}))) == {Q0: (100, 190), Q1: (10, 0)}


class Progress:
    """The progress report of a batch."""

    def __init__(self, end: StreamOffset, latest: ReportedEnds) -> None:
        self.progress = self
        self.id, self.name, self.batchId = "id", "flights", 3
        self.sources = [self]
        self.endOffset, self.latestOffset = text(end), text(latest)
        self.numInputRows, self.durationMs = 50, {"triggerExecution": 1500}


def test_the_listener_reports_both(caplog: pytest.LogCaptureFixture) -> None:
    event: Any = Progress(StreamOffset({Q0: 110, Q1: 7}), ReportedEnds({Q0: 400, Q1: 7}, {Q0: 300}))
    found: list[Lag] = []
    LagListener(found.append).onQueryProgress(event)
    assert found == [Lag("flights", 3, {Q0: 100, Q1: 0}, {Q0: 190})]
    assert (found[0].total, found[0].largest, found[0].total_lost) == (100, 100, 190)
    with caplog.at_level(logging.INFO):
        LagListener().onQueryProgress(event)
    assert caplog.messages[1:] == ["query flights, batch 3: 190 offsets were deleted before they were read"]


@pytest.mark.parametrize("other", [None, "", "5", '{"topic": {"0": 5}}', "not json"])
def test_other_sources_have_no_lag_of_ours(other: str | None) -> None:
    assert lag_between(other, text(ReportedEnds({Q0: 9}))) is None
    assert lag_between(text(StreamOffset({Q0: 9})), other) is None


def test_sums() -> None:
    lag = Lag("flights", 3, {Q0: 4, Q1: 2})
    assert (lag.total, lag.largest) == (6, 4)
    assert (Lag("idle", 3, {}).total, Lag("idle", 3, {}).largest) == (0, 0)


def test_the_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_lag(Lag("flights", 3, {Q0: 4, Q1: 2}))
    assert caplog.messages == ["query flights, batch 3: lag 6 offsets, at most 4 in one queue"]
    log_lag(Lag("flights", 4, {Q0: 4, Q1: 2}, {}, frozenset({Q1})))
    assert caplog.messages[-1] == "query flights, batch 4: 1 queues cannot be reached"


def test_prometheus_has_what_the_listener_was_told_until_the_query_ends() -> None:
    registry = CollectorRegistry()
    listener = PrometheusListener(registry)
    other = MessageQueue("u", "broker-a", 0)
    event: Any = Progress(
        StreamOffset({Q0: 110, Q1: 7}), ReportedEnds({Q0: 400, Q1: 9, other: 5}, {Q0: 300}, frozenset({Q1}))
    )
    listener.onQueryProgress(event)
    listener.onQueryProgress(event)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"raptormq_spark_{name}", {"query": "flights"} | labels)

    assert (value("lag", topic="t"), value("lag_max", topic="t"), value("lost", topic="t")) == (102, 100, 190)
    assert value("lag", topic="u") == 5
    assert (value("unreachable_queues", topic="t"), value("unreachable_queues", topic="u")) == (1, 0)
    assert (value("batch"), value("rows_total"), value("batch_seconds_sum")) == (3, 100, 3.0)
    foreign: Any = Progress(StreamOffset({Q0: 110}), ReportedEnds({Q0: 400}))
    foreign.endOffset, foreign.name = "5", "kafka"
    listener.onQueryProgress(foreign)
    assert registry.get_sample_value("raptormq_spark_batch", {"query": "kafka"}) is None
    listener.onQueryTerminated(event)
    listener.onQueryTerminated(event)
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert names == set()
