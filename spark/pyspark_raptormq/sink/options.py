"""The options of the sink, `df.write` and `df.writeStream`.

Neighbours: `option_parsing` reads the texts, `writer` takes the finished `SinkOptions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_raptormq.connection import CONNECTION_OPTIONS, Connection, take_connection
from pyspark_raptormq.errors import OptionError
from pyspark_raptormq.option_parsing import (
    OptionTable,
    at_least,
    boolean,
    canonical_names,
    group_name,
    one_of,
    parse_values,
    size,
    text_of,
)
from raptormq.client import Compression, ProducerConfig
from raptormq.errors import ConfigError
from raptormq.protocol.topic_names import check_topic

_RETRIES = 20
"""Attempts after the first at a broker that refuses for a reason that may pass: about 8 s. Attempts that find no broker
are not counted; `retryTimeoutMs` ends those."""
_COMPRESS_OVER_BYTES = 4096
_SPARKS_OWN = ("checkpointlocation",)
"""Options that Spark hands on to every sink, lower case."""


@dataclass(frozen=True)
class SinkOptions:
    """What the options of one `save()` or `start()` say."""

    connection: Connection
    """How to reach the brokers."""
    topic: str | None = None
    """Option `topic`: where all rows go, whatever column topic says, as with Spark's Kafka connector."""
    producer_group: str = "spark"
    """Option `producerGroup`."""
    acks: str = "all"
    """Option `acks`: `all` fails a task when a broker stored a message less safely than it is configured for (no flush
    or no slave in time); `1` takes what one broker has stored for written."""
    max_in_flight_bytes: int = 8 * 1024 * 1024
    """Option `maxInFlightBytes`: bytes of messages that a task may have sent without an acknowledgement."""
    max_message_bytes: int = 4 * 1024 * 1024
    """Option `maxMessageBytes`: the largest body; the brokers' `maxMessageSize`."""
    batch_max_bytes: int = 128 * 1024
    """Option `batchMaxBytes`: size at which a batch of messages for a queue leaves."""
    batch_max_delay_ms: int = 5
    """Option `batchMaxDelayMs`: age at which it leaves, however small."""
    compression: str = "zlib"
    """Option `compression`: `none`, `zlib`, `lz4` or `zstd`, of bodies of 4 KiB and more that travel alone."""
    compress_batches: bool = False
    """Option `compressBatches`: batches are compressed too, as a whole on topics of queue type BatchCQ."""
    encrypt: bool = False
    """Option `encrypt`: bodies are encrypted with the current key of `encryptionKeyFile` or `encryptionKeyFolder`."""

    def producer_config(self) -> ProducerConfig:
        """Return how a task's producer sends.

        Raises:
            ConfigError: the options contradict each other.
        """
        compresses = self.compression != "none"
        return ProducerConfig(
            send_timeout=self.connection.retry_timeout_s,
            retries=_RETRIES,
            auto_batch=True,
            batch_max_bytes=min(self.batch_max_bytes, self.max_message_bytes),
            batch_max_delay_ms=self.batch_max_delay_ms,
            max_message_bytes=self.max_message_bytes,
            # More than the task may have under way: beyond it the producer would send messages one by one.
            total_batch_max_bytes=4 * self.max_in_flight_bytes,
            compress_over_bytes=_COMPRESS_OVER_BYTES if compresses else 0,
            compression=Compression[self.compression.upper()] if compresses else Compression.ZLIB,
            compress_batches=self.compress_batches,
            encrypt=self.encrypt,
        )


def parse_sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Return the checked options of a batch or streaming write.

    Raises:
        OptionError: an option is unknown, missing, malformed or contradicts another one.
    """
    given = canonical_names(raw, _OPTIONS, _SPARKS_OWN)
    values: dict[str, Any] = parse_values(given, _OPTIONS)
    connection = take_connection(values, given)
    options = SinkOptions(connection, **values)
    if options.compress_batches and options.compression == "none":
        raise OptionError("option compressBatches is true, but option compression is none")
    try:
        options.producer_config()
    except ConfigError as error:
        raise OptionError(str(error)) from error
    return options


def _topic(text: str) -> str:
    topic = text_of("topic")(text)
    check_topic(topic)
    return topic


_OPTIONS: OptionTable = {
    **CONNECTION_OPTIONS,
    "topic": ("topic", _topic),
    "producerGroup": ("producer_group", group_name),
    "acks": ("acks", one_of("all", "1")),
    "maxInFlightBytes": ("max_in_flight_bytes", size),
    "maxMessageBytes": ("max_message_bytes", size),
    "batchMaxBytes": ("batch_max_bytes", size),
    "batchMaxDelayMs": ("batch_max_delay_ms", at_least(1)),
    "compression": ("compression", one_of("none", "zlib", "lz4", "zstd")),
    "compressBatches": ("compress_batches", boolean),
    "encrypt": ("encrypt", boolean),
}
