"""Options of the source, for `spark.read` and `spark.readStream`. They are validated before any request to a broker.

Names are those of Spark's Kafka connector for equivalent options, and case-insensitive. `source` parses Spark's map of
options; the other modules use the resulting `SourceOptions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark_raptormq.columns import DEFAULT_COLUMNS, KNOWN_COLUMNS, PROPERTIES_COLUMN, PropertiesAs
from pyspark_raptormq.connection import CONNECTION_OPTIONS, Connection, take_connection
from pyspark_raptormq.errors import OffsetFormatError, OptionError
from pyspark_raptormq.offsets import QueueOffsets, TopicIds, parse_assignment, parse_offsets, parse_timestamps
from pyspark_raptormq.option_parsing import (
    OptionTable,
    amount,
    at_least,
    boolean,
    canonical_names,
    check_at_most_one,
    duration,
    group_name,
    nearest,
    one_of,
    parse_values,
    size,
)
from raptormq.client import Sql
from raptormq.errors import MessageError
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.tags import SUBSCRIBE_ALL, TAG_SEPARATOR, find_condition, parse_expression
from raptormq.protocol.topic_names import AUTO_CREATE_TOPIC, HIDDEN_TOPICS, check_topic, is_system_group

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True)
class Position:
    """Position at which reading starts or ends. At most one field besides `topic_ids` and `since_ms` is set."""

    word: str | None = None
    """`earliest` or `latest`."""
    offsets: QueueOffsets | None = None
    """Offset per queue; values may be `offsets.EARLIEST` or `offsets.LATEST`."""
    topic_ids: TopicIds = field(default_factory=dict)
    """Topic ids of the offsets, if the JSON text has them."""
    since_ms: int | None = None
    """Time in milliseconds since 1970 at which queues without offsets begin, if the JSON text has it."""
    timestamp_ms: int | None = None
    """Time in milliseconds since 1970; selects the first message stored at or after that time."""
    timestamps: QueueOffsets | None = None
    """Time in milliseconds since 1970 per queue, with the same meaning as `timestamp_ms`."""


@dataclass(frozen=True)
class SourceOptions:
    """Options of one `load()`."""

    connection: Connection
    """Connection options."""
    topics: tuple[str, ...] = ()
    """Option `subscribe` (or `topic`): topics separated by commas."""
    topic_pattern: str | None = None
    """Option `subscribePattern`: Python regular expression that matches whole topic names. New topics are picked up
    with every batch."""
    queues: tuple[MessageQueue, ...] = ()
    """Option `assign`: `{"topic": {"broker-a": [0, 1]}}`."""
    expression: str | Sql = "*"
    """Options `subExpression` and `expressionType`: `*`, tags separated by `||`, or an SQL92 filter on properties.
    Brokers apply the filter."""
    start: Position = Position(word=EARLIEST)
    """Options `startingOffsets` (earliest, latest or JSON), `startingTimestamp` and `startingOffsetsByTimestamp`
    (JSON). Default: earliest for batch queries, latest for streaming queries."""
    end: Position = Position(word=LATEST)
    """Options `endingOffsets`, `endingTimestamp` and `endingOffsetsByTimestamp`, batch only."""
    max_offsets_per_trigger: int | None = None
    """Option `maxOffsetsPerTrigger`, streaming only: maximum offsets per micro-batch over all queues."""
    max_bytes_per_trigger: int | None = None
    """Option `maxBytesPerTrigger`, streaming only: approximate maximum of stored bytes per micro-batch."""
    min_offsets_per_trigger: int | None = None
    """Option `minOffsetsPerTrigger`, streaming only: minimum offsets per micro-batch over all queues; a micro-batch
    waits for them up to `maxTriggerDelay`."""
    max_trigger_delay_s: float = 900.0
    """Option `maxTriggerDelay`: how long a micro-batch may wait for `minOffsetsPerTrigger`, here in seconds."""
    min_partitions: int | None = None
    """Option `minPartitions`: minimum number of tasks; queues are split to reach it."""
    max_rows_per_partition: int | None = None
    """Option `maxRowsPerPartition`: maximum offsets per task; queues are split to meet it."""
    fail_on_data_loss: bool = True
    """Option `failOnDataLoss`: whether missing offsets fail the query. Otherwise they are skipped with a warning."""
    fail_on_unavailable_broker: bool = True
    """Option `failOnUnavailableBroker`, batch only: whether the query fails if a broker of queues to read is not
    available. Otherwise they are skipped with a warning."""
    fail_on_damage: bool = True
    """Option `failOnDamage`: whether damaged messages and batches fail the query. Otherwise they are skipped with a
    warning."""
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    """Option `columns`: names separated by commas. Fewer columns are faster; Spark does not prune columns of Python
    sources."""
    properties_as: PropertiesAs = PropertiesAs.NONE
    """Option `includeProperties`: none, user or map (map<string,string> of the application's or of all properties), or
    raw (binary, as stored)."""
    consumer_group: str | None = None
    """Option `consumerGroup`, streaming only: consumer group to which the query's progress is committed for monitoring.
    These offsets are never read. No application may use the group."""
    arrow_batch_bytes: int = 4 * 1024 * 1024
    """Option `arrowBatchBytes`: stored bytes per Arrow batch. The default was the fastest in benchmarks."""
    pull_bytes: int = 1024 * 1024
    """Option `pullBytes`: maximum bytes per pull request."""
    verify_crc: bool = True
    """Option `verifyCrc`: verify the checksum of every body."""

    @property
    def tags(self) -> frozenset[str]:
        """Tags to read; empty for all messages."""
        return frozenset() if isinstance(self.expression, Sql) else frozenset(parse_expression(self.expression))


def parse_source_options(raw: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """Parse and validate the options of a batch or streaming query; `streaming=None` accepts the options of both.

    Raises:
        OptionError: An option is unknown, missing, malformed, not permitted for this kind of query, or contradicts
            another option.
    """
    given = canonical_names(raw, _OPTIONS)
    if streaming is not None:
        _check_kind(given, streaming=streaming)
    values = parse_values(given, _OPTIONS)
    connection = take_connection(values, given)
    _check_exactly_one(given, ("subscribe", "topic", "subscribePattern", "assign"))
    check_at_most_one(given, ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"))
    check_at_most_one(given, ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"))
    _check_expression(values, values.pop("expression_type", "tag"), given)
    _check_least(values, given)
    if streaming is False:
        _check_order(values.get("start"), values.get("end"))
    values.setdefault("start", Position(word=LATEST if streaming else EARLIEST))
    return _with_properties_column(SourceOptions(connection, **values), columns_given="columns" in given)


def _check_kind(given: Mapping[str, str], *, streaming: bool) -> None:
    refused = _BATCH_ONLY if streaming else _STREAM_ONLY
    for name in given:
        if name in refused:
            raise OptionError(f"option {name} is for {'batch' if streaming else 'streaming'} queries only")


def _check_exactly_one(given: Mapping[str, str], names: tuple[str, ...]) -> None:
    if not any(name in given for name in names):
        raise OptionError("one of the options subscribe, subscribePattern or assign is required")
    check_at_most_one(given, names)


def _with_properties_column(options: SourceOptions, *, columns_given: bool) -> SourceOptions:
    wanted = options.properties_as is not PropertiesAs.NONE
    has_column = PROPERTIES_COLUMN in options.columns
    if has_column and not wanted:
        raise OptionError("option columns contains 'properties': set includeProperties to user, map or raw")
    if wanted and not has_column and columns_given:
        raise OptionError("option includeProperties is set, but option columns does not contain 'properties'")
    if not wanted or has_column:
        return options
    return replace(options, columns=(*options.columns, PROPERTIES_COLUMN))


def _check_expression(values: dict[str, Any], kind: str, given: Mapping[str, str]) -> None:
    text = values.get("expression")
    if kind == "sql92":
        if text is None:
            raise OptionError("option expressionType is sql92: set the filter in option subExpression")
        try:
            values["expression"] = Sql(text)
        except MessageError as error:
            raise OptionError(f"option subExpression: {error}") from error
    elif text is not None:
        try:
            values["expression"] = _tag_expression(text)
        except (MessageError, ValueError) as error:
            raise OptionError(f"option subExpression: {error}") from error


def _check_least(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    least, most = values.get("min_offsets_per_trigger"), values.get("max_offsets_per_trigger")
    if least is None and "maxTriggerDelay" in given:
        raise OptionError("option maxTriggerDelay needs minOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"option minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, {most}")


def _check_order(start: Position | None, end: Position | None) -> None:
    """Check that a batch can contain messages.

    Raises:
        OptionError: It starts at the latest offset or ends at the earliest, or its start is after its end.
    """
    if start is not None and start.word == LATEST:
        raise OptionError("option startingOffsets: a batch query that starts at the latest offset reads nothing")
    if end is not None and end.word == EARLIEST:
        raise OptionError("option endingOffsets: a batch query that ends at the earliest offset reads nothing")
    if start is None or end is None:
        return
    if start.timestamp_ms is not None and end.timestamp_ms is not None and start.timestamp_ms > end.timestamp_ms:
        raise OptionError(f"the start, {start.timestamp_ms} ms, is after the end, {end.timestamp_ms} ms")
    _check_queue_order(start.offsets or {}, end.offsets or {})
    _check_queue_order(start.timestamps or {}, end.timestamps or {})


def _check_queue_order(start: QueueOffsets, end: QueueOffsets) -> None:
    for queue in sorted(start.keys() & end.keys()):
        if start[queue] > end[queue] >= 0:  # a negative end is earliest or latest
            raise OptionError(f"{queue}: the start, {start[queue]}, is after the end, {end[queue]}")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError("names nothing")
    return names


def _topics(text: str) -> tuple[str, ...]:
    topics = _names(text)
    for topic in topics:
        _check_readable(topic)
    return topics


def _queues(text: str) -> tuple[MessageQueue, ...]:
    queues = tuple(parse_assignment(text))
    for queue in queues:
        _check_readable(queue.topic)
    return queues


def _check_readable(topic: str) -> None:
    """Check a topic to read. Retry topics, dead letters and traces can be read.

    Raises:
        ValueError: The topic never has messages that brokers return.
        MessageError: The name is invalid.
    """
    check_topic(topic)
    if topic == AUTO_CREATE_TOPIC or topic in HIDDEN_TOPICS:
        raise ValueError(f"topic {topic} belongs to the brokers, and has no messages to read")


def _own_group(text: str) -> str:
    group = group_name(text)
    if is_system_group(group):
        raise ValueError(f"group {group} belongs to brokers or tools: name a group of the query's own")
    return group


def _columns(text: str) -> tuple[str, ...]:
    names = _names(text)
    for name in names:
        if name not in KNOWN_COLUMNS:
            raise ValueError(f"there is no column {name!r}{nearest(name, KNOWN_COLUMNS)}")
    return names


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


def _tag_expression(text: str) -> str:
    """Validate a tag expression. Raises `ValueError` for a blank one, for a condition on properties, and for tags
    together with `*`."""
    if not text.strip():
        raise ValueError("it is blank; * reads all messages")
    tags = [tag.strip() for tag in text.split(TAG_SEPARATOR)]
    if SUBSCRIBE_ALL in tags and len(tags) > 1:
        raise ValueError("* reads all messages, so it cannot be combined with tags")
    if (condition := find_condition(text)) is not None:
        what = "tags can only be combined with ||"
        raise ValueError(f"{condition!r:.40} is not a tag: {what}; a filter on properties needs expressionType=sql92")
    return text.strip()


def _position(text: str) -> Position:
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return Position(word=word)
    if not text.lstrip().startswith("{"):
        raise OffsetFormatError(f"must be earliest, latest or JSON, not {text!r:.40}")
    given = parse_offsets(text)
    return Position(offsets=given.queues, topic_ids=given.topic_ids, since_ms=given.since_ms)


def _timestamp(text: str) -> Position:
    return Position(timestamp_ms=at_least(0)(text))


def _timestamps(text: str) -> Position:
    return Position(timestamps=parse_timestamps(text))


def _properties_as(text: str) -> PropertiesAs:
    try:
        return PropertiesAs(text.strip().lower())
    except ValueError:
        raise ValueError(f"must be none, user, map or raw, not {text!r:.40}") from None


_OPTIONS: OptionTable = {
    **CONNECTION_OPTIONS,
    "subscribe": ("topics", _topics),
    "topic": ("topics", _topics),
    "subscribePattern": ("topic_pattern", _pattern),
    "assign": ("queues", _queues),
    "subExpression": ("expression", str),
    "expressionType": ("expression_type", one_of("tag", "sql92")),
    "startingOffsets": ("start", _position),
    "startingTimestamp": ("start", _timestamp),
    "startingOffsetsByTimestamp": ("start", _timestamps),
    "endingOffsets": ("end", _position),
    "endingOffsetsByTimestamp": ("end", _timestamps),
    "endingTimestamp": ("end", _timestamp),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", at_least(1)),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", amount),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", at_least(1)),
    "maxTriggerDelay": ("max_trigger_delay_s", duration),
    "minPartitions": ("min_partitions", at_least(1)),
    "maxRowsPerPartition": ("max_rows_per_partition", at_least(1)),
    "failOnDataLoss": ("fail_on_data_loss", boolean),
    "failOnUnavailableBroker": ("fail_on_unavailable_broker", boolean),
    "failOnDamage": ("fail_on_damage", boolean),
    "columns": ("columns", _columns),
    "includeProperties": ("properties_as", _properties_as),
    "consumerGroup": ("consumer_group", _own_group),
    "arrowBatchBytes": ("arrow_batch_bytes", size()),
    "pullBytes": ("pull_bytes", size()),
    "verifyCrc": ("verify_crc", boolean),
}
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "failOnUnavailableBroker")
_STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "consumerGroup",
)
