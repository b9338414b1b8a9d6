"""Planning of micro-batches: the offsets of a streaming query. Pure except for requests to the brokers.

    start --(latest offsets, limit)--> end --(split)--> ranges

- A queue that is not known is new, or its broker was down when the query started. It is read from its first message, or
  from the first message of the time at which the query starts to read (`StreamOffset.since_ms`).
- A queue of an unavailable broker keeps its offset. So does a queue that its broker no longer offers, because the topic
  has fewer read queues. Their unread messages count up to the last known ends.
- A topic of a pattern that is deleted with unread messages is a loss. Its offsets are removed.
- If a queue ends before its start offset, messages were lost. It is then read from its first message.
- If a topic was recreated, its unread messages were lost. Its queues are read from their first message.
- If a broker has another message at an offset than was read, its store was restored from a backup (`marks`).
- With Trigger.AvailableNow, the end offsets at the start of the query are final.

Used by `stream_reader`.
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
    deleted_topics,
    offsets_at,
    selected_queues,
    with_topic_ids,
    without_recreated_topics,
)
from pyspark_raptormq.data_loss import report_beyond_end, report_recreated, report_restored, report_topic_deleted
from pyspark_raptormq.marks import Mark, Marks, new_places, replaced
from pyspark_raptormq.marks import place_of as place_of_mark
from pyspark_raptormq.offsets import (
    Place,
    QueueOffsets,
    ReportedEnds,
    StreamOffset,
    TopicIds,
    place_of,
    recreated,
    without,
)
from pyspark_raptormq.options import EARLIEST, LATEST, SourceOptions
from pyspark_raptormq.planner import QueueRange, limit_offsets, ranges_between, split_ranges
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageQueue

log = get_logger(__name__)


class StreamProgress:
    """Offsets of one streaming query."""

    def __init__(
        self,
        options: SourceOptions,
        bounds: Bounds,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._options = options
        self._bounds = bounds
        self._initial: StreamOffset | None = None
        self._start_checked = False
        self._clock = clock
        self._now_ms = now_ms
        self._last_batch_s = -math.inf
        self._last_ends: QueueOffsets | None = None
        self._known_ends: QueueOffsets = {}
        """The last known end offset of all queues of this run."""
        self._unreachable: frozenset[MessageQueue] = frozenset()
        self._latest: ReportedEnds | None = None
        self._planned: QueueOffsets = {}

    @property
    def latest(self) -> ReportedEnds | None:
        """Latest known end offsets of all queues, regardless of limits, and the minimum offsets of the queues that the
        last planned batch does not read to the end."""
        return self._latest

    def report(self) -> dict[str, Any] | None:
        """Return `latest` for Spark's progress reports, with the lag of the last planned batch."""
        return None if self._latest is None else self._latest.report(self._planned)

    def initial(self) -> StreamOffset:
        """Return the start of a new query. It is computed once, because Spark requests it twice and "latest" moves."""
        if self._initial is None:
            since_ms = self._since_ms()  # before the ends are requested, so that no message is skipped
            check_assigned(self._options, self._bounds)
            queues = selected_queues(self._options, self._bounds)
            start, ids = with_topic_ids(self._bounds, queues, lambda ids: self._start(queues, ids))
            self._initial = StreamOffset(start, start, _of_places(ids, start), since_ms)
        return self._initial

    def _since_ms(self) -> int | None:
        position = self._options.start
        if position.word == LATEST:
            return self._now_ms()
        return position.since_ms if position.timestamp_ms is None else position.timestamp_ms

    def _start(self, queues: Sequence[MessageQueue], ids: TopicIds) -> QueueOffsets:
        position = without_recreated_topics(self._options.start, ids, fail=self._options.fail_on_data_loss)
        start = offsets_at(position, queues, self._bounds, unnamed=EARLIEST)
        if position.offsets is None:
            return start
        return check_start(start, self._bounds, fail=self._options.fail_on_data_loss)

    def freeze(self) -> None:
        """Fix the current end offsets as the final end of the query."""
        queues = selected_queues(self._options, self._bounds)
        self._last_ends = self._bounds.max_offsets(queues)
        self._known_ends |= self._last_ends

    def advance(
        self,
        start: StreamOffset,
        max_rows: int | None,
        *,
        max_bytes: int | None = None,
        min_rows: int | None = None,
    ) -> StreamOffset:
        """Return the end of the next batch; `start` itself if there is nothing to read.

        Args:
            start: start of the batch.
            max_rows: maximum number of offsets.
            max_bytes: approximate maximum of stored bytes; at least one offset is read.
            min_rows: minimum number of offsets. Fewer are read only after option `maxTriggerDelay`.

        Raises:
            DataLoss: A queue ends before its start, or a topic was recreated or deleted, and option failOnDataLoss is
                true.
            OptionError: The options no longer select a queue of `start`, and option failOnDataLoss is true.
        """
        if not self._start_checked:
            check_still_read(self._options, start.queues)
            self._start_checked = True
        queues = selected_queues(self._options, self._bounds)
        real, told = with_topic_ids(self._bounds, queues, lambda _: self._bounds.max_offsets(queues))
        changed = recreated(start.topic_ids, told)
        self._report_recreated(changed)
        known = self._without_deleted(without(start.queues, changed), real)
        begin = self._begin(known, real, changed, start.since_ms)
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
        first = self._first([each for each in real if ends.get(each, 0) < real[each]])
        self._latest = self._reported(known, real, first, changed)
        self._planned = known | ends
        anew = {queue for queue in ends if place_of(queue) in changed}
        moved = {queue: end for queue, end in ends.items() if end != begin[queue] or queue in anew}
        ids = _of_places(start.topic_ids | told, known | moved)
        marks = self._marks(start, begin, moved, changed)
        if not moved and ids == start.topic_ids and known.keys() >= start.queues.keys():
            return start
        self._last_batch_s = self._clock()
        begun = known | {queue: begin[queue] for queue in anew}
        return StreamOffset(known | moved, begun if start.at_start else None, ids, start.since_ms, marks)

    def _marks(self, start: StreamOffset, begin: QueueOffsets, moved: QueueOffsets, changed: Sequence[Place]) -> Marks:
        """Compare the marks of the brokers with new messages, and return those of the end of the batch."""
        kept = {broker: mark for broker, mark in start.marks.items() if place_of(mark.queue) not in changed}
        brokers = {queue.broker_name for queue in moved}
        compared = {broker: mark for broker, mark in kept.items() if broker in brokers}
        new = new_places(begin, moved)
        found = self._bounds.stored_at([*map(place_of_mark, compared.values()), *new]) if moved else {}
        for mark in replaced(compared, found):
            report_restored(mark, fail=self._options.fail_on_data_loss)
            del kept[mark.queue.broker_name]
        for queue, offset in new:
            if (stored := found.get((queue, offset))) is not None:
                kept[queue.broker_name] = Mark(queue, offset, stored)
        return kept

    def _without_deleted(self, known: QueueOffsets, real: QueueOffsets) -> QueueOffsets:
        """Return the offsets without those of deleted topics."""
        deleted = deleted_topics(self._options, self._bounds, known, {queue.topic for queue in real})
        for topic in deleted:
            queues = [queue for queue in known if queue.topic == topic]
            ends = [self._known_ends.get(queue) for queue in queues]
            unread = sum(max(0, end - known[queue]) for queue, end in zip(queues, ends, strict=True) if end is not None)
            report_topic_deleted(
                topic, None if not unread and None in ends else unread, fail=self._options.fail_on_data_loss
            )
        for queue in [queue for queue in self._known_ends if queue.topic in deleted]:
            del self._known_ends[queue]
        return {queue: offset for queue, offset in known.items() if queue.topic not in deleted}

    def _reported(
        self, known: QueueOffsets, real: QueueOffsets, first: QueueOffsets, changed: Sequence[Place]
    ) -> ReportedEnds:
        """Return the ends for reports. Queues without a route have the last known end, and are logged when they
        change."""
        self._known_ends = without(self._known_ends, changed) | real
        unreachable = frozenset(known.keys() - real.keys())
        # A broker that offers fewer queues of a topic than before still knows the ends of the others.
        places = {place_of(queue) for queue in real}
        silent = sorted(each for each in unreachable - self._known_ends.keys() if place_of(each) in places)
        if silent:
            try:
                self._known_ends |= self._bounds.max_offsets(silent)
            except RaptorMQError as error:
                log.info("the reported lag lacks %d queues: %s", len(silent), error)
        ends = {queue: max(offset, self._known_ends.get(queue, 0)) for queue, offset in known.items()}
        if unreachable and unreachable != self._unreachable:
            log.warning(
                "%d queues cannot be reached, with at least %d unread messages: %s",
                len(unreachable),
                sum(ends[queue] - known[queue] for queue in unreachable),
                ", ".join(map(str, sorted(unreachable))),
            )
        self._unreachable = unreachable
        return ReportedEnds(ends | real, first, unreachable)

    def _may_wait(self, rows: int, min_rows: int) -> bool:
        """Return whether a batch of `rows` offsets waits for more. The first batch of a run never waits."""
        return rows < min_rows and self._clock() - self._last_batch_s < self._options.max_trigger_delay_s

    def _rows_of(self, begin: QueueOffsets, ends: QueueOffsets, max_bytes: int, max_rows: int | None) -> int | None:
        """Return the number of rows for `max_bytes` if queues are read in proportion to their backlogs.

        The size of unread messages is estimated from the first messages of each queue's backlog.
        """
        backlog = {each.queue: each.rows for each in ranges_between(begin, ends)}
        sizes = self._bounds.bytes_per_offset({queue: begin[queue] for queue in backlog}, self._options.expression)
        size = sum(rows * sizes[queue] for queue, rows in backlog.items())
        if size <= max_bytes:
            return max_rows
        rows = max(1, int(sum(backlog.values()) * max_bytes / size))
        return rows if max_rows is None else min(rows, max_rows)

    def _first(self, queues: Sequence[MessageQueue]) -> QueueOffsets:
        """Return the minimum offsets; empty on errors, since they are only used in reports."""
        try:
            return self._bounds.min_offsets(queues) if queues else {}
        except RaptorMQError as error:
            log.info("the reported lag may include deleted messages: %s", error)
            return {}

    def _begin(
        self, start: QueueOffsets, real: QueueOffsets, changed: Sequence[Place], since_ms: int | None
    ) -> QueueOffsets:
        shrunk = [queue for queue in real if real[queue] < start.get(queue, 0)]
        for queue in shrunk:
            self._report_shrunk(start, real, queue)
        unknown = [queue for queue in real if queue not in start]
        return start | self._first_of(unknown, changed, since_ms) | self._bounds.min_offsets(sorted(shrunk))

    def _first_of(self, queues: Sequence[MessageQueue], changed: Sequence[Place], since_ms: int | None) -> QueueOffsets:
        """Return where queues begin that have no offset. All messages of a topic that was recreated are new."""
        if since_ms is None:
            return self._bounds.min_offsets(queues)
        anew = [queue for queue in queues if place_of(queue) in changed]
        others = [queue for queue in queues if place_of(queue) not in changed]
        return self._bounds.min_offsets(anew) | self._bounds.offsets_by_time(others, since_ms)

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
        """Return the ranges of the tasks of a batch.

        Raises:
            DataLoss: A queue ends before its start, or a topic was recreated before the batch was read, and option
                failOnDataLoss is true.
        """
        # `end` has a start if it is the end of the first batch, which an earlier run of the query may have planned.
        begin, ids = (end.start, end.topic_ids) if end.start is not None else (start.queues, start.topic_ids)
        changed = recreated(ids, end.topic_ids)
        begin = without(begin, changed)
        moved = {queue: offset for queue, offset in end.queues.items() if begin.get(queue) != offset}
        gone = recreated(end.topic_ids, self._bounds.topic_ids(sorted(moved))) if moved else []
        self._report_recreated(gone)
        if not self._planned:  # an earlier run has planned the batch
            marks = {broker: mark for broker, mark in end.marks.items() if place_of(mark.queue) not in gone}
            for mark in replaced(marks, self._bounds.stored_at(list(map(place_of_mark, marks.values())))):
                report_restored(mark, fail=self._options.fail_on_data_loss)
        ends = without(moved, gone)
        shrunk = [queue for queue, offset in ends.items() if offset < begin.get(queue, 0)]
        for queue in shrunk:
            self._report_shrunk(begin, ends, queue)
        unknown = [queue for queue in ends if queue not in begin]
        first = begin | self._first_of(unknown, changed, end.since_ms) | self._bounds.min_offsets(shrunk)
        ranges = [QueueRange(queue, first[queue], ends[queue]) for queue in sorted(ends)]
        return split_ranges(
            [each for each in ranges if each.rows > 0],
            self._options.min_partitions,
            self._options.max_rows_per_partition,
        )

    def _report_recreated(self, places: Sequence[Place]) -> None:
        for topic, broker_name in places:
            report_recreated(topic, broker_name, fail=self._options.fail_on_data_loss)

    def _report_shrunk(self, start: QueueOffsets, end: QueueOffsets, queue: MessageQueue) -> None:
        what = f"{queue} was read up to offset {start[queue]} but ends at {end[queue]}"
        report_beyond_end(what, fail=self._options.fail_on_data_loss)


def _of_places(ids: TopicIds, offsets: QueueOffsets) -> TopicIds:
    """Return the topic ids of the places that have offsets."""
    places = {place_of(queue) for queue in offsets}
    return {place: topic_id for place, topic_id in ids.items() if place in places}
