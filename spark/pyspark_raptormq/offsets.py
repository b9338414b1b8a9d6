"""JSON documents for the offsets of many queues, as Spark stores them in the checkpoint of a query. No I/O.

Entries are sorted by topic, broker and queue number, so that equal offsets have equal texts::

    {"v": 4,
     "i": {"flights": {"broker-a": "5f0c..."}},               topic id per topic and broker
     "q": {"flights": {"broker-a": {"0": 123, "1": 98}}},     next offset to read, per queue
     "t": 1760000000000,                                      time at which other queues begin, in ms since 1970
     "m": {"broker-a": ["flights", 0, 122, 73400320, 1759999999000]},      a message that was read, per broker
     "s": {"flights": {"broker-a": {"0": 100, "1": 98}}}}     start of the query, only until the first batch was read

Version 3 has no field `m`, version 2 also no field `t`, version 1 also no field `i`. A document has the lowest version
with its fields. A topic that is deleted and created again gets another id (`raptormq.protocol.topic_ids`); a missing id
is not compared, because brokers of Apache RocketMQ do not provide ids.

`t` is the start of a query that does not start at the earliest offset: its `startingTimestamp`, or for "latest" the
time of its first start. Queues that are not in the document begin with the first message of that time: queues that are
newer, and queues of a broker that was down when the query started. Without `t` they begin with their first message.

`m` has topic, queue and offset of a message, and where and when it was stored (`marks`).

`s` is needed because Spark stores only the *end* of a batch, and requests the initial offset again when it replans the
first batch. A start of "latest" would then have advanced, and messages would be skipped without notice.

The latest offset in progress reports is such a document, too, with additional fields::

     "f": {"flights": {"broker-a": {"0": 110}}}               minimum offset of queues that are not read to their end
     "unreachable": {"flights": {"broker-b": [0, 1]}},        queues without a route; their ends are the last known ones
     "offsetsBehindLatest": {"flights": {"avg": 6.5, "max": 13, "min": 0, "total": 13}}     lag over a topic's queues

`f` serves to exclude deleted messages from the lag. `offsetsBehindLatest` is a part of the latest offset because
Spark's progress reports have no metrics of Python sources, such as `avgOffsetsBehindLatest` of the Kafka connector.

The options `startingOffsets` and `endingOffsets` accept these documents without `s`, or the bare three-level map of the
RocketMQ connector for Spark 2, in which -2 means earliest and -1 latest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark_raptormq.errors import OffsetFormatError
from pyspark_raptormq.marks import Mark, Marks, Stored
from raptormq.protocol.bodies.group_progress import GroupLag
from raptormq.protocol.message import MessageQueue

FORMAT_VERSION = 4
_WITHOUT_MARKS = 3
_WITHOUT_TIME = 2
_WITHOUT_IDS = 1
_FIRST = "f"
_UNREACHABLE = "unreachable"
_BEHIND = "offsetsBehindLatest"
_REPORTED = (_FIRST, _UNREACHABLE, _BEHIND)
EARLIEST = -2
LATEST = -1

_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_MAX_QUEUE_ID = 2**31 - 1
_MAX_OFFSET = 2**63 - 1

QueueOffsets = dict[MessageQueue, int]
"""Next offset to read, per queue."""
Place = tuple[str, str]
"""A topic name and the name of a broker with queues of the topic."""
TopicIds = dict[Place, str]


def place_of(queue: MessageQueue) -> Place:
    """Return topic and broker of a queue, for which the broker has one topic id."""
    return queue.topic, queue.broker_name


def recreated(before: Mapping[Place, str], now: Mapping[Place, str]) -> list[Place]:
    """Return the places whose topic id has changed, that is, whose topic was recreated."""
    return sorted(place for place, topic_id in now.items() if before.get(place, topic_id) != topic_id)


def without(offsets: Mapping[MessageQueue, int], places: Iterable[Place]) -> QueueOffsets:
    """Return the offsets without those of the given places."""
    left_out = set(places)
    return {queue: offset for queue, offset in offsets.items() if place_of(queue) not in left_out}


@dataclass(frozen=True)
class StreamOffset:
    """A position of a streaming query."""

    queues: QueueOffsets
    """Next offset to read, per queue."""
    start: QueueOffsets | None = None
    """Start offsets of the query; None after the first batch."""
    topic_ids: TopicIds = field(default_factory=dict)
    """Topic ids of the queues in `queues` and `start`, as far as known."""
    since_ms: int | None = None
    """Time in ms since 1970 at which queues begin that are not in `queues`; None for their first message."""
    marks: Marks = field(default_factory=dict)
    """A message that was read, by broker name."""

    @property
    def at_start(self) -> bool:
        """Whether nothing has been read yet."""
        return self.start is not None and self.start == self.queues

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document."""
        document: dict[str, Any] = {"v": self._version}
        if self.topic_ids:
            by_topic: dict[str, dict[str, str]] = {}
            for topic, broker in sorted(self.topic_ids):
                by_topic.setdefault(topic, {})[broker] = self.topic_ids[topic, broker]
            document["i"] = by_topic
        document["q"] = to_levels(self.queues)
        if self.since_ms is not None:
            document["t"] = self.since_ms
        if self.marks:
            document["m"] = {
                broker: [mark.queue.topic, mark.queue.queue_id, mark.offset, *mark.stored]
                for broker, mark in sorted(self.marks.items())
            }
        if self.start is not None:
            document["s"] = to_levels(self.start)
        return document

    @property
    def _version(self) -> int:
        if self.marks:
            return FORMAT_VERSION
        if self.since_ms is not None:
            return _WITHOUT_MARKS
        return _WITHOUT_TIME if self.topic_ids else _WITHOUT_IDS


@dataclass(frozen=True)
class ReportedEnds:
    """End offsets of all queues, as in progress reports."""

    queues: QueueOffsets
    """End offset, one past the last message, per queue."""
    first: QueueOffsets = field(default_factory=dict)
    """Minimum offset of the queues that were not read to their end."""
    unreachable: frozenset[MessageQueue] = frozenset()
    """Queues that no broker offers now. Their end is the last known one, or else the next offset to read."""

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document."""
        document = StreamOffset(self.queues).to_document() | ({_FIRST: to_levels(self.first)} if self.first else {})
        if self.unreachable:
            by_topic: dict[str, dict[str, list[int]]] = {}
            for queue in sorted(self.unreachable):
                by_topic.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
            document[_UNREACHABLE] = by_topic
        return document

    def behind(self, read: QueueOffsets) -> dict[MessageQueue, GroupLag]:
        """Return the lag of the offsets `read` behind these ends, per queue."""
        return {
            queue: GroupLag.between(read.get(queue), self.first.get(queue, 0), end)
            for queue, end in self.queues.items()
        }

    def report(self, read: QueueOffsets) -> dict[str, Any]:
        """Return the canonical document with the lag of the offsets `read` per topic."""
        waiting: dict[str, list[int]] = {}
        for queue, lag in sorted(self.behind(read).items()):
            waiting.setdefault(queue.topic, []).append(lag.waiting)
        return self.to_document() | {
            _BEHIND: {
                topic: {"avg": sum(each) / len(each), "max": max(each), "min": min(each), "total": sum(each)}
                for topic, each in waiting.items()
            }
        }


def reported_ends(document: object) -> ReportedEnds:
    """Parse the latest offset of a progress report.

    Raises:
        OffsetFormatError: The document is from another kind of source.
    """
    first: object = {}
    unreachable: object = {}
    if isinstance(document, dict) and _is_versioned(document):
        first, unreachable = document.get(_FIRST, {}), document.get(_UNREACHABLE, {})
        document = {name: value for name, value in document.items() if name not in _REPORTED}
    return ReportedEnds(
        stream_offset(document).queues,
        _from_levels(first, lowest=0) if first else {},
        frozenset(_from_lists(unreachable)),
    )


def to_levels(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return topic -> broker -> queue number as text -> offset, in canonical order."""
    levels: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = levels.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return levels


def stream_offset(document: object) -> StreamOffset:
    """Parse an offset document of a checkpoint.

    Raises:
        OffsetFormatError: The document is invalid or has an unsupported version.
    """
    if not isinstance(document, dict):
        raise OffsetFormatError(f"an offset must be a JSON object, not {_kind(document)}")
    if not _is_versioned(document):
        return StreamOffset(_from_levels(document, lowest=0))
    given = _versioned_queues(document, lowest=0, allowed=("q", "s"))
    start = document.get("s")
    first = None if start is None else _from_levels(start, lowest=0)
    return StreamOffset(given.queues, first, given.topic_ids, given.since_ms, _marks(document.get("m", {})))


class GivenOffsets(NamedTuple):
    """Offsets in the JSON text of an option."""

    queues: QueueOffsets
    """Offsets, which may be `EARLIEST` (-2) or `LATEST` (-1)."""
    topic_ids: TopicIds
    since_ms: int | None = None
    """The field `t` of a document of a checkpoint."""


def parse_offsets(text: str) -> GivenOffsets:
    """Parse the JSON text of an option.

    Raises:
        OffsetFormatError: The text is not JSON or has neither of the two formats.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        raise OffsetFormatError(f"offsets must be a JSON object, not {_kind(document)}")
    if _is_versioned(document):
        # The additional fields permit documents copied from a progress report.
        return _versioned_queues(document, lowest=EARLIEST, allowed=("q", *_REPORTED))
    return GivenOffsets(_from_levels(document, lowest=EARLIEST), {})


def parse_timestamps(text: str) -> QueueOffsets:
    """Parse `{"topic": {"broker-a": {"0": 1700000000000}}}`. Return times in milliseconds since 1970.

    Raises:
        OffsetFormatError: The text has another format or names no queue.
    """
    times = _from_levels(parse_json(text), lowest=0)
    if not times:
        raise OffsetFormatError("the times name no queue")
    return times


def parse_assignment(text: str) -> list[MessageQueue]:
    """Parse `{"topic": {"broker-a": [0, 1]}}`. Return the queues, sorted.

    Raises:
        OffsetFormatError: The text has another format or names no queue.
    """
    queues = _from_lists(parse_json(text))
    if not queues:
        raise OffsetFormatError("the assignment names no queue")
    return sorted(queues)


def parse_json(text: str) -> object:
    """Parse JSON text.

    Raises:
        OffsetFormatError: The text is not JSON, or is nested too deeply.
    """
    try:
        decoded: object = json.loads(text)
    except ValueError as error:
        raise OffsetFormatError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise OffsetFormatError("not an offset document: nested too deeply") from error
    return decoded


def _is_versioned(document: dict[str, Any]) -> bool:
    # A topic may have the name "v"; its value is then an object.
    return "v" in document and not isinstance(document["v"], dict)


def _versioned_queues(document: dict[str, Any], *, lowest: int, allowed: tuple[str, ...]) -> GivenOffsets:
    version = document["v"]
    later = {
        _WITHOUT_IDS: (),
        _WITHOUT_TIME: ("i",),
        _WITHOUT_MARKS: ("i", "t"),
        FORMAT_VERSION: ("i", "t", "m"),
    }
    if isinstance(version, bool) or not isinstance(version, int) or version not in later:
        raise OffsetFormatError(
            f"offset format version {version!r} is not supported; this connector writes version {FORMAT_VERSION}"
        )
    unknown = sorted(set(document) - {"v", *allowed, *later[version]})
    if unknown:
        raise OffsetFormatError(f"unknown field {unknown[0]!r} in an offset of version {version}")
    if "q" not in document:
        raise OffsetFormatError(f"an offset of version {version} must have a field 'q'")
    since_ms = None if document.get("t") is None else _whole(document["t"], 0, _MAX_OFFSET, "time t")
    return GivenOffsets(_from_levels(document["q"], lowest=lowest), _topic_ids(document.get("i", {})), since_ms)


def _topic_ids(levels: object) -> TopicIds:
    ids: TopicIds = {}
    for topic, brokers in _named_items(levels, "the topic ids", "topic"):
        for broker, topic_id in _named_items(brokers, f"topic {topic!r}", "broker"):
            if not isinstance(topic_id, str) or not topic_id:
                raise OffsetFormatError(f"the id of {topic}@{broker} must be a string, not {topic_id!r:.40}")
            ids[topic, broker] = topic_id
    return ids


def _marks(levels: object) -> Marks:
    marks: Marks = {}
    for broker, mark in _named_items(levels, "the marks", "broker"):
        if not isinstance(mark, list) or len(mark) != 5 or not isinstance(mark[0], str) or not mark[0]:
            raise OffsetFormatError(f"the mark of {broker} must be [topic, queue, offset, log offset, time]")
        queue_id = _whole(mark[1], 0, _MAX_QUEUE_ID, "queue of a mark")
        offset, log_offset, time_ms = (_whole(each, 0, _MAX_OFFSET, "number of a mark") for each in mark[2:])
        marks[broker] = Mark(MessageQueue(mark[0], broker, queue_id), offset, Stored(log_offset, time_ms))
    return marks


def _from_levels(levels: object, *, lowest: int) -> QueueOffsets:
    offsets: QueueOffsets = {}
    for topic, brokers in _named_items(levels, "the offsets", "topic"):
        for broker, numbers in _named_items(brokers, f"topic {topic!r}", "broker"):
            for number, offset in _named_items(numbers, f"{topic}@{broker}", "queue"):
                if not _QUEUE_ID.fullmatch(number):
                    raise OffsetFormatError(f"{number!r} is not a queue number of {topic}@{broker}")
                queue = MessageQueue(topic, broker, _whole(int(number), 0, _MAX_QUEUE_ID, "queue"))
                offsets[queue] = _whole(offset, lowest, _MAX_OFFSET, f"offset of {queue}")
    return offsets


def _from_lists(levels: object) -> set[MessageQueue]:
    queues = set()
    for topic, brokers in _named_items(levels, "the assignment", "topic"):
        for broker, numbers in _named_items(brokers, f"topic {topic!r}", "broker"):
            if not isinstance(numbers, list):
                raise OffsetFormatError(f"{topic}@{broker} must be a list of queue numbers, not {_kind(numbers)}")
            queues |= {MessageQueue(topic, broker, _whole(number, 0, _MAX_QUEUE_ID, "queue")) for number in numbers}
    return queues


def _named_items(value: object, owner: str, of: str) -> list[tuple[str, object]]:
    if not isinstance(value, dict):
        raise OffsetFormatError(f"{owner} must be a JSON object with one field per {of}, not {_kind(value)}")
    for name in value:
        if not isinstance(name, str) or not name:
            raise OffsetFormatError(f"{owner}: the name of a {of} must be a non-empty text, not {name!r}")
    return list(value.items())


def _whole(value: object, lowest: int, highest: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise OffsetFormatError(f"{what} must be a whole number from {lowest} to {highest}, not {value!r:.40}")
    return value


def _kind(value: object) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        int: "a number",
        float: "a number",
        bool: "a boolean",
    }
    return names.get(type(value), "null")
