"""Offset documents: round trips, one text for equal offsets, and safe rejection of invalid input."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_raptormq.errors import OffsetFormatError
from pyspark_raptormq.marks import Mark, Stored
from pyspark_raptormq.offsets import (
    EARLIEST,
    LATEST,
    GivenOffsets,
    QueueOffsets,
    ReportedEnds,
    StreamOffset,
    parse_assignment,
    parse_json,
    parse_offsets,
    reported_ends,
    stream_offset,
)
from raptormq.protocol.message import MessageQueue

NAMES = st.text(min_size=1, max_size=8)
QUEUES = st.builds(MessageQueue, NAMES, NAMES, st.integers(0, 2**31 - 1))
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**63 - 1), max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["v", "q", "s", "0", "t"]), inner),
    max_leaves=12,
)

A0, A10, A2 = (MessageQueue("flights", "broker-a", number) for number in (0, 10, 2))
B0 = MessageQueue("flights", "broker-b", 0)


@given(OFFSETS, st.none() | OFFSETS)
def test_round_trip(queues: QueueOffsets, start: QueueOffsets | None) -> None:
    offset = StreamOffset(queues, start)
    assert stream_offset(parse_json(json.dumps(offset.to_document()))) == offset


@given(OFFSETS, st.randoms(use_true_random=False))
def test_equal_offsets_are_equal_texts(queues: QueueOffsets, order: random.Random) -> None:
    shuffled = list(queues.items())
    order.shuffle(shuffled)
    assert json.dumps(StreamOffset(dict(shuffled)).to_document()) == json.dumps(StreamOffset(queues).to_document())


def test_documents_are_sorted_by_queue_number_and_not_as_text() -> None:
    document = StreamOffset({B0: 4, A10: 3, A2: 2, A0: 1}).to_document()
    assert json.dumps(document) == (
        '{"v": 1, "q": {"flights": {"broker-a": {"0": 1, "2": 2, "10": 3}, "broker-b": {"0": 4}}}}'
    )


def test_the_start_travels_along() -> None:
    document = StreamOffset({A0: 5}, start={A0: 2}).to_document()
    assert document["s"] == {"flights": {"broker-a": {"0": 2}}}
    assert not stream_offset(document).at_start
    assert StreamOffset({A0: 2}, start={A0: 2}).at_start
    assert not StreamOffset({A0: 2}).at_start


@given(OFFSETS)
def test_the_three_level_shape_means_the_same(queues: QueueOffsets) -> None:
    levels = StreamOffset(queues).to_document()["q"]
    assert stream_offset(levels) == StreamOffset(queues)
    assert parse_offsets(json.dumps(levels)) == GivenOffsets(queues, {})
    assert parse_offsets(json.dumps({"v": 1, "q": levels})) == GivenOffsets(queues, {})
    ids = {"flights": {"broker-a": "id"}}
    assert parse_offsets(json.dumps({"v": 2, "i": ids, "q": levels})) == GivenOffsets(
        queues, {("flights", "broker-a"): "id"}
    )


def test_a_topic_may_be_called_like_a_field() -> None:
    assert parse_offsets('{"v": {"b": {"0": 7}}}') == GivenOffsets({MessageQueue("v", "b", 0): 7}, {})


def test_relative_offsets_are_for_options_only() -> None:
    text = '{"flights": {"broker-a": {"0": -2, "2": -1}}}'
    assert parse_offsets(text) == GivenOffsets({A0: EARLIEST, A2: LATEST}, {})
    with pytest.raises(OffsetFormatError, match="offset of flights@broker-a:0"):
        stream_offset(json.loads(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "not a list"),
        ("null", "not null"),
        ('{"v": 5, "q": {}}', "version 5"),
        ('{"v": 3, "q": {}, "m": {}}', "unknown field 'm'"),
        ('{"v": 2, "q": {}, "t": 1}', "unknown field 't'"),
        ('{"v": 3, "q": {}, "t": -1}', "time t must be a whole number from 0"),
        ('{"v": 3, "q": {}, "t": "1"}', "time t must be a whole number from 0"),
        ('{"v": 1, "q": {}, "i": {}}', "unknown field 'i'"),
        ('{"v": 2, "q": {}, "i": {"t": {"b": 7}}}', "the id of t@b must be a string"),
        ('{"v": 2, "q": {}, "i": {"t": "b"}}', "must be a JSON object"),
        ('{"v": true, "q": {}}', "version True"),
        ('{"v": 1}', "field 'q'"),
        ('{"v": 1, "q": {}, "x": 1}', "unknown field 'x'"),
        ('{"t": 1}', "topic 't' must be a JSON object"),
        ('{"t": {"b": [1]}}', "t@b must be a JSON object"),
        ('{"t": {"": {}}}', "the name of a broker must be a non-empty text, not ''"),
        ('{"t": {"b": {"00": 1}}}', "'00' is not a queue number"),
        ('{"t": {"b": {"-1": 1}}}', "'-1' is not a queue number"),
        ('{"t": {"b": {"4294967296": 1}}}', "queue must be a whole number"),
        ('{"t": {"b": {"0": -3}}}', "must be a whole number from -2"),
        ('{"t": {"b": {"0": 1.0}}}', "must be a whole number"),
        ('{"t": {"b": {"0": true}}}', "must be a whole number"),
        ('{"t": {"b": {"0": "1"}}}', "must be a whole number"),
        ('{"t": {"b": {"0": 9223372036854775808}}}', "must be a whole number"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(OffsetFormatError, match=reason):
        parse_offsets(text)


@given(JSON_VALUES.map(json.dumps) | st.text())
def test_any_text_is_understood_or_refused_in_one_line(text: str) -> None:
    for parse in (parse_offsets, parse_assignment, lambda text: stream_offset(parse_json(text)).queues):
        refusal = ""
        parsed: object = None
        try:
            parsed = parse(text)
        except OffsetFormatError as error:
            refusal = str(error)
        assert (parsed is None) == (0 < len(refusal) < 300)


def test_assignment() -> None:
    assert parse_assignment('{"flights": {"broker-b": [0], "broker-a": [2, 0, 0]}}') == [A0, A2, B0]


@pytest.mark.parametrize("text", ["{}", '{"t": {"b": []}}', '{"t": {"b": {"0": 1}}}', '{"t": {"b": [-1]}}', "[]"])
def test_assignments_that_are_refused(text: str) -> None:
    with pytest.raises(OffsetFormatError):
        parse_assignment(text)


def test_marks_are_in_documents_of_version_4() -> None:
    marks = {"broker-a": Mark(A0, 4, Stored(73400320, 1_760_000_000_000))}
    offset = StreamOffset({A0: 5}, None, {}, None, marks)
    text = (
        '{"v": 4, "q": {"flights": {"broker-a": {"0": 5}}},'
        ' "m": {"broker-a": ["flights", 0, 4, 73400320, 1760000000000]}}'
    )
    assert json.dumps(offset.to_document()) == text
    assert stream_offset(json.loads(text)) == offset
    assert parse_offsets(text).queues == {A0: 5}, "options take the offsets of a checkpoint"


@pytest.mark.parametrize(
    "mark", ["[]", '"flights"', '["flights", 0, 4, 7]', "[7, 0, 4, 7, 1]", '["flights", -1, 4, 7, 1]']
)
def test_damaged_marks_are_refused(mark: str) -> None:
    with pytest.raises(OffsetFormatError):
        stream_offset(json.loads(f'{{"v": 4, "q": {{}}, "m": {{"broker-a": {mark}}}}}'))


def test_the_time_at_which_other_queues_begin_is_in_documents_of_version_3() -> None:
    offset = StreamOffset({A0: 5}, None, {}, 1_760_000_000_000)
    text = '{"v": 3, "q": {"flights": {"broker-a": {"0": 5}}}, "t": 1760000000000}'
    assert json.dumps(offset.to_document()) == text
    assert stream_offset(json.loads(text)) == offset
    assert parse_offsets(text) == GivenOffsets({A0: 5}, {}, 1_760_000_000_000)


def test_queues_that_cannot_be_reached_are_in_reports() -> None:
    ends = ReportedEnds({A0: 5, A2: 9}, {A0: 1}, frozenset({A2}))
    report = ends.report({A0: 3, A2: 4})
    assert (report["unreachable"], report["offsetsBehindLatest"]["flights"]["total"]) == (
        {"flights": {"broker-a": [2]}},
        7,
    )
    assert reported_ends(json.loads(json.dumps(report))) == ends
    assert parse_offsets(json.dumps(report)).queues == ends.queues
