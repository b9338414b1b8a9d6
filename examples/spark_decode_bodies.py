"""Bodies of messages as columns, with Spark's own functions: JSON, Avro and Protobuf.

    spark-submit [--packages org.apache.spark:spark-avro_2.13:4.3.0,org.apache.spark:spark-protobuf_2.13:4.3.0] \\
        spark_decode_bodies.py NAME_SERVERS TOPIC json|avro|protobuf

The connector hands over bodies as they were sent. What they hold, the producer knows; Spark turns them into columns in
the JVM, without a row of Python. JSON needs nothing; Avro and Protobuf need Spark's packages.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

SCHEMA = "origin string, delay long, distance long"
AVRO_SCHEMA = """{"type": "record", "name": "Flight", "fields": [
    {"name": "origin", "type": "string"}, {"name": "delay", "type": "long"}, {"name": "distance", "type": "long"}]}"""


def from_json(value: Column) -> Column:
    """Return the column of a JSON body; one that is no such JSON is null."""
    return F.from_json(value.cast("string"), SCHEMA)


def from_avro(value: Column) -> Column:
    """Return the column of an Avro body without a header; one that is damaged is null."""
    from pyspark.sql.avro.functions import from_avro

    return from_avro(value, AVRO_SCHEMA, {"mode": "PERMISSIVE"})


def from_protobuf(value: Column) -> Column:
    """Return the column of a Protobuf body; `flight.desc` is what `protoc --descriptor_set_out` writes."""
    from pyspark.sql.protobuf.functions import from_protobuf

    descriptor = Path("flight.desc").read_bytes()
    return from_protobuf(value, "Flight", options={"mode": "PERMISSIVE"}, binaryDescriptorSet=descriptor)


DECODERS = {"json": from_json, "avro": from_avro, "protobuf": from_protobuf}


def flights(session: SparkSession, name_servers: str, topic: str, kind: str) -> DataFrame:
    """Return the flights of a topic, and where each stands; those that cannot be decoded have nulls."""
    messages = (
        session.read.format("raptormq")
        .option("nameServer", name_servers)
        .option("subscribe", topic)
        .option("columns", "key,value,brokerName,queueId,queueOffset")
        .load()
    )
    decoded = messages.withColumn("flight", DECODERS[kind](F.col("value")))
    return decoded.select("key", "brokerName", "queueId", "queueOffset", "flight.*")


def main() -> None:
    """Print the mean delay by origin, and how many bodies could not be decoded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name_servers", help="host:port of the name servers, separated by ';'")
    parser.add_argument("topic")
    parser.add_argument("kind", choices=sorted(DECODERS))
    arguments = parser.parse_args()
    session = SparkSession.builder.appName("decode").getOrCreate()
    table = flights(session, arguments.name_servers, arguments.topic, arguments.kind)
    table.where("origin IS NOT NULL").groupBy("origin").agg(F.avg("delay"), F.count("*")).orderBy("origin").show()
    print("not decoded:", table.where("origin IS NULL").count())
    session.stop()


if __name__ == "__main__":
    main()
