"""How a streaming query moves from one offset to the next. Pure but for the questions it asks of the brokers.

    start --(latest offsets, limit)--> end --(split)--> ranges

Rules: a queue that is new begins at its first message; a queue that cannot be seen at the moment keeps its offset, for
a broker that restarts is not a loss; a queue that ends before the start has lost messages, and a topic that was made
again all that were not read: its queues begin at their first message. With Trigger.AvailableNow
the ends found at its beginning are the last ones.

Neighbours: `stream_reader` translates between this and Spark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark_raptormq.cluster_offsets import (
    Bounds,
    check_assigned,
    check_start,
    check_still_read,
    offsets_at,
    selected_queues,
    still_meant,
    with_topic_ids,
)
from pyspark_raptormq.data_loss import report_beyond_end, report_made_again
from pyspark_raptormq.offsets import (
    Place,
    QueueOffsets,
    ReportedEnds,
    StreamOffset,
    TopicIds,
    made_again,
    place_of,
    without,
)
from pyspark_raptormq.options import EARLIEST, SourceOptions
from pyspark_raptormq.planner import QueueRange, limit_offsets, ranges_between, split_ranges
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageQueue

log = get_logger(__name__)


class StreamProgress:
    """The offsets of one streaming query."""

    def __init__(self, options: SourceOptions, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._bounds = bounds
        self._initial: StreamOffset | None = None
        self._start_checked = False
        self._clock = clock
        self._last_batch_s = -math.inf
        self._last_ends: QueueOffsets | None = None
        self._latest: ReportedEnds | None = None
        self._planned: QueueOffsets = {}

    @property
    def latest(self) -> ReportedEnds | None:
        """The ends of all queues when they were last asked for, whatever the limits; of those that the batch leaves
        something in also where they begin.
        """
        return self._latest

    def report(self) -> dict[str, Any] | None:
        """Return `latest` for Spark's progress, with how far the batch that was planned last is behind it."""
        return None if self._latest is None else self._latest.report(self._planned)

    def initial(self) -> StreamOffset:
        """Return where a new query starts: found once, for Spark asks twice and "latest" moves."""
        if self._initial is None:
            check_assigned(self._options, self._bounds)
            queues = selected_queues(self._options, self._bounds)
            start, ids = with_topic_ids(self._bounds, queues, lambda ids: self._start(queues, ids))
            self._initial = StreamOffset(start, start, _of_places(ids, start))
        return self._initial

    def _start(self, queues: Sequence[MessageQueue], ids: TopicIds) -> QueueOffsets:
        position = still_meant(self._options.start, ids, fail=self._options.fail_on_data_loss)
        start = offsets_at(position, queues, self._bounds, unnamed=EARLIEST)
        if position.offsets is None:
            return start
        return check_start(start, self._bounds, fail=self._options.fail_on_data_loss)

    def freeze(self) -> None:
        """Read nothing that is stored after this call."""
        queues = selected_queues(self._options, self._bounds)
        self._last_ends = self._bounds.max_offsets(queues)

    def advance(
        self,
        start: StreamOffset,
        max_rows: int | None,
        *,
        max_bytes: int | None = None,
        min_rows: int | None = None,
    ) -> StreamOffset:
        """Return the end of the next batch, `start` itself when there is nothing to read.

        Args:
            start: where the batch begins.
            max_rows: offsets at most.
            max_bytes: stored bytes, about, at most; but one offset at least.
            min_rows: nothing to read is what is less than that, until option `maxTriggerDelay` is over.

        Raises:
            DataLoss: a queue ends before its start, or a topic was made again, and option failOnDataLoss is true.
            OptionError: the options do not name any more what `start` has offsets of, and failOnDataLoss is true.
        """
        if not self._start_checked:
            check_still_read(self._options, start.queues)
            self._start_checked = True
        queues = selected_queues(self._options, self._bounds)
        real, told = with_topic_ids(self._bounds, queues, lambda _: self._bounds.max_offsets(queues))
        changed = made_again(start.topic_ids, told)
        self._report_made_again(changed)
        known = without(start.queues, changed)
        begin = self._begin(known, real)
        ends = real
        if self._last_ends is not None:
            ends = {queue: min(end, self._last_ends[queue]) for queue, end in real.items() if queue in self._last_ends}
        ends = {queue: max(end, begin[queue]) for queue, end in ends.items()}
        if min_rows is not None and self._may_wait(sum(each.rows for each in ranges_between(begin, ends)), min_rows):
            ends = {queue: begin[queue] for queue in ends}
        if max_bytes is not None:
            max_rows = self._rows_of(begin, ends, max_bytes, max_rows)
        if max_rows is not None:
            ends = limit_offsets(begin, ends, max_rows)
        self._latest = ReportedEnds(
            known | real, self._first([each for each in real if ends.get(each, 0) < real[each]])
        )
        self._planned = known | ends
        anew = {queue for queue in ends if place_of(queue) in changed}
        moved = {queue: end for queue, end in ends.items() if end != begin[queue] or queue in anew}
        ids = _of_places(start.topic_ids | told, known | moved)
        if not moved and ids == start.topic_ids:
            return start
        self._last_batch_s = self._clock()
        first = known | {queue: begin[queue] for queue in anew}
        return StreamOffset(known | moved, first if start.at_start else None, ids)

    def _may_wait(self, rows: int, min_rows: int) -> bool:
        """Whether a batch of so many rows is to wait for more. The first one of a run never does."""
        return rows < min_rows and self._clock() - self._last_batch_s < self._options.max_trigger_delay_s

    def _rows_of(self, begin: QueueOffsets, ends: QueueOffsets, max_bytes: int, max_rows: int | None) -> int | None:
        """Return how many rows make up a number of bytes when queues are read in proportion to their backlogs.

        What messages are large is not known before they are read: those at the beginning of each queue stand for all.
        """
        backlog = {each.queue: each.rows for each in ranges_between(begin, ends)}
        sizes = self._bounds.bytes_per_offset({queue: begin[queue] for queue in backlog}, self._options.expression)
        size = sum(rows * sizes[queue] for queue, rows in backlog.items())
        if size <= max_bytes:
            return max_rows
        rows = max(1, int(sum(backlog.values()) * max_bytes / size))
        return rows if max_rows is None else min(rows, max_rows)

    def _first(self, queues: Sequence[MessageQueue]) -> QueueOffsets:
        """Return where queues begin; nothing when nobody answers: it is for reports alone."""
        try:
            return self._bounds.min_offsets(queues) if queues else {}
        except RaptorMQError as error:
            log.info("the lag may count messages that are deleted already: %s", error)
            return {}

    def _begin(self, start: QueueOffsets, real: QueueOffsets) -> QueueOffsets:
        shrunk = [queue for queue in real if real[queue] < start.get(queue, 0)]
        for queue in shrunk:
            self._report_shrunk(start, real, queue)
        unknown = [queue for queue in real if queue not in start]
        return start | self._bounds.min_offsets(sorted({*unknown, *shrunk}))

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
        """Return what the tasks of a batch read.

        Raises:
            DataLoss: the end is before the start in some queue, or of a topic that was made again before it was read,
                and option failOnDataLoss is true.
        """
        # An end that carries its own start is the end of the first batch, maybe planned by an earlier run of the query.
        begin, ids = (end.start, end.topic_ids) if end.start is not None else (start.queues, start.topic_ids)
        begin = without(begin, made_again(ids, end.topic_ids))
        moved = {queue: offset for queue, offset in end.queues.items() if begin.get(queue) != offset}
        gone = made_again(end.topic_ids, self._bounds.topic_ids(sorted(moved))) if moved else []
        self._report_made_again(gone)
        ends = without(moved, gone)
        shrunk = [queue for queue, offset in ends.items() if offset < begin.get(queue, 0)]
        for queue in shrunk:
            self._report_shrunk(begin, ends, queue)
        unknown = [queue for queue in ends if queue not in begin or queue in shrunk]
        first = begin | self._bounds.min_offsets(unknown) if unknown else begin
        ranges = [QueueRange(queue, first[queue], ends[queue]) for queue in sorted(ends)]
        return split_ranges(
            [each for each in ranges if each.rows > 0],
            self._options.min_partitions,
            self._options.max_rows_per_partition,
        )

    def _report_made_again(self, places: Sequence[Place]) -> None:
        for topic, broker_name in places:
            report_made_again(topic, broker_name, fail=self._options.fail_on_data_loss)

    def _report_shrunk(self, start: QueueOffsets, end: QueueOffsets, queue: MessageQueue) -> None:
        what = f"{queue} was read up to offset {start[queue]} but ends at {end[queue]}"
        report_beyond_end(what, fail=self._options.fail_on_data_loss)


def _of_places(ids: TopicIds, offsets: QueueOffsets) -> TopicIds:
    """Return the ids of those topics that offsets are known of."""
    places = {place_of(queue) for queue in offsets}
    return {place: topic_id for place, topic_id in ids.items() if place in places}
