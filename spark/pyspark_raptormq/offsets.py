"""Offsets of many queues as one JSON document: what Spark keeps in a query's checkpoint. Pure.

Version 1, always written in this order (topic, broker, then queue number), so that equal offsets are equal texts::

    {"v": 1,
     "q": {"flights": {"broker-a": {"0": 123, "1": 98}}},     next offset to read, per queue
     "s": {"flights": {"broker-a": {"0": 100, "1": 98}}}}     only until the first batch has read something

`s` is where the query started. Spark asks a source for its initial offset again whenever the first batch is planned
again, and stores only the *end* of a batch; a start that was "latest" would have moved on by then and records would be
left out in silence. An end offset that carries its own start cannot lose it.

The options `startingOffsets` and `endingOffsets` take the same document without `s`, or the bare three-level map that
the RocketMQ connector for Spark 2 used; there -2 means earliest and -1 latest.

Neighbours: `planner` computes with these maps, `stream_reader` hands the documents to Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_raptormq.errors import OffsetFormatError
from raptormq.protocol.message import MessageQueue

FORMAT_VERSION = 1
EARLIEST = -2
LATEST = -1

_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_MAX_QUEUE_ID = 2**31 - 1
_MAX_OFFSET = 2**63 - 1

QueueOffsets = dict[MessageQueue, int]
"""Next offset to read, per queue."""


@dataclass(frozen=True)
class StreamOffset:
    """A position of a streaming query."""

    queues: QueueOffsets
    """Next offset to read, per queue."""
    start: QueueOffsets | None = None
    """Where the query started, as long as nothing but its first batch can have been read."""

    @property
    def at_start(self) -> bool:
        """Whether nothing has been read yet."""
        return self.start is not None and self.start == self.queues

    def to_document(self) -> dict[str, Any]:
        """Return the canonical version 1 document."""
        document: dict[str, Any] = {"v": FORMAT_VERSION, "q": to_levels(self.queues)}
        if self.start is not None:
            document["s"] = to_levels(self.start)
        return document


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
    queues = _versioned_queues(document, lowest=0, allowed=("v", "q", "s"))
    start = document.get("s")
    return StreamOffset(queues, None if start is None else _from_levels(start, lowest=0))


def parse_offsets(text: str) -> QueueOffsets:
    """Return the offsets of an option's JSON text; values may be `EARLIEST` (-2) or `LATEST` (-1).

    Raises:
        OffsetFormatError: the text is not JSON or has neither of the two shapes.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        raise OffsetFormatError(f"offsets are a JSON object, not {_kind(document)}")
    if _is_versioned(document):
        return _versioned_queues(document, lowest=EARLIEST, allowed=("v", "q"))
    return _from_levels(document, lowest=EARLIEST)


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


def _versioned_queues(document: dict[str, Any], *, lowest: int, allowed: tuple[str, ...]) -> QueueOffsets:
    version = document["v"]
    if isinstance(version, bool) or version != FORMAT_VERSION:
        raise OffsetFormatError(
            f"offset format version {version!r} is not known here; this connector writes {FORMAT_VERSION}"
        )
    unknown = sorted(set(document) - set(allowed))
    if unknown:
        raise OffsetFormatError(f"unknown field {unknown[0]!r} in an offset of version {FORMAT_VERSION}")
    if "q" not in document:
        raise OffsetFormatError(f"an offset of version {FORMAT_VERSION} has a field 'q'")
    return _from_levels(document["q"], lowest=lowest)


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
