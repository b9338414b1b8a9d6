"""Evicts pages of the log that no consumer is expected to read, so that the kernel reuses them for the next writes.

The page cache grows with the log until memory is full. After that, each write has to wait until the kernel finds the
least recently used page. In a container, or on a virtual machine whose host backs memory on first use, that costs more
than everything else a broker does with a batch. Messages that all groups have consumed are rarely read again, and a
page that was just freed is the cheapest one to write to.

Three kinds of pages are left to the kernel: the newest bytes; messages that a group has yet to consume, unless its
offset has not changed for 15 minutes; and everything older than this process. A topic without groups keeps more of its
newest bytes, for its first group. System topics are ignored. Late readers read from the disk, in long pieces.
Watermarks record from time to time how far the queues had grown at an offset of the log; no message is read for that.

See also: :mod:`~raptormq.storage.log.readahead` prepares the pages that are written next.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import NamedTuple

from raptormq.protocol.topic_names import is_system_topic
from raptormq.storage.background import Executor, cooperatively
from raptormq.storage.fs import FileSystem, evict_pages
from raptormq.storage.log import CommitLog
from raptormq.storage.queue import ConsumerOffsets, QueueTable
from raptormq.storage.records import Dispatcher

WATERMARKS_PER_KEPT = 4
"""Number of watermarks that are added while ``kept_bytes`` are written."""
MAX_WATERMARKS = 16
NEW_GROUP_FACTOR = 3
"""Pages of a topic without groups are kept up to this multiple of ``kept_bytes`` behind the end of the log."""
STALLED_S = 15 * 60
"""Time in seconds after which a lagging group whose offset in a queue has not changed is ignored there."""
RECHECK_S = 5.0
"""Time in seconds until groups that block an eviction are checked again. Clients commit every 5 seconds."""
_NO_GROUP_YET = frozenset({""})
"""Placeholder group of a topic without groups, because a first group may consume the topic from its beginning."""

_QUEUES_PER_STEP = 1024
_NEVER = sys.maxsize

_GroupQueue = tuple[str, str, int]
"""Topic, group and queue id."""


class _Watermark(NamedTuple):
    """The ends of the queues when the log had a certain length."""

    log_offset: int
    ends: dict[str, dict[int, int]]
    """Topic, queue id, offset of the next message; for queues that have grown since the previous watermark."""


class _Backlog(NamedTuple):
    """State of a group that has not consumed a queue to its end."""

    offset: int
    since: float
    """Time (seconds) when the group was first seen at this offset."""


class PageEvictor:
    """Evicts pages of ``log`` that are at least ``kept_bytes`` behind its end; evicts none when it is 0. Belongs to one
    event loop.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        log: CommitLog,
        dispatcher: Dispatcher,
        queues: QueueTable,
        offsets: ConsumerOffsets,
        kept_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` returns seconds."""
        self._filesystem = filesystem
        self._log = log
        self._dispatcher = dispatcher
        self._queues = queues
        self._offsets = offsets
        self._kept_bytes = kept_bytes
        self._clock = clock
        self._begin = log.end_offset  # pages before this offset are evicted or left to the kernel
        self._watermark_offset = self._begin
        self._watermarks: deque[_Watermark] = deque()
        self._ends = {topic: self._ends_of(topic) for topic in queues.topics()}
        self._backlogs: dict[_GroupQueue, _Backlog] = {}
        self._next_check = 0.0  # or when the log has reached this offset:
        self._next_check_end = 0

    async def run(self, executor: Executor) -> int:
        """Evict the pages that may be evicted now. Return their size in bytes. Called about twice per second."""
        if not self._kept_bytes:
            return 0
        if self._dispatcher.dispatched_offset - self._watermark_offset >= max(
            self._kept_bytes // WATERMARKS_PER_KEPT, 1
        ):
            await self._add_watermark()
        limit = min(self._log.flushed_offset, self._log.end_offset - self._kept_bytes, self._log.mapped_from)
        is_time = self._clock() >= self._next_check or self._log.end_offset >= self._next_check_end
        begin = self._begin
        if not self._watermarks or self._watermarks[0].log_offset > limit or not is_time:
            return 0
        groups = await self._groups()
        await self._prune_backlogs(groups)
        while self._watermarks and self._watermarks[0].log_offset <= limit:
            if await self._is_needed(self._watermarks[0], groups):
                self._postpone_check(self._watermarks[0])
                break
            self._begin = self._watermarks.popleft().log_offset
        if self._begin == begin:
            return 0
        return await executor.run(evict_pages, self._filesystem, self._log.extents(begin, self._begin))

    async def _add_watermark(self) -> None:
        self._watermark_offset = (
            self._dispatcher.dispatched_offset
        )  # read first, so that the queues are at this offset or beyond it
        watermark = _Watermark(self._watermark_offset, {})
        topics = self._queues.topics()
        for deleted in self._ends.keys() - topics:
            self._drop_topic(deleted)
        async for topic in cooperatively(topics):
            if is_system_topic(topic):
                continue
            ends = self._ends_of(topic)
            before = self._ends.get(topic, {})
            if any(end < before.get(queue_id, 0) for queue_id, end in ends.items()):
                self._drop_topic(topic)  # the topic was deleted and created again
                before = {}
            if grown := {queue_id: end for queue_id, end in ends.items() if end > before.get(queue_id, 0)}:
                watermark.ends[topic] = grown
                self._ends[topic] = ends
        self._watermarks.append(watermark)
        if len(self._watermarks) > MAX_WATERMARKS:  # a group lags far behind, so these pages are left to the kernel
            self._begin = self._watermarks.popleft().log_offset

    def _drop_topic(self, topic: str) -> None:
        """Drop the ends of a deleted topic, whose queues have no consumers."""
        del self._ends[topic]
        for watermark in self._watermarks:
            watermark.ends.pop(topic, None)

    def _postpone_check(self, blocking: _Watermark) -> None:
        self._next_check = self._clock() + RECHECK_S
        end = self._new_group_end(blocking)
        self._next_check_end = end if end > self._log.end_offset else _NEVER

    def _new_group_end(self, watermark: _Watermark) -> int:
        """Return the log end from which on a first group no longer keeps the messages before ``watermark``."""
        return watermark.log_offset + NEW_GROUP_FACTOR * self._kept_bytes

    def _ends_of(self, topic: str) -> dict[int, int]:
        return {queue.queue_id: queue.max_offset for queue in self._queues.queues_of(topic)}

    async def _groups(self) -> dict[str, set[str]]:
        """Return the groups of each topic."""
        groups = defaultdict(set)
        async for topic, group in cooperatively(self._offsets.topics_and_groups()):
            groups[topic].add(group)
        return groups

    async def _prune_backlogs(self, groups: dict[str, set[str]]) -> None:
        """Remove the backlogs of groups and queues that do not exist any more, and of groups that have advanced."""
        backlogs: dict[_GroupQueue, _Backlog] = {}
        async for place, each in cooperatively(self._backlogs.items()):
            topic, group, queue_id = place
            is_here = group in groups.get(topic, _NO_GROUP_YET) and self._queues.get(topic, queue_id) is not None
            if is_here and self._offsets.row(topic, group).get(queue_id, 0) == each.offset:
                backlogs[place] = each
        self._backlogs = backlogs

    async def _is_needed(self, watermark: _Watermark, groups: dict[str, set[str]]) -> bool:
        """Return whether a group is expected to consume messages added before ``watermark``."""
        long_ago = self._clock() - STALLED_S
        no_group_yet = _NO_GROUP_YET if self._log.end_offset < self._new_group_end(watermark) else frozenset()
        is_needed = False
        async for topic, group, ends in cooperatively(_rows(watermark, groups, no_group_yet)):
            row = self._offsets.row(topic, group)
            behind = {queue_id for queue_id, end in ends.items() if row.get(queue_id, end if row else 0) < end}
            for queue_id in behind:
                is_needed |= self._stalled_since((topic, group, queue_id), row.get(queue_id, 0)) > long_ago
        return is_needed

    def _stalled_since(self, place: _GroupQueue, offset: int) -> float:
        """Return the time (seconds) when the group was first seen at ``offset``."""
        before = self._backlogs.get(place)
        if before is None or before.offset != offset:
            before = self._backlogs[place] = _Backlog(offset, self._clock())
        return before.since


def _rows(
    watermark: _Watermark, groups: dict[str, set[str]], no_group_yet: AbstractSet[str]
) -> Iterator[tuple[str, str, dict[int, int]]]:
    """Yield topic, group and target offsets that may not have been consumed. Each row has a limited number of queues,
    so that no step takes long. ``no_group_yet`` stands for future groups.
    """
    for topic, ends in watermark.ends.items():
        chunks = [ends] if len(ends) <= _QUEUES_PER_STEP else list(_chunks(ends))
        for group in groups.get(topic, no_group_yet):
            for chunk in chunks:
                yield topic, group, chunk


def _chunks(ends: dict[int, int]) -> Iterator[dict[int, int]]:
    items = iter(ends.items())
    while chunk := dict(islice(items, _QUEUES_PER_STEP)):
        yield chunk
