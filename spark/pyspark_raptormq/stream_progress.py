"""How a streaming query moves from one offset to the next. Pure but for the questions it asks of the brokers.

    start --(latest offsets, limit)--> end --(split)--> ranges

Rules: a queue that is new begins at its first message; a queue that cannot be seen at the moment keeps its offset, for
a broker that restarts is not a loss; a queue that ends before the start has lost messages. With Trigger.AvailableNow
the ends found at its beginning are the last ones.

Neighbours: `stream_reader` translates between this and Spark.
"""

from __future__ import annotations

from pyspark_raptormq.cluster_offsets import Bounds, check_assigned, offsets_at, selected_queues
from pyspark_raptormq.data_loss import report_data_loss
from pyspark_raptormq.offsets import QueueOffsets, StreamOffset
from pyspark_raptormq.options import EARLIEST, SourceOptions
from pyspark_raptormq.planner import QueueRange, limit_offsets, split_ranges
from raptormq.protocol.message import MessageQueue


class StreamProgress:
    """The offsets of one streaming query."""

    def __init__(self, options: SourceOptions, bounds: Bounds) -> None:
        self._options = options
        self._bounds = bounds
        self._initial: StreamOffset | None = None
        self._last_ends: QueueOffsets | None = None
        self._latest: QueueOffsets | None = None

    @property
    def latest(self) -> StreamOffset | None:
        """The ends of all queues when they were last asked for, whatever the limits."""
        return None if self._latest is None else StreamOffset(self._latest)

    def initial(self) -> StreamOffset:
        """Return where a new query starts: found once, for Spark asks twice and "latest" moves."""
        if self._initial is None:
            check_assigned(self._options, self._bounds)
            queues = selected_queues(self._options, self._bounds)
            start = offsets_at(self._options.start, queues, self._bounds, unnamed=EARLIEST)
            self._initial = StreamOffset(start, start)
        return self._initial

    def freeze(self) -> None:
        """Read nothing that is stored after this call."""
        queues = selected_queues(self._options, self._bounds)
        self._last_ends = self._bounds.max_offsets(queues)

    def advance(self, start: StreamOffset, max_rows: int | None) -> StreamOffset:
        """Return the end of the next batch, `start` itself when there is nothing to read.

        Raises:
            DataLoss: a queue ends before its start, and option failOnDataLoss is true.
        """
        real = self._bounds.max_offsets(selected_queues(self._options, self._bounds))
        self._latest = start.queues | real
        begin = self._begin(start, real)
        ends = real
        if self._last_ends is not None:
            ends = {queue: min(end, self._last_ends[queue]) for queue, end in real.items() if queue in self._last_ends}
        ends = {queue: max(end, begin[queue]) for queue, end in ends.items()}
        if max_rows is not None:
            ends = limit_offsets(begin, ends, max_rows)
        moved = {queue: end for queue, end in ends.items() if end != begin[queue]}
        if not moved:
            return start
        return StreamOffset(start.queues | moved, start.queues if start.at_start else None)

    def _begin(self, start: StreamOffset, real: QueueOffsets) -> QueueOffsets:
        shrunk = [queue for queue in real if real[queue] < start.queues.get(queue, 0)]
        for queue in shrunk:
            self._report_shrunk(start.queues, real, queue)
        unknown = [queue for queue in real if queue not in start.queues]
        return start.queues | self._bounds.min_offsets(sorted({*unknown, *shrunk}))

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
        """Return what the tasks of a batch read.

        Raises:
            DataLoss: the end is before the start in some queue, and option failOnDataLoss is true.
        """
        # An end that carries its own start is the end of the first batch, maybe planned by an earlier run of the query.
        begin = end.start if end.start is not None else start.queues
        shrunk = [queue for queue, offset in end.queues.items() if offset < begin.get(queue, 0)]
        for queue in shrunk:
            self._report_shrunk(begin, end.queues, queue)
        changed = [queue for queue, offset in end.queues.items() if begin.get(queue) != offset]
        unknown = [queue for queue in changed if queue not in begin or queue in shrunk]
        first = begin | self._bounds.min_offsets(unknown) if unknown else begin
        ranges = [QueueRange(queue, first[queue], end.queues[queue]) for queue in sorted(changed)]
        return split_ranges(
            [each for each in ranges if each.rows > 0],
            self._options.min_partitions,
            self._options.max_rows_per_partition,
        )

    def _report_shrunk(self, start: QueueOffsets, end: QueueOffsets, queue: MessageQueue) -> None:
        what = f"{queue} was read up to offset {start[queue]} but ends at {end[queue]}"
        report_data_loss(what, fail=self._options.fail_on_data_loss)
