"""Columns of the data source, with their Spark and Arrow types.

| column | Spark type | content |
|---|---|---|
| key | string | first key of the message; null without keys |
| value | binary | the body, decompressed |
| topic | string | |
| brokerName | string | |
| queueId | int | |
| queueOffset | bigint | offset in the queue; identifies a message together with topic, brokerName and queueId |
| storeTimestamp | timestamp | time at which the broker stored the message |
| bornTimestamp | timestamp | time at which the producer created the message |
| tags | string | null without a tag |
| keys | array<string> | all keys in their original order; empty without keys |
| msgId | string | the producer's unique id, or else the id derived from the broker's address and the log offset |
| properties | map<string,string> or binary | only with option includeProperties |

Spark rejects Arrow batches whose schema differs from its own conversion of the Spark schema, so both types are defined
here together. `decode` fills the columns.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


class PropertiesAs(enum.Enum):
    """Type of the column `properties`."""

    NONE = "none"
    """The column does not exist."""
    USER = "user"
    """map<string,string> of the properties that the application has set, without tag, keys and those of the system."""
    MAP = "map"
    """map<string,string> of all properties."""
    RAW = "raw"
    """The stored bytes: name 0x01 value 0x02, repeated."""


PROPERTIES_COLUMN = "properties"

_ARROW_TIMESTAMP = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    "key": (StringType(), pa.string()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "brokerName": (StringType(), pa.string()),
    "queueId": (IntegerType(), pa.int32()),
    "queueOffset": (LongType(), pa.int64()),
    "storeTimestamp": (TimestampType(), _ARROW_TIMESTAMP),
    "bornTimestamp": (TimestampType(), _ARROW_TIMESTAMP),
    "tags": (StringType(), pa.string()),
    "keys": (ArrayType(StringType()), pa.list_(pa.field("element", pa.string()))),
    "msgId": (StringType(), pa.string()),
}
_PROPERTIES_MAP = (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string()))
_PROPERTIES_TYPES: dict[PropertiesAs, tuple[DataType, pa.DataType]] = {
    PropertiesAs.USER: _PROPERTIES_MAP,
    PropertiesAs.MAP: _PROPERTIES_MAP,
    PropertiesAs.RAW: (BinaryType(), pa.binary()),
}

DEFAULT_COLUMNS = tuple(_TYPES)
KNOWN_COLUMNS = (*DEFAULT_COLUMNS, PROPERTIES_COLUMN)


def spark_schema(columns: Iterable[str], properties_as: PropertiesAs) -> StructType:
    """Return the Spark schema of these columns."""
    return StructType([StructField(name, _types(name, properties_as)[0]) for name in columns])


def arrow_schema(columns: Iterable[str], properties_as: PropertiesAs) -> pa.Schema:
    """Return the Arrow schema that Spark expects for these columns."""
    return pa.schema([pa.field(name, _types(name, properties_as)[1]) for name in columns])


def _types(name: str, properties_as: PropertiesAs) -> tuple[DataType, pa.DataType]:
    return _PROPERTIES_TYPES[properties_as] if name == PROPERTIES_COLUMN else _TYPES[name]
