"""Batch and streaming writers: implement Spark's interface on top of the sink.

Spark creates a writer in a driver process, pickles it to the executors for `write`, and calls `commit` or `abort` on
another copy. The copies share only the options and the results of `write`. Without `exactlyOnce`, rows are visible when
they are acknowledged, and a repeated task sends its rows again (at least once). With `exactlyOnce`, tasks stage the
rows, `WrittenRows` contains their offsets, and `commit` publishes them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_raptormq.cluster import Cluster, cluster_of
from pyspark_raptormq.errors import SchemaError, SendFailed
from pyspark_raptormq.sink.encoder import RowEncoder
from pyspark_raptormq.sink.options import SinkOptions, parse_sink_options
from pyspark_raptormq.sink.rows import RowReader
from pyspark_raptormq.sink.schema import check_schema
from pyspark_raptormq.sink.sender import TaskSender
from pyspark_raptormq.sink.stager import StagedRows, TaskStager, check_replay, merged, publish
from pyspark_raptormq.task_process import spare_modules_in_collections
from raptormq.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True)
class WrittenRows(WriterCommitMessage):
    """Number and size of the acknowledged rows of one task."""

    rows: int
    body_bytes: int
    staged: StagedRows | None = None
    """Offsets of the rows, if they are staged."""


def batch_writer(raw: Mapping[str, str], schema: StructType, *, overwrite: bool) -> RaptorMQWriter:
    """Validate options, columns and topic, and return the writer of a batch query.

    Raises:
        OptionError: An option is invalid.
        SchemaError: A column is invalid, or the mode is overwrite.
        MissingTopic: The topic of option topic does not exist.
        NameServerUnreachable: No name server responded.
    """
    if overwrite:
        raise SchemaError('a topic cannot be overwritten: use .mode("append")')
    options = _checked(raw, schema)
    if options.topic is not None:
        cluster_of(options.connection).find_topic(options.topic, options.producer_group, options.producer_config())
    return RaptorMQWriter(options, _coordinator(options))


def stream_writer(raw: Mapping[str, str], schema: StructType) -> RaptorMQStreamWriter:
    """Validate options and columns, and return the writer of a streaming query. In output mode complete, every batch
    sends the whole result again.

    Raises:
        OptionError: An option is invalid.
        SchemaError: A column is invalid.
    """
    options = _checked(raw, schema)
    return RaptorMQStreamWriter(options, _coordinator(options))


def _checked(raw: Mapping[str, str], schema: StructType) -> SinkOptions:
    options = parse_sink_options(raw)
    check_schema(schema, topic_given=options.topic is not None)
    if options.exactly_once and "deliverTime" in schema.names:
        raise SchemaError("column deliverTime cannot be combined with exactlyOnce: remove one of them")
    return options


def _coordinator(options: SinkOptions) -> str:
    if not options.exactly_once:
        return ""
    cluster = cluster_of(options.connection)
    return cluster.coordinator(options.coordinator, options.producer_group, options.producer_config())


class RaptorMQWriter(DataSourceArrowWriter):
    """Writer of a DataFrame."""

    def __init__(self, options: SinkOptions, coordinator: str = "") -> None:
        self._options = options
        self._coordinator = coordinator
        self._query = f"write-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Send or stage the rows of one task and wait for all acknowledgements."""
        return write_task(iterator, self._options, self._query)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the staged rows and log the number of rows."""
        _publish(messages, self._options, self._coordinator)
        log.info("wrote %d rows", _rows_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log that some rows may be written."""
        where = "staged and will not be published" if self._options.exactly_once else "already in the topics"
        log.warning("the write failed; at least %d rows are %s", _rows_of(messages), where)


class RaptorMQStreamWriter(DataSourceStreamArrowWriter):
    """Writer of micro-batches."""

    def __init__(self, options: SinkOptions, coordinator: str = "") -> None:
        self._options = options
        self._coordinator = coordinator

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Send or stage the rows of one task and wait for all acknowledgements."""
        return write_task(iterator, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the staged rows and log the number of rows."""
        _publish(messages, self._options, self._coordinator)
        log.info("batch %d: wrote %d rows", batchId, _rows_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log that some rows may be written. Spark repeats the batch, including these rows."""
        where = "staged" if self._options.exactly_once else "already in the topics"
        log.warning("batch %d failed; at least %d rows are %s", batchId, _rows_of(messages), where)


def _rows_of(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, WrittenRows))


def _publish(messages: Sequence[WriterCommitMessage | None], options: SinkOptions, coordinator: str) -> None:
    """Publish the rows that the tasks have staged.

    Raises:
        SendFailed: a broker did not publish them.
        DifferentReplay: the batch, or a later one, was published before with other rows.
    """
    parts = [message.staged for message in messages if isinstance(message, WrittenRows) and message.staged is not None]
    rows = merged(parts)
    if rows is None:
        return
    cluster = cluster_of(options.connection)
    staging = cluster.staging(options.producer_group, options.producer_config())
    commit = partial(cluster.commit_staged, staging, options.topic or "")
    found = publish(commit, coordinator, rows, options.connection.retry_timeout_s)
    check_replay(rows, found, _rows_of(messages), fail=options.fail_on_different_replay)
    log.info("batch %d of query %s: published %d messages", rows.batch, rows.query, found.messages)


def write_task(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, query: str | None = None, batch_id: int = 0
) -> WrittenRows:
    """Send or stage the rows of one task and return when all are acknowledged.

    Staged rows belong to batch `batch_id` of `query`. Without a query, Spark's job properties have the micro-batch.

    Raises:
        RowError: A row cannot be sent.
        SendFailed: Rows were not acknowledged within the retry time.
        MissingTopic: A topic does not exist.
        NameServerUnreachable: No name server responded.
    """
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    cluster = cluster_of(options.connection)
    spare_modules_in_collections()
    producer_config = options.producer_config()
    reader = RowReader(options, partition, RowEncoder(options, cluster.new_ids(), _now_ms))
    if options.exactly_once:
        staging = cluster.staging(options.producer_group, producer_config)
        stager = TaskStager(
            staging,
            cluster.with_retries,
            partition,
            list_bytes=min(options.batch_max_bytes, options.max_message_bytes),
            max_in_flight_bytes=options.max_in_flight_bytes,
        )
        stager.begin(*((query, batch_id) if query is not None else _micro_batch(context)))
        written, body_bytes = _write_all(batches, reader, stager, cluster, options)
        return WrittenRows(written, body_bytes, cluster.run(stager.finish()))
    producer = cluster.producer(options.producer_group, producer_config)
    sender = TaskSender(
        producer,
        partition,
        max_in_flight_bytes=options.max_in_flight_bytes,
        all_acks=options.acks == "all",
    )
    written, body_bytes = _write_all(batches, reader, sender, cluster, options)
    cluster.run(sender.finish())
    return WrittenRows(written, body_bytes)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _micro_batch(context: TaskContext | None) -> tuple[str, int]:
    """Return the id of the streaming query and the batch of a task, from Spark's job properties."""
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if query is None or batch is None:
        raise SendFailed(
            "exactlyOnce needs the job property sql.streaming.queryId, which this version of Spark does not set"
        )
    return query, int(batch)


def _write_all(
    batches: Iterator[pa.RecordBatch],
    reader: RowReader,
    sender: TaskSender | TaskStager,
    cluster: Cluster,
    options: SinkOptions,
) -> tuple[int, int]:
    """Send all rows. Return their number and the total size of their bodies."""
    seen: set[str] = set()
    written, body_bytes = 0, 0
    for batch in batches:
        for rows in reader.read(batch):
            topics = rows.topics
            _find_topics(cluster, topics - seen, options)
            seen |= topics
            cluster.run(sender.send(rows))
            written += rows.row_count
            body_bytes += rows.body_bytes
    return written, body_bytes


def _find_topics(cluster: Cluster, topics: set[str], options: SinkOptions) -> None:
    """Check that topics exist before the first message is sent, so that a missing topic fails without send retries."""
    for topic in topics:
        cluster.find_topic(topic, options.producer_group, options.producer_config())
