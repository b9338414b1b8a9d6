"""The columns of `format("raptormq")`, once for Spark and once for Arrow.

| column | Spark type | what |
|---|---|---|
| key | string | first of the message's keys; null when there is none |
| value | binary | the body, decompressed |
| topic | string | |
| brokerName | string | |
| queueId | int | |
| queueOffset | bigint | position in the queue; with topic, brokerName and queueId the identity of a message |
| storeTimestamp | timestamp | when the broker stored it |
| bornTimestamp | timestamp | when the producer made it |
| tags | string | null when there is none |
| keys | array<string> | all keys, in the order given; empty when there are none |
| msgId | string | the producer's unique id, else the id that the broker derives from address and position |
| properties | binary or map<string,string> | only with option includeProperties |

Spark accepts Arrow batches only when their schema equals its own translation to the letter; both are kept here, side by
side.
Neighbour: `decode` fills them.
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
    """What the column `properties` holds."""

    NONE = "none"
    """There is no such column."""
    RAW = "raw"
    """The stored text: name 0x01 value 0x02, repeated."""
    MAP = "map"
    """A map of texts."""


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
_PROPERTIES_TYPES: dict[PropertiesAs, tuple[DataType, pa.DataType]] = {
    PropertiesAs.RAW: (BinaryType(), pa.binary()),
    PropertiesAs.MAP: (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string())),
}

DEFAULT_COLUMNS = tuple(_TYPES)
KNOWN_COLUMNS = (*DEFAULT_COLUMNS, PROPERTIES_COLUMN)


def spark_schema(columns: Iterable[str], properties_as: PropertiesAs) -> StructType:
    """Return Spark's schema of these columns."""
    return StructType([StructField(name, _types(name, properties_as)[0]) for name in columns])


def arrow_schema(columns: Iterable[str], properties_as: PropertiesAs) -> pa.Schema:
    """Return the Arrow schema that Spark expects for them."""
    return pa.schema([pa.field(name, _types(name, properties_as)[1]) for name in columns])


def _types(name: str, properties_as: PropertiesAs) -> tuple[DataType, pa.DataType]:
    return _PROPERTIES_TYPES[properties_as] if name == PROPERTIES_COLUMN else _TYPES[name]
