"""Converts message bodies into columns with Spark's functions for JSON, Avro and Protobuf.

    spark-submit [--packages org.apache.spark:spark-avro_2.13:4.3.0,org.apache.spark:spark-protobuf_2.13:4.3.0] \\
        spark_decode_bodies.py NAME_SERVERS TOPIC json|avro|protobuf

The connector returns bodies unchanged. Their format depends on the producer. Spark's functions run in the JVM,
without Python code per row. JSON needs no package; Avro and Protobuf need the packages above.
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
    """Return the decoded column of a JSON body; null for an invalid body."""
    return F.from_json(value.cast("string"), SCHEMA)


def from_avro(value: Column) -> Column:
    """Return the decoded column of an Avro body without a header; null for a damaged body."""
    from pyspark.sql.avro.functions import from_avro

    return from_avro(value, AVRO_SCHEMA, {"mode": "PERMISSIVE"})


def from_protobuf(value: Column) -> Column:
    """Return the decoded column of a Protobuf body. `flight.desc` is created with `protoc --descriptor_set_out`."""
    from pyspark.sql.protobuf.functions import from_protobuf

    descriptor = Path("flight.desc").read_bytes()
    return from_protobuf(value, "Flight", options={"mode": "PERMISSIVE"}, binaryDescriptorSet=descriptor)


DECODERS = {"json": from_json, "avro": from_avro, "protobuf": from_protobuf}


def flights(session: SparkSession, name_servers: str, topic: str, kind: str) -> DataFrame:
    """Return the flights of a topic with their positions. Flights that cannot be decoded are null."""
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
    """Print the mean delay per origin and the number of bodies that cannot be decoded."""
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
