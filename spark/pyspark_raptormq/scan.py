"""Reading of one offset range of one queue: pulls with one request ahead, and decodes the responses in large buffers.

A response may have fewer messages than offsets (filtered messages, offsets without a message). The scan therefore ends
when the *next* offset reaches the end of the range. Messages beyond the end of the range are discarded.

Uses `cluster` and `decode`; used by `partition`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Protocol

import pyarrow as pa

from pyspark_raptormq.damage import Damage
from pyspark_raptormq.data_loss import report_beyond_end, report_deleted, report_recreated
from pyspark_raptormq.decode import RecordDecoder
from pyspark_raptormq.offsets import place_of
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.planner import QueueRange
from raptormq.client import EncryptionKeys, PullResult, PullStatus, Sql
from raptormq.errors import ServerError
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.message import MessageQueue

_MAX_MESSAGES_PER_PULL = 32_768
_STALL_PAUSE_S = 0.05


class Puller(Protocol):
    """Source of records. Implemented by `cluster.Cluster`."""

    def start_pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        max_bytes: int,
        expression: str | Sql,
        topic_id: str | None,
    ) -> Future[PullResult]: ...


def scan(
    wanted: QueueRange,
    options: SourceOptions,
    puller: Puller,
    pause: Callable[[float], None] = time.sleep,
    *,
    topic_id: str | None = None,
    keys: EncryptionKeys | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Send the first request, and return a generator of the messages of a range in batches of about
    `arrow_batch_bytes`.

    Raises, while the messages are generated:
        DataLoss: Offsets of the range are missing, or the topic has another id, and option failOnDataLoss is true.
        RecordError: Messages or batches are damaged, and option failOnDamage is true; or a response is damaged.
        KeyMissing: A body is encrypted with a key that is not in `keys`.
        TransportError, ServerError: No attempt succeeded within the retry time.
    """
    damage = Damage(wanted.queue, fail=options.fail_on_damage)
    decoder = RecordDecoder(
        wanted.queue,
        options.columns,
        options.properties_as,
        options.tags,
        verify_crc=options.verify_crc,
        damage=damage,
        keys=keys,
    )
    responses = _responses(wanted, options, puller, pause, topic_id)
    return _batches(responses, decoder, wanted, options.arrow_batch_bytes, damage)


def _batches(
    responses: Iterator[bytes], decoder: RecordDecoder, wanted: QueueRange, batch_bytes: int, damage: Damage
) -> Generator[pa.RecordBatch, None, None]:
    buffers: list[bytes] = []
    size = 0
    for body in responses:
        buffers.append(body)
        size += len(body)
        if size >= batch_bytes:
            yield from decoder.decode(b"".join(buffers), wanted.start, wanted.end)
            buffers, size = [], 0
    if buffers:
        yield from decoder.decode(b"".join(buffers), wanted.start, wanted.end)
    damage.sum_up()


def _responses(
    wanted: QueueRange,
    options: SourceOptions,
    puller: Puller,
    pause: Callable[[float], None],
    topic_id: str | None,
) -> Iterator[bytes]:
    """Send the first request, and return a generator of the responses."""

    def pull(position: int) -> Future[PullResult]:
        count = min(wanted.end - position, _MAX_MESSAGES_PER_PULL)
        return puller.start_pull(wanted.queue, position, count, options.pull_bytes, options.expression, topic_id)

    return _follow(wanted, options, pull, pull(wanted.start), pause)


def _follow(
    wanted: QueueRange,
    options: SourceOptions,
    pull: Callable[[int], Future[PullResult]],
    pending: Future[PullResult],
    pause: Callable[[float], None],
) -> Iterator[bytes]:
    position = wanted.start
    stalled_s = 0.0
    try:
        while True:
            try:
                result = pending.result()
            except ServerError as error:
                if error.code != ResponseCode.TOPIC_RECREATED:
                    raise
                report_recreated(*place_of(wanted.queue), fail=options.fail_on_data_loss)
                return
            following = _next_position(wanted, position, result, fail=options.fail_on_data_loss)
            if following == position:
                # After the start of a broker, the consume queue may briefly lag behind the reported end.
                if stalled_s >= options.connection.retry_timeout_s:
                    what = (
                        f"{wanted.queue} should be read up to offset {wanted.end} but returns nothing from {position}"
                    )
                    report_beyond_end(what, fail=options.fail_on_data_loss)
                    return
                pause(_STALL_PAUSE_S)
                stalled_s += _STALL_PAUSE_S
            else:
                position, stalled_s = following, 0.0
            if position < wanted.end:
                pending = pull(position)  # runs while the caller decodes the response that is yielded below
            if result.body:
                yield result.body
            if position >= wanted.end:
                return
    finally:
        pending.cancel()


def _next_position(wanted: QueueRange, position: int, result: PullResult, *, fail: bool) -> int:
    """Return the offset to read next; `position` itself if the response does not advance it."""
    if result.status is not PullStatus.OFFSET_ILLEGAL:
        return max(position, result.next_offset)
    low, high = result.min_offset, result.max_offset
    if position < low:
        following = min(low, wanted.end)
        what = f"offsets {position} to {following - 1} of {wanted.queue} are missing: the queue begins at {low}"
        report_deleted(what, fail=fail)
        return following
    if position > high:
        report_beyond_end(f"{wanted.queue} should be read from offset {position} but ends at {high}", fail=fail)
        return wanted.end
    return position
