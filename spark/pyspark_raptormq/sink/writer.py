"""The batch and the streaming writer: Spark's side of the sink.

Spark makes a writer in a process of the driver, pickles it to the executors for `write`, and calls `commit` or `abort`
on yet another copy: nothing but the options and what `write` returns connects them. Today a task's rows are visible as
soon as they are acknowledged, so there is nothing to commit: a task that Spark repeats sends its rows again (at least
once). Staged rows would be named by `WrittenRows` and published in `commit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_raptormq.cluster import Cluster, cluster_of
from pyspark_raptormq.errors import SchemaError
from pyspark_raptormq.sink.options import SinkOptions, parse_sink_options
from pyspark_raptormq.sink.rows import RowReader
from pyspark_raptormq.sink.schema import check_schema
from pyspark_raptormq.sink.sender import TaskSender
from raptormq.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True)
class WrittenRows(WriterCommitMessage):
    """What one task has written, all of it acknowledged."""

    rows: int
    body_bytes: int


def batch_writer(raw: Mapping[str, str], schema: StructType, *, overwrite: bool) -> RaptorMQWriter:
    """Return the writer of a batch query, once options, columns and topic are known to be sound.

    Raises:
        OptionError: an option is unusable.
        SchemaError: a column is, or the mode is overwrite.
        MissingTopic: the topic of option topic does not exist.
        NameServerUnreachable: no name server answers.
    """
    if overwrite:
        raise SchemaError('a topic cannot be overwritten: use .mode("append")')
    options = _checked(raw, schema)
    if options.topic is not None:
        cluster_of(options.connection).find_topic(options.topic, options.producer_group, options.producer_config())
    return RaptorMQWriter(options)


def stream_writer(raw: Mapping[str, str], schema: StructType) -> RaptorMQStreamWriter:
    """Return the writer of a streaming query; with output mode complete every batch is the whole result, sent anew.

    Raises:
        OptionError: an option is unusable.
        SchemaError: a column is.
    """
    return RaptorMQStreamWriter(_checked(raw, schema))


def _checked(raw: Mapping[str, str], schema: StructType) -> SinkOptions:
    options = parse_sink_options(raw)
    check_schema(schema, topic_given=options.topic is not None)
    return options


class RaptorMQWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Send the rows of one task and wait for all acknowledgements."""
        return write_task(iterator, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say how much was written."""
        log.info("wrote %d rows", _rows_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say that part of the rows is written."""
        log.warning("the write has failed; %d rows or more are in the topics already", _rows_of(messages))


class RaptorMQStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Send the rows of one task and wait for all acknowledgements."""
        return write_task(iterator, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Say how much was written."""
        log.info("batch %d: wrote %d rows", batchId, _rows_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Say that part of the rows is written; the batch will be repeated, and they with it."""
        log.warning("batch %d has failed; %d rows or more are in the topics already", batchId, _rows_of(messages))


def _rows_of(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, WrittenRows))


def write_task(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> WrittenRows:
    """Send the rows of one task and return when all are acknowledged.

    Raises:
        RowError: a row cannot be sent.
        SendFailed: the brokers have not taken all rows within the retry time.
        MissingTopic: a topic does not exist.
        NameServerUnreachable: no name server answers.
    """
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    cluster = cluster_of(options.connection)
    producer_config = options.producer_config()
    producer = cluster.producer(options.producer_group, producer_config)
    reader = RowReader(options, partition)
    sender = TaskSender(
        producer,
        partition,
        max_in_flight_bytes=options.max_in_flight_bytes,
        all_acks=options.acks == "all",
    )
    seen: set[str] = set()
    written, body_bytes = 0, 0
    for batch in batches:
        for rows in reader.read(batch):
            _find_topics(cluster, {message.topic for message in rows.messages} - seen, options)
            seen.update(message.topic for message in rows.messages)
            cluster.run(sender.send(rows))
            written += len(rows.messages)
            body_bytes += rows.body_bytes
    cluster.run(sender.finish())
    return WrittenRows(written, body_bytes)


def _find_topics(cluster: Cluster, topics: set[str], options: SinkOptions) -> None:
    """Look for topics before the first message goes there: what does not exist is said at once, not after retries."""
    for topic in topics:
        cluster.find_topic(topic, options.producer_group, options.producer_config())
