"""Reads of one range: their end, the messages outside the range, and brokers that have less than expected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_raptormq.cluster import Cluster
from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import DataLoss
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.planner import QueueRange
from pyspark_raptormq.scan import scan
from raptormq.client import (
    AdminClient,
    ClientConfig,
    Message,
    Producer,
    ProducerConfig,
    PullResult,
    PullStatus,
    Sql,
)
from raptormq.errors import RequestTimeout
from raptormq.protocol.message import MessageQueue
from tests.names import unique
from tests.spark.sample_records import QUEUE, buffer_of, message, properties_text
from tests.spark.sending import BROKER

OPTIONS = SourceOptions(
    Connection(("127.0.0.1:1",)), topics=("flights",), columns=("queueOffset",), arrow_batch_bytes=1000
)
Answer = Callable[[int, int], PullResult]


def result(status: PullStatus, following: int, body: bytes = b"", low: int = 0, high: int = 100) -> PullResult:
    return PullResult(QUEUE, status, following, low, high, body)


class Source:
    """A queue with responses of the test. It records the requested offsets."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[int] = []

    def start_pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        max_bytes: int,
        expression: str | Sql,
        topic_id: str | None = None,
    ) -> Future[PullResult]:
        assert queue == QUEUE
        self.asked.append(offset)
        future: Future[PullResult] = Future()
        try:
            future.set_result(self._answer(offset, max_count))
        except RequestTimeout as error:
            future.set_exception(error)
        return future


def offsets_read(source: Source, start: int, end: int, options: SourceOptions = OPTIONS) -> list[int]:
    read: list[int] = []
    for batch in scan(QueueRange(QUEUE, start, end), options, source, pause=lambda _: None):
        read += batch.column("queueOffset").to_pylist()
    return read


def stored(offsets: range) -> bytes:
    return buffer_of(*(message(offset, b"x" * 100) for offset in offsets))


def plain(count: int) -> Answer:
    """Respond with `count` messages at a time, like a broker with its own limit, regardless of the range."""
    return lambda offset, _: result(PullStatus.FOUND, offset + count, stored(range(offset, offset + count)))


@given(st.integers(0, 50), st.integers(1, 60), st.integers(1, 30))
def test_exactly_the_range_is_read(start: int, rows: int, per_pull: int) -> None:
    source = Source(plain(per_pull))
    assert offsets_read(source, start, start + rows) == list(range(start, start + rows))
    assert source.asked == list(range(start, start + rows, per_pull))


def test_a_pull_asks_for_no_more_than_is_left() -> None:
    counts: list[int] = []

    def answer(offset: int, max_count: int) -> PullResult:
        counts.append(max_count)
        return plain(4)(offset, max_count)

    assert len(offsets_read(Source(answer), 0, 10)) == 10
    assert counts == [10, 6, 2]


def test_answers_are_gathered_into_batches_of_the_size_asked_for() -> None:
    batches = list(scan(QueueRange(QUEUE, 0, 30), OPTIONS, Source(plain(1))))
    bytes_per_record = len(stored(range(1)))
    expected = -(-OPTIONS.arrow_batch_bytes // bytes_per_record)
    assert [batch.num_rows for batch in batches[:-1]] == [expected] * (len(batches) - 1)
    assert sum(batch.num_rows for batch in batches) == 30


def test_the_next_pull_is_on_its_way_while_a_batch_is_used() -> None:
    source = Source(plain(10))
    reading = scan(QueueRange(QUEUE, 0, 100), OPTIONS, source)
    next(reading)
    assert source.asked == [0, 10]
    reading.close()
    assert source.asked == [0, 10]


def test_the_end_is_reached_without_its_last_message() -> None:
    """After filtered tags and offsets without a message, the range ends by the next offset instead of a message."""
    answers = {
        0: result(PullStatus.FOUND, 5, stored(range(2))),
        5: result(PullStatus.NO_MATCHED_MESSAGE, 9),
        9: result(PullStatus.NO_NEW_MESSAGE, 12),
    }
    source = Source(lambda offset, _: answers[offset])
    assert offsets_read(source, 0, 12) == [0, 1]
    assert source.asked == [0, 5, 9]


def test_no_match_at_all_is_no_batch() -> None:
    source = Source(lambda offset, count: result(PullStatus.NO_MATCHED_MESSAGE, offset + count))
    assert offsets_read(source, 0, 50) == []


def test_only_wanted_tags_come_out() -> None:
    tagged = buffer_of(*(message(n, properties=properties_text(TAGS="AB"[n % 2])) for n in range(6)))
    source = Source(lambda offset, _: result(PullStatus.FOUND, 6, tagged))
    assert offsets_read(source, 0, 6, replace(OPTIONS, expression="B")) == [1, 3, 5]


EXPIRED = {
    0: result(PullStatus.OFFSET_ILLEGAL, 6, low=6),
    6: result(PullStatus.FOUND, 10, stored(range(6, 10)), low=6),
}


def test_messages_deleted_before_they_were_read_fail_the_task() -> None:
    with pytest.raises(
        DataLoss, match=r"offsets 0 to 5 of flights@broker-a:3 are missing: the queue begins at 6.*failOnDataLoss"
    ):
        offsets_read(Source(lambda offset, _: EXPIRED[offset]), 0, 10)


def test_messages_deleted_before_they_were_read_are_left_out_if_asked() -> None:
    lenient = replace(OPTIONS, fail_on_data_loss=False)
    assert offsets_read(Source(lambda offset, _: EXPIRED[offset]), 0, 10, lenient) == [6, 7, 8, 9]
    gone = Source(lambda *_: result(PullStatus.OFFSET_ILLEGAL, 50, low=50))
    assert offsets_read(gone, 0, 10, lenient) == []
    assert gone.asked == [0]


def test_a_queue_that_lost_its_end() -> None:
    shorter = Source(lambda *_: result(PullStatus.OFFSET_ILLEGAL, 4, high=4))
    with pytest.raises(DataLoss, match="should be read from offset 7 but ends at 4"):
        offsets_read(shorter, 7, 10)
    assert offsets_read(shorter, 7, 10, replace(OPTIONS, fail_on_data_loss=False)) == []


def test_an_end_that_never_comes_is_given_up_in_time() -> None:
    stuck = Source(lambda offset, _: result(PullStatus.NO_NEW_MESSAGE, offset, high=offset))
    bounded = replace(OPTIONS, connection=replace(OPTIONS.connection, retry_timeout_s=1.0))
    with pytest.raises(DataLoss, match="up to offset 10 but returns nothing from 3"):
        offsets_read(stuck, 3, 10, bounded)
    assert 2 < len(stuck.asked) < 100
    assert offsets_read(stuck, 3, 10, replace(bounded, fail_on_data_loss=False)) == []


def test_an_index_that_lags_behind_catches_up() -> None:
    answers = iter(
        [
            result(PullStatus.NO_NEW_MESSAGE, 3),
            result(PullStatus.OFFSET_ILLEGAL, 3),
            result(PullStatus.FOUND, 10, stored(range(3, 10))),
        ]
    )
    assert offsets_read(Source(lambda *_: next(answers)), 3, 10) == list(range(3, 10))


def test_a_broker_that_does_not_answer_fails_the_task() -> None:
    def silent(offset: int, max_count: int) -> PullResult:
        raise RequestTimeout("no response from 127.0.0.1:1")

    with pytest.raises(RequestTimeout):
        offsets_read(Source(silent), 0, 1)


async def send_large_batch(client_config: ClientConfig, topic: str) -> None:
    """Return two messages and an inner batch that no broker unpacks, because it has 16 MiB when decompressed."""
    queue = MessageQueue(topic, BROKER, 0)
    async with AdminClient(client_config=client_config) as admin:
        await admin.create_topic(topic, 1, 1, attributes={"queue.type": "BatchCQ"})
    settings = ProducerConfig(compress_batches=True, max_message_bytes=32 << 20)
    async with Producer("p", client_config=client_config, config=settings) as producer:
        for size, count in ((1, 2), (1 << 20, 16)):
            await producer.send_batch([Message(topic, bytes(size), "AB"[n % 2]) for n in range(count)], queue=queue)


def test_a_range_that_begins_inside_a_batch_which_no_broker_takes_apart(name_server: str) -> None:
    topic = unique("large-batch")
    asyncio.run(send_large_batch(ClientConfig(name_server), topic))
    options = SourceOptions(Connection((name_server,)), topics=(topic,), columns=("queueOffset",))
    cluster = Cluster(Connection((name_server,), request_timeout_s=10.0, retry_timeout_s=10.0))

    def offsets(start: int, end: int, wanted: SourceOptions) -> list[int]:
        parts = scan(QueueRange(MessageQueue(topic, BROKER, 0), start, end), wanted, cluster)
        return [offset for part in parts for offset in part.column("queueOffset").to_pylist()]

    try:
        assert offsets(0, 10, options) + offsets(10, 18, options) == [*range(18)]
        tagged = replace(options, expression="B")
        assert offsets(0, 10, tagged) + offsets(10, 18, tagged) == [*range(1, 18, 2)]
    finally:
        cluster.close()
