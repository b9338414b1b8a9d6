"""Lag from progress reports."""

from __future__ import annotations

import json
import logging

import pytest

from pyspark_raptormq.metrics import Lag, log_lag, offsets_behind
from pyspark_raptormq.offsets import StreamOffset
from raptormq.protocol.message import MessageQueue

Q0, Q1 = (MessageQueue("t", "broker-a", number) for number in range(2))


def text(offset: StreamOffset) -> str:
    return json.dumps(offset.to_document())


def test_lag_is_what_is_left_in_each_queue() -> None:
    end = text(StreamOffset({Q0: 5}, start={Q0: 0}))
    assert offsets_behind(end, text(StreamOffset({Q0: 9, Q1: 2}))) == {Q0: 4, Q1: 2}
    assert offsets_behind(end, text(StreamOffset({Q0: 4}))) == {Q0: 0}


@pytest.mark.parametrize("other", [None, "", "5", '{"topic": {"0": 5}}', "not json"])
def test_other_sources_have_no_lag_of_ours(other: str | None) -> None:
    assert offsets_behind(other, text(StreamOffset({Q0: 9}))) is None
    assert offsets_behind(text(StreamOffset({Q0: 9})), other) is None


def test_sums() -> None:
    lag = Lag("flights", 3, {Q0: 4, Q1: 2})
    assert (lag.total, lag.largest) == (6, 4)
    assert (Lag("idle", 3, {}).total, Lag("idle", 3, {}).largest) == (0, 0)


def test_the_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_lag(Lag("flights", 3, {Q0: 4, Q1: 2}))
    assert caplog.messages == ["query flights, batch 3: 6 offsets behind, at most 4 in a queue"]
