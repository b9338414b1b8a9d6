"""Planning of offset ranges: the end of a micro-batch, and the ranges of its tasks. No I/O.

`cluster_offsets` provides the bounds; `reader` and `stream_progress` use the results.
Source: the rate limit and the range calculator of Spark's Kafka connector.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark_raptormq.offsets import QueueOffsets
from raptormq.protocol.message import MessageQueue

_MAX_SHARED_ROWS = 1000
"""Maximum number of offsets of a task that reads several ranges."""


@dataclass(frozen=True, order=True, slots=True)
class QueueRange:
    """Offsets `start` <= o < `end` of one queue; never empty."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def rows(self) -> int:
        """Number of offsets, an upper bound of the number of messages."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.queue}[{self.start}, {self.end})"


def ranges_between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[QueueRange]:
    """Return the non-empty ranges of the queues that are in both maps, sorted."""
    common = sorted(queue for queue in end if queue in start)
    return [QueueRange(queue, start[queue], end[queue]) for queue in common if end[queue] > start[queue]]


def split_ranges(
    ranges: Iterable[QueueRange], min_partitions: int | None = None, max_rows: int | None = None
) -> list[QueueRange]:
    """Split ranges into parts of nearly equal length, one per task, sorted. Each part has offsets of one queue.

    Args:
        ranges: ranges to read.
        min_partitions: minimum number of parts, if there are enough offsets.
        max_rows: maximum length of a part.
    """
    whole = list(ranges)
    counts = _parts_per_range(whole, min_partitions or 0)
    if max_rows is not None:
        counts = [max(count, -(-each.rows // max_rows)) for each, count in zip(whole, counts, strict=True)]
    return sorted(part for each, count in zip(whole, counts, strict=True) for part in _cut(each, count))


def pack_ranges(
    ranges: Iterable[QueueRange], min_partitions: int | None = None, max_rows: int | None = None
) -> list[list[QueueRange]]:
    """Return the ranges of each task. Small ranges share a task, because a task of a Python source takes about 30 ms of
    a core, as long as reading some thousand messages. With `min_partitions` every range has its own task.

    Args:
        ranges: the parts that `split_ranges` returns.
        min_partitions: option `minPartitions`.
        max_rows: option `maxRowsPerPartition`.
    """
    limit = 0 if min_partitions is not None else min(_MAX_SHARED_ROWS, max_rows or _MAX_SHARED_ROWS)
    tasks: list[list[QueueRange]] = []
    rows = 0
    for each in ranges:
        if tasks and rows + each.rows <= limit:
            tasks[-1].append(each)
            rows += each.rows
        else:
            tasks.append([each])
            rows = each.rows
    return tasks


def _parts_per_range(ranges: Sequence[QueueRange], min_partitions: int) -> list[int]:
    """Return the number of parts per range: initially one each, then repeatedly one more for the range with the longest
    parts."""
    counts = [1] * len(ranges)
    longest = [(-float(each.rows), index) for index, each in enumerate(ranges)]
    heapq.heapify(longest)
    for _ in range(min_partitions - len(ranges)):
        if not longest or longest[0][0] >= -1:
            break
        index = longest[0][1]
        counts[index] += 1
        heapq.heapreplace(longest, (-ranges[index].rows / counts[index], index))
    return counts


def _cut(whole: QueueRange, count: int) -> list[QueueRange]:
    """Split a range into `count` parts whose lengths differ by at most one."""
    bounds = [whole.start + whole.rows * index // count for index in range(count + 1)]
    return [QueueRange(whole.queue, low, high) for low, high in itertools.pairwise(bounds)]


def limit_offsets(start: Mapping[MessageQueue, int], latest: QueueOffsets, max_rows: int) -> QueueOffsets:
    """Return the end of a batch of at most `max_rows` offsets between `start` and `latest`.

    Each queue with a backlog gets at least one row; the remaining rows are shared in proportion to the backlogs. If
    there are more such queues than rows, the queues are served round-robin. The sum of the start offsets selects the
    first queue, so that no additional state is needed.

    The end of a queue is never before its start, even if `latest` is.
    """
    backlog = {each.queue: each.rows for each in ranges_between(start, latest)}
    end = {queue: max(start[queue], offset) for queue, offset in latest.items() if queue in start}
    if sum(backlog.values()) <= max_rows:
        return end
    turn = _rotated(sorted(backlog), sum(start[queue] for queue in backlog))
    granted = dict.fromkeys(turn[:max_rows], 1)
    if max_rows > len(turn):
        _share(granted, backlog, turn, max_rows - len(turn))
    return end | {queue: start[queue] + granted.get(queue, 0) for queue in backlog}


def _share(
    granted: dict[MessageQueue, int], backlog: Mapping[MessageQueue, int], turn: Sequence[MessageQueue], rows: int
) -> None:
    """Distribute `rows` further rows in proportion to the remaining backlogs. `rows` is less than their sum."""
    beyond = {queue: backlog[queue] - 1 for queue in turn}
    total = sum(beyond.values())
    for queue in turn:
        granted[queue] += beyond[queue] * rows // total
    remainder = len(turn) + rows - sum(granted.values())
    # Rounding loses less than one row per queue with a remaining backlog, so one pass distributes the remainder.
    for queue in [queue for queue in turn if granted[queue] < backlog[queue]][:remainder]:
        granted[queue] += 1


def _rotated(queues: Sequence[MessageQueue], by: int) -> list[MessageQueue]:
    first = by % len(queues)
    return [*queues[first:], *queues[:first]]
