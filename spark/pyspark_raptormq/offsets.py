"""Offsets of many queues as one JSON document: what Spark keeps in a query's checkpoint. Pure.

Always written in this order (topic, broker, then queue number), so that equal offsets are equal texts::

    {"v": 2,
     "i": {"flights": {"broker-a": "5f0c..."}},               id of the topic that the offsets are of, per broker
     "q": {"flights": {"broker-a": {"0": 123, "1": 98}}},     next offset to read, per queue
     "s": {"flights": {"broker-a": {"0": 100, "1": 98}}}}     only until the first batch has read something

Version 1 has no `i`, and is what is written where no broker gives ids, as Apache RocketMQ's do not. A topic that is
deleted and made again has another id (`raptormq.protocol.topic_ids`); one without is not compared.

`s` is where the query started. Spark asks a source for its initial offset again whenever the first batch is planned
again, and stores only the *end* of a batch; a start that was "latest" would have moved on by then and records would be
left out in silence. An end offset that carries its own start cannot lose it.

What progress reports call the latest offset is such a document, too. Where a queue was not read to its end it says
where that queue begins, since what retention has deleted is no lag::

     "f": {"flights": {"broker-a": {"0": 110}}}               first message that is still there, in reports only
     "offsetsBehindLatest": {"flights": {"avg": 6.5, "max": 13, "min": 0, "total": 13}}     over the queues of a topic

Spark has no place for the metrics of a Python source in its progress, so what the Kafka connector shows there as
`avgOffsetsBehindLatest` stands in the latest offset.

The options `startingOffsets` and `endingOffsets` take the same documents without `s`, or the bare three-level map that
the RocketMQ connector for Spark 2 used; there -2 means earliest and -1 latest.

Neighbours: `planner` computes with these maps, `stream_reader` hands the documents to Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_raptormq.errors import OffsetFormatError
from raptormq.protocol.bodies.group_progress import GroupLag
from raptormq.protocol.message import MessageQueue

FORMAT_VERSION = 2
_WITHOUT_IDS = 1
_FIRST = "f"
_BEHIND = "offsetsBehindLatest"
EARLIEST = -2
LATEST = -1

_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_MAX_QUEUE_ID = 2**31 - 1
_MAX_OFFSET = 2**63 - 1

QueueOffsets = dict[MessageQueue, int]
"""Next offset to read, per queue."""
Place = tuple[str, str]
"""A topic, and one of the brokers that have queues of it."""
TopicIds = dict[Place, str]


def place_of(queue: MessageQueue) -> Place:
    """Return where a queue is: its topic there has one id."""
    return queue.topic, queue.broker_name


def made_again(before: Mapping[Place, str], now: Mapping[Place, str]) -> list[Place]:
    """Return where there is another topic of the same name now."""
    return sorted(place for place, topic_id in now.items() if before.get(place, topic_id) != topic_id)


def without(offsets: Mapping[MessageQueue, int], places: Iterable[Place]) -> QueueOffsets:
    """Return the offsets of other places."""
    left_out = set(places)
    return {queue: offset for queue, offset in offsets.items() if place_of(queue) not in left_out}


@dataclass(frozen=True)
class StreamOffset:
    """A position of a streaming query."""

    queues: QueueOffsets
    """Next offset to read, per queue."""
    start: QueueOffsets | None = None
    """Where the query started, as long as nothing but its first batch can have been read."""
    topic_ids: TopicIds = field(default_factory=dict)
    """Of which topics the offsets are, both kinds, where that is known."""

    @property
    def at_start(self) -> bool:
        """Whether nothing has been read yet."""
        return self.start is not None and self.start == self.queues

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document."""
        document: dict[str, Any] = {"v": FORMAT_VERSION if self.topic_ids else _WITHOUT_IDS}
        if self.topic_ids:
            by_topic: dict[str, dict[str, str]] = {}
            for topic, broker in sorted(self.topic_ids):
                by_topic.setdefault(topic, {})[broker] = self.topic_ids[topic, broker]
            document["i"] = by_topic
        document["q"] = to_levels(self.queues)
        if self.start is not None:
            document["s"] = to_levels(self.start)
        return document


@dataclass(frozen=True)
class ReportedEnds:
    """The ends of all queues, as progress reports have them."""

    queues: QueueOffsets
    """Offset behind the last message, per queue."""
    first: QueueOffsets = field(default_factory=dict)
    """The first message that is still there, of the queues that were not read to their ends."""

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document."""
        return StreamOffset(self.queues).to_document() | ({_FIRST: to_levels(self.first)} if self.first else {})

    def behind(self, read: QueueOffsets) -> dict[MessageQueue, GroupLag]:
        """Return how far offsets that were read are behind these ends, per queue."""
        return {
            queue: GroupLag.between(read.get(queue), self.first.get(queue, 0), end)
            for queue, end in self.queues.items()
        }

    def report(self, read: QueueOffsets) -> dict[str, Any]:
        """Return the canonical document with how far offsets that were read are behind, per topic."""
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
    """Return the ends that a progress report has.

    Raises:
        OffsetFormatError: it is of another source.
    """
    first: object = {}
    if isinstance(document, dict) and _is_versioned(document):
        first = document.get(_FIRST, {})
        document = {name: value for name, value in document.items() if name not in (_FIRST, _BEHIND)}
    return ReportedEnds(stream_offset(document).queues, _from_levels(first, lowest=0) if first else {})


def to_levels(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return topic -> broker -> queue number as text -> offset, in canonical order."""
    levels: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = levels.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return levels


def stream_offset(document: object) -> StreamOffset:
    """Return the position that a checkpoint document describes.

    Raises:
        OffsetFormatError: it is not such a document, or of a version that this connector does not know.
    """
    if not isinstance(document, dict):
        raise OffsetFormatError(f"an offset is a JSON object, not {_kind(document)}")
    if not _is_versioned(document):
        return StreamOffset(_from_levels(document, lowest=0))
    queues, topic_ids = _versioned_queues(document, lowest=0, allowed=("q", "s"))
    start = document.get("s")
    return StreamOffset(queues, None if start is None else _from_levels(start, lowest=0), topic_ids)


def parse_offsets(text: str) -> tuple[QueueOffsets, TopicIds]:
    """Return the offsets of an option's JSON text, where values may be `EARLIEST` (-2) or `LATEST` (-1), and of which
    topics they are.

    Raises:
        OffsetFormatError: the text is not JSON or has neither of the two shapes.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        raise OffsetFormatError(f"offsets are a JSON object, not {_kind(document)}")
    if _is_versioned(document):
        return _versioned_queues(
            document, lowest=EARLIEST, allowed=("q", _FIRST, _BEHIND)
        )  # copied from a report, perhaps
    return _from_levels(document, lowest=EARLIEST), {}


def parse_timestamps(text: str) -> QueueOffsets:
    """Return the times, in milliseconds since 1970, of `{"topic": {"broker-a": {"0": 1700000000000}}}`.

    Raises:
        OffsetFormatError: the text has another shape or names no queue.
    """
    times = _from_levels(parse_json(text), lowest=0)
    if not times:
        raise OffsetFormatError("the times name no queue")
    return times


def parse_assignment(text: str) -> list[MessageQueue]:
    """Return the queues of `{"topic": {"broker-a": [0, 1]}}`, sorted.

    Raises:
        OffsetFormatError: the text has another shape or names no queue.
    """
    queues = set()
    for topic, brokers in _named_items(parse_json(text), "the assignment", "topic"):
        for broker, numbers in _named_items(brokers, f"topic {topic!r}", "broker"):
            if not isinstance(numbers, list):
                raise OffsetFormatError(f"{topic}@{broker} must be a list of queue numbers, not {_kind(numbers)}")
            queues |= {MessageQueue(topic, broker, _whole(number, 0, _MAX_QUEUE_ID, "queue")) for number in numbers}
    if not queues:
        raise OffsetFormatError("the assignment names no queue")
    return sorted(queues)


def parse_json(text: str) -> object:
    """Return the decoded text.

    Raises:
        OffsetFormatError: it is not JSON, or nested absurdly deep.
    """
    try:
        decoded: object = json.loads(text)
    except ValueError as error:
        raise OffsetFormatError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise OffsetFormatError("not an offset document: nested too deep") from error
    return decoded


def _is_versioned(document: dict[str, Any]) -> bool:
    # A topic may be called "v"; its value is then an object, never a number.
    return "v" in document and not isinstance(document["v"], dict)


def _versioned_queues(
    document: dict[str, Any], *, lowest: int, allowed: tuple[str, ...]
) -> tuple[QueueOffsets, TopicIds]:
    version = document["v"]
    if isinstance(version, bool) or version not in (_WITHOUT_IDS, FORMAT_VERSION):
        raise OffsetFormatError(
            f"offset format version {version!r} is not known here; this connector writes {FORMAT_VERSION}"
        )
    unknown = sorted(set(document) - {"v", *allowed, *(("i",) if version == FORMAT_VERSION else ())})
    if unknown:
        raise OffsetFormatError(f"unknown field {unknown[0]!r} in an offset of version {version}")
    if "q" not in document:
        raise OffsetFormatError(f"an offset of version {version} has a field 'q'")
    return _from_levels(document["q"], lowest=lowest), _topic_ids(document.get("i", {}))


def _topic_ids(levels: object) -> TopicIds:
    ids: TopicIds = {}
    for topic, brokers in _named_items(levels, "the topic ids", "topic"):
        for broker, topic_id in _named_items(brokers, f"topic {topic!r}", "broker"):
            if not isinstance(topic_id, str) or not topic_id:
                raise OffsetFormatError(f"the id of {topic}@{broker} must be a text, not {topic_id!r:.40}")
            ids[topic, broker] = topic_id
    return ids


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


def _named_items(value: object, owner: str, of: str) -> list[tuple[str, object]]:
    if not isinstance(value, dict):
        raise OffsetFormatError(f"{owner} must be a JSON object with one field per {of}, not {_kind(value)}")
    for name in value:
        if not isinstance(name, str) or not name:
            raise OffsetFormatError(f"{owner}: {name!r} is not the name of a {of}")
    return list(value.items())


def _whole(value: object, lowest: int, highest: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise OffsetFormatError(f"{what} must be a whole number from {lowest} to {highest}, not {value!r:.40}")
    return value


def _kind(value: object) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        int: "a number",
        float: "a number",
        bool: "a truth value",
    }
    return names.get(type(value), "null")
