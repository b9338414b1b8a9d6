"""The options of the source, `spark.read` and `spark.readStream`: one declaration per option, checked before anything
is asked of a broker.

Names are those of Spark's Kafka connector where it has the same thing, and case does not matter.
Neighbours: `option_parsing` reads the texts, `source` hands in Spark's map, everything else takes the finished
`SourceOptions`.
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
from raptormq.protocol.tags import find_condition, parse_expression

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True)
class Position:
    """Where reading starts or ends: a word, offsets or a time."""

    word: str | None = None
    """`earliest` or `latest`."""
    offsets: QueueOffsets | None = None
    """Per queue; values may be `offsets.EARLIEST` or `offsets.LATEST`."""
    topic_ids: TopicIds = field(default_factory=dict)
    """Of which topics the offsets are, where the JSON says it."""
    timestamp_ms: int | None = None
    """Milliseconds since 1970: the first message stored at or after it."""
    timestamps: QueueOffsets | None = None
    """The same per queue."""


@dataclass(frozen=True)
class SourceOptions:
    """What the options of one `load()` say."""

    connection: Connection
    """How to reach the brokers."""
    topics: tuple[str, ...] = ()
    """Option `subscribe` (or `topic`): topics separated by commas."""
    topic_pattern: str | None = None
    """Option `subscribePattern`: Python regular expression for whole topic names, looked up again for every batch."""
    queues: tuple[MessageQueue, ...] = ()
    """Option `assign`: `{"topic": {"broker-a": [0, 1]}}`."""
    expression: str | Sql = "*"
    """Options `subExpression` and `expressionType`: `*`, tags separated by `||`, or a filter by properties in SQL92;
    brokers filter, so other messages never travel.
    """
    start: Position = Position(word=EARLIEST)
    """Options `startingOffsets` (earliest, latest or JSON), `startingTimestamp` and `startingOffsetsByTimestamp`
    (JSON); default earliest for batch, latest for streams.
    """
    end: Position = Position(word=LATEST)
    """Options `endingOffsets`, `endingTimestamp` and `endingOffsetsByTimestamp`, batch only."""
    max_offsets_per_trigger: int | None = None
    """Option `maxOffsetsPerTrigger`, streams only: offsets per micro-batch over all queues."""
    max_bytes_per_trigger: int | None = None
    """Option `maxBytesPerTrigger`, streams only: stored bytes per micro-batch over all queues, about."""
    min_offsets_per_trigger: int | None = None
    """Option `minOffsetsPerTrigger`, streams only: wait for so many offsets over all queues, `maxTriggerDelay` at most.
    """
    max_trigger_delay_s: float = 900.0
    """Option `maxTriggerDelay`: how long a micro-batch may wait for `minOffsetsPerTrigger`."""
    min_partitions: int | None = None
    """Option `minPartitions`: cut queues until there are this many tasks."""
    max_rows_per_partition: int | None = None
    """Option `maxRowsPerPartition`: cut queues so that no task reads more offsets than this."""
    fail_on_data_loss: bool = True
    """Option `failOnDataLoss`: whether offsets that are gone end the query, or are left out with a warning."""
    fail_on_damage: bool = True
    """Option `failOnDamage`: whether damaged messages and batches end the query, or are left out with a warning."""
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    """Option `columns`: names separated by commas; fewer columns are faster, for Spark does not prune Python sources.
    """
    properties_as: PropertiesAs = PropertiesAs.NONE
    """Option `includeProperties`: none, raw (binary, as stored) or map (map<string,string>)."""
    consumer_group: str | None = None
    """Option `consumerGroup`, streams only: a group whose offsets are set to the query's progress, for tools to see;
    never read.
    """
    arrow_batch_bytes: int = 4 * 1024 * 1024
    """Option `arrowBatchBytes`: stored bytes per Arrow batch; about 4 MiB was the fastest."""
    pull_bytes: int = 1024 * 1024
    """Option `pullBytes`: most bytes to ask for in one pull."""
    verify_crc: bool = True
    """Option `verifyCrc`: compare the checksum of every body."""

    @property
    def tags(self) -> frozenset[str]:
        """The wanted tags; empty means all messages."""
        return frozenset() if isinstance(self.expression, Sql) else frozenset(parse_expression(self.expression))


def parse_source_options(raw: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """Return the checked options of a batch or of a streaming query; with `None` of either.

    Raises:
        OptionError: an option is unknown, missing, malformed, of the other kind of query or contradicts another one.
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
    values.setdefault("start", Position(word=LATEST if streaming else EARLIEST))
    return _with_properties_column(SourceOptions(connection, **values), columns_given="columns" in given)


def _check_kind(given: Mapping[str, str], *, streaming: bool) -> None:
    refused = _BATCH_ONLY if streaming else _STREAM_ONLY
    for name in given:
        if name in refused:
            raise OptionError(f"option {name} is for {'batch' if streaming else 'streaming'} queries only")


def _check_exactly_one(given: Mapping[str, str], names: tuple[str, ...]) -> None:
    if not any(name in given for name in names):
        raise OptionError("say what to read: one of the options subscribe, subscribePattern or assign")
    check_at_most_one(given, names)


def _with_properties_column(options: SourceOptions, *, columns_given: bool) -> SourceOptions:
    wanted = options.properties_as is not PropertiesAs.NONE
    has_column = PROPERTIES_COLUMN in options.columns
    if has_column and not wanted:
        raise OptionError("option columns asks for 'properties': set includeProperties to raw or map")
    if wanted and not has_column and columns_given:
        raise OptionError("option includeProperties is set, but option columns leaves 'properties' out")
    if not wanted or has_column:
        return options
    return replace(options, columns=(*options.columns, PROPERTIES_COLUMN))


def _check_expression(values: dict[str, Any], kind: str, given: Mapping[str, str]) -> None:
    text = values.get("expression")
    if kind == "sql92":
        if text is None:
            raise OptionError("option expressionType is sql92: say the filter in option subExpression")
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


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError("names nothing")
    return names


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
    """Return an expression of tags; raises `ValueError` for what cannot match any."""
    if (condition := find_condition(text)) is not None:
        what = "tags are separated by ||, and nothing else joins them"
        raise ValueError(f"{condition!r:.40} is no tag: {what}; a filter by properties needs expressionType=sql92")
    return text.strip() or "*"


def _position(text: str) -> Position:
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return Position(word=word)
    if not text.lstrip().startswith("{"):
        raise OffsetFormatError(f"must be earliest, latest or JSON, not {text!r:.40}")
    offsets, topic_ids = parse_offsets(text)
    return Position(offsets=offsets, topic_ids=topic_ids)


def _timestamp(text: str) -> Position:
    return Position(timestamp_ms=at_least(0)(text))


def _timestamps(text: str) -> Position:
    return Position(timestamps=parse_timestamps(text))


def _properties_as(text: str) -> PropertiesAs:
    try:
        return PropertiesAs(text.strip().lower())
    except ValueError:
        raise ValueError(f"must be none, raw or map, not {text!r:.40}") from None


_OPTIONS: OptionTable = {
    **CONNECTION_OPTIONS,
    "subscribe": ("topics", _names),
    "topic": ("topics", _names),
    "subscribePattern": ("topic_pattern", _pattern),
    "assign": ("queues", lambda text: tuple(parse_assignment(text))),
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
    "failOnDamage": ("fail_on_damage", boolean),
    "columns": ("columns", _columns),
    "includeProperties": ("properties_as", _properties_as),
    "consumerGroup": ("consumer_group", group_name),
    "arrowBatchBytes": ("arrow_batch_bytes", size),
    "pullBytes": ("pull_bytes", size),
    "verifyCrc": ("verify_crc", boolean),
}
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "consumerGroup",
)
