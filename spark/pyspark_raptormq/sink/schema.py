"""Which columns the sink takes, looked at on the driver before anything is sent. Pure.

| column | Spark type | what |
|---|---|---|
| value (or body) | binary or string | the body; strings in UTF-8; required |
| topic | string | where the row goes; required unless option topic says it |
| tags | string | the one word that brokers filter by |
| keys | array<string>, or string of words | what the message can be found by |
| shardingKey | string | rows with the same one go to the same queue, the one that Java's hash selector chooses |
| brokerName, queueId | string, int | this very queue; brokerName only where several brokers have the topic |
| deliverTime | timestamp | when consumers get it; a time that has passed is no delay |
| properties | map<string,string> | the application's own; a null value leaves its property out |

A null is "does not have it" in every column but value and topic, where the row is refused.
Neighbour: `rows`, which turns the columns into messages.
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
    """Look at the columns of a DataFrame that is to be written.

    Raises:
        SchemaError: one is unknown, has another type, is missing or contradicts another one.
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
        both = "columns value and body are the same thing: keep one"
        raise SchemaError(both if "value" in names else "column value is missing: it is the body of the messages")
    if not topic_given and "topic" not in names:
        raise SchemaError("nothing says where the rows go: set option topic, or add a column topic")
    if "queueId" in names and "shardingKey" in names:
        raise SchemaError("columns queueId and shardingKey both choose the queue: keep one")
    if "brokerName" in names and "queueId" not in names:
        raise SchemaError("column brokerName needs column queueId, or drop it to let the rows go to any queue")


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
    "key": "rename it to keys (what the message is found by) or shardingKey (what chooses its queue)",
    "queueOffset": _DROP,
    "storeTimestamp": _DROP,
    "bornTimestamp": _DROP,
    "msgId": _DROP,
    "headers": "rename it to properties, a map<string,string>",
    "partition": "rename it to queueId",
}
"""What to do with columns that reading gives, or that Spark's Kafka connector takes."""
