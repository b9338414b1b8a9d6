"""Columns that the sink accepts. The driver validates them before anything is sent. No I/O.

| column | Spark type | content |
|---|---|---|
| value (or body) | binary or string | the body; strings are encoded as UTF-8; required |
| topic | string | topic of the message; required unless option topic is set |
| tags | string | the tag, by which brokers filter |
| keys | array<string>, or string with spaces as separators | keys for message lookups |
| shardingKey | string | rows with equal keys go to the same queue, the same as with Java's hash selector |
| brokerName, queueId | string, int | explicit queue; brokerName is needed only if several brokers have the topic |
| deliverTime | timestamp | delivery time; a time in the past means no delay |
| properties | map<string,string> | properties of the application; entries with a null value are omitted |

A null means that the message does not have the field. A null in column value or topic is an error.
`rows` converts the columns into messages.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pyspark_raptormq.errors import SchemaError
from pyspark_raptormq.option_parsing import nearest


def check_schema(schema: StructType, *, topic_given: bool) -> None:
    """Validate the columns of a DataFrame to write.

    Raises:
        SchemaError: A column is unknown, has a wrong type, is missing or contradicts another column.
    """
    names = schema.names
    for field in schema:
        if field.name not in _COLUMNS:
            raise SchemaError(f"column {field.name} cannot be written{_hint(field.name)}")
        takes, types = _COLUMNS[field.name]
        if not takes(field.dataType):
            raise SchemaError(f"column {field.name} must be {types}, not {field.dataType.simpleString()}: cast it")
        if names.count(field.name) > 1:
            raise SchemaError(f"there are {names.count(field.name)} columns named {field.name}: keep one")
    if ("value" in names) == ("body" in names):
        both = "columns value and body have the same meaning: keep one"
        raise SchemaError(both if "value" in names else "column value is missing: it is the body of the messages")
    if not topic_given and "topic" not in names:
        raise SchemaError("the topic of the rows is missing: set option topic, or add a column topic")
    if "queueId" in names and "shardingKey" in names:
        raise SchemaError("columns queueId and shardingKey both select the queue: keep one")
    if "brokerName" in names and "queueId" not in names:
        raise SchemaError("column brokerName requires column queueId; drop it to send the rows to any queue")


def _hint(name: str) -> str:
    hint = _FROM_READING.get(name)
    return f"; {hint}" if hint else nearest(name, _COLUMNS)


def _is(*types: type[DataType]) -> Callable[[DataType], bool]:
    return lambda given: isinstance(given, types)


def _is_keys(given: DataType) -> bool:
    return isinstance(given, StringType) or (isinstance(given, ArrayType) and isinstance(given.elementType, StringType))


def _is_properties(given: DataType) -> bool:
    return (
        isinstance(given, MapType) and isinstance(given.keyType, StringType) and isinstance(given.valueType, StringType)
    )


_COLUMNS: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "value": (_is(BinaryType, StringType), "binary or string"),
    "body": (_is(BinaryType, StringType), "binary or string"),
    "topic": (_is(StringType), "string"),
    "tags": (_is(StringType), "string"),
    "keys": (_is_keys, "array<string> or string"),
    "shardingKey": (_is(StringType), "string"),
    "brokerName": (_is(StringType), "string"),
    "queueId": (_is(IntegerType), "int"),
    "deliverTime": (_is(TimestampType), "timestamp"),
    "properties": (_is_properties, "map<string,string>"),
}
_DROP = "the broker assigns it: drop it, or select the columns to write"
_FROM_READING = {
    "key": "rename it to keys (for message lookups) or shardingKey (selects the queue)",
    "queueOffset": _DROP,
    "storeTimestamp": _DROP,
    "bornTimestamp": _DROP,
    "msgId": _DROP,
    "headers": "rename it to properties, a map<string,string>",
    "partition": "rename it to queueId",
}
"""Hints for columns that only reading returns, or that Spark's Kafka connector accepts."""
