"""Reads one range of one queue: pulls, one ahead, and hands whole buffers to the decoder.

A broker may answer with fewer messages than there are offsets (tags that do not match, offsets without a message), so
the end is reached when the *next* offset is, not when the last message was seen. An answer may also go beyond the end;
that is trimmed.

Neighbours: `cluster` pulls, `decode` decodes, `reader` and `stream_reader` are called by Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Protocol

import pyarrow as pa

from pyspark_raptormq.damage import Damage
from pyspark_raptormq.data_loss import report_beyond_end, report_deleted, report_made_again
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
    """Where records come from; `cluster.Cluster` in production."""

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
    """Yield the messages of a range in batches of about `arrow_batch_bytes`.

    Raises:
        DataLoss: offsets of the range are not there, or the topic has another id, and option failOnDataLoss is true.
        RecordError: messages or batches are damaged, and option failOnDamage is true; or an answer is.
        KeyMissing: a body is encrypted with a key that `keys` does not have.
        TransportError, ServerError: the broker did not answer within the retry time.
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
    buffers: list[bytes] = []
    size = 0
    for body in _responses(wanted, options, puller, pause, topic_id):
        buffers.append(body)
        size += len(body)
        if size >= options.arrow_batch_bytes:
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
    position = wanted.start
    stalled_s = 0.0

    def pull() -> Future[PullResult]:
        count = min(wanted.end - position, _MAX_MESSAGES_PER_PULL)
        return puller.start_pull(wanted.queue, position, count, options.pull_bytes, options.expression, topic_id)

    pending = pull()
    try:
        while True:
            try:
                result = pending.result()
            except ServerError as error:
                if error.code != ResponseCode.TOPIC_RECREATED:
                    raise
                report_made_again(*place_of(wanted.queue), fail=options.fail_on_data_loss)
                return
            following = _next_position(wanted, position, result, fail=options.fail_on_data_loss)
            if following == position:
                # The queue's index may lag behind its end for a moment after a broker has started.
                if stalled_s >= options.connection.retry_timeout_s:
                    what = (
                        f"{wanted.queue} should be read up to offset {wanted.end} but gives nothing from {position} on"
                    )
                    report_beyond_end(what, fail=options.fail_on_data_loss)
                    return
                pause(_STALL_PAUSE_S)
                stalled_s += _STALL_PAUSE_S
            else:
                position, stalled_s = following, 0.0
            if position < wanted.end:
                pending = pull()  # on its way while the caller decodes what is yielded below
            if result.body:
                yield result.body
            if position >= wanted.end:
                return
    finally:
        pending.cancel()


def _next_position(wanted: QueueRange, position: int, result: PullResult, *, fail: bool) -> int:
    """Return where to go on; `position` itself when the answer brought nothing."""
    if result.status is not PullStatus.OFFSET_ILLEGAL:
        return max(position, result.next_offset)
    low, high = result.min_offset, result.max_offset
    if position < low:
        gone = min(low, wanted.end)
        report_deleted(f"offsets {position} to {gone - 1} of {wanted.queue} are gone: it begins at {low}", fail=fail)
        return gone
    if position > high:
        report_beyond_end(f"{wanted.queue} should be read from offset {position} but ends at {high}", fail=fail)
        return wanted.end
    return position
