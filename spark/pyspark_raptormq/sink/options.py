"""Options of the sink, for `df.write` and `df.writeStream`."""

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
from pyspark_raptormq.sink.row_rules import topic_fault
from raptormq.client import Compression, ProducerConfig

_RETRIES = 20
"""Maximum retries after temporary errors of a broker, about 8 s. Attempts that reach no broker are not counted; they
end with `retryTimeoutMs`."""
_COMPRESS_OVER_BYTES = 4096
_LARGEST_BATCH = 2 * 1024 * 1024
_LONGEST_DELAY_MS = 30_000
_SPARKS_OWN = ("checkpointlocation", "queryname")
"""Options that Spark passes to every sink, in lower case."""


@dataclass(frozen=True)
class SinkOptions:
    """Options of one `save()` or `start()`."""

    connection: Connection
    """Connection options."""
    topic: str | None = None
    """Option `topic`: topic of all rows; overrides column topic, as in Spark's Kafka connector."""
    producer_group: str = "spark"
    """Option `producerGroup`."""
    acks: str = "all"
    """Option `acks`: with `all` a task fails if a broker stored a message less safely than configured (flush or
    replication timed out); with `1` storage by one broker is sufficient."""
    max_in_flight_bytes: int = 8 * 1024 * 1024
    """Option `maxInFlightBytes`: maximum bytes of unacknowledged messages per task."""
    max_message_bytes: int = 4 * 1024 * 1024
    """Option `maxMessageBytes`: maximum size of a body; should equal the brokers' `maxMessageSize`."""
    batch_max_bytes: int = 128 * 1024
    """Option `batchMaxBytes`: size in bytes at which a batch is sent."""
    batch_max_delay_ms: int = 5
    """Option `batchMaxDelayMs`: age in ms at which a batch is sent, regardless of its size."""
    compression: str = "zlib"
    """Option `compression`: `none`, `zlib`, `lz4` or `zstd`, for bodies of at least 4 KiB that are not in a batch."""
    compress_batches: bool = False
    """Option `compressBatches`: batches are compressed too, as a whole on topics of queue type BatchCQ."""
    exactly_once: bool = False
    """Option `exactlyOnce`: tasks stage their rows, and the driver's commit publishes them."""
    coordinator: str | None = None
    """Option `coordinator`: the broker group that commits a batch first and stores the decision."""
    fail_on_different_replay: bool = True
    """Option `failOnDifferentReplay`: whether a batch fails that was published before with another number of rows.
    Otherwise the published rows are accepted with a warning."""
    encrypt: bool = False
    """Option `encrypt`: encrypt bodies with the current key of `encryptionKeyFile` or `encryptionKeyFolder`."""

    def producer_config(self) -> ProducerConfig:
        """Return the configuration of the producer."""
        compresses = self.compression != "none"
        return ProducerConfig(
            send_timeout=self.connection.retry_timeout_s,
            retries=_RETRIES,
            auto_batch=True,
            batch_max_bytes=min(self.batch_max_bytes, self.max_message_bytes),
            batch_max_delay_ms=self.batch_max_delay_ms,
            max_message_bytes=self.max_message_bytes,
            # Larger than the task's limit, because beyond this value the producer does not batch messages.
            total_batch_max_bytes=4 * self.max_in_flight_bytes,
            compress_over_bytes=_COMPRESS_OVER_BYTES if compresses else 0,
            compression=Compression[self.compression.upper()] if compresses else Compression.ZLIB,
            compress_batches=self.compress_batches,
            encrypt=self.encrypt,
        )


def parse_sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Parse and validate the options of a write.

    Raises:
        OptionError: An option is unknown, missing, malformed or contradicts another option.
    """
    given = canonical_names(raw, _OPTIONS, _SPARKS_OWN)
    values: dict[str, Any] = parse_values(given, _OPTIONS)
    connection = take_connection(values, given)
    options = SinkOptions(connection, **values)
    if options.compress_batches and options.compression == "none":
        raise OptionError("option compressBatches is true, but option compression is none")
    _check_exactly_once(options, given)
    return options


def _check_exactly_once(options: SinkOptions, given: Mapping[str, str]) -> None:
    if not options.exactly_once:
        for name in ("coordinator", "failOnDifferentReplay"):
            if name in given:
                raise OptionError(f"option {name} requires exactlyOnce: set exactlyOnce to true, or remove {name}")
        return
    for name, is_set in (
        ("acks=1", options.acks == "1"),
        ("compressBatches", options.compress_batches),
        ("encrypt", options.encrypt),
    ):
        if is_set:
            raise OptionError(f"exactlyOnce cannot be combined with {name}: remove one of them")


def _topic(text: str) -> str:
    topic = text_of("topic")(text)
    if (fault := topic_fault(topic)) is not None:
        raise ValueError(fault)
    return topic


_OPTIONS: OptionTable = {
    **CONNECTION_OPTIONS,
    "topic": ("topic", _topic),
    "producerGroup": ("producer_group", group_name),
    "acks": ("acks", one_of("all", "1")),
    "maxInFlightBytes": ("max_in_flight_bytes", size()),
    "maxMessageBytes": ("max_message_bytes", size()),
    "batchMaxBytes": ("batch_max_bytes", size(_LARGEST_BATCH)),
    "batchMaxDelayMs": ("batch_max_delay_ms", at_least(1, _LONGEST_DELAY_MS)),
    "compression": ("compression", one_of("none", "zlib", "lz4", "zstd")),
    "compressBatches": ("compress_batches", boolean),
    "exactlyOnce": ("exactly_once", boolean),
    "coordinator": ("coordinator", text_of("broker")),
    "failOnDifferentReplay": ("fail_on_different_replay", boolean),
    "encrypt": ("encrypt", boolean),
}
