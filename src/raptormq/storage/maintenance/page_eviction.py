"""Gives pages of the log back to the kernel that nobody waits for any more, so that the pages written next are those.

The page cache grows with the log until memory is full. From then on each write has to wait for the kernel to find the
page that was used least recently; in a container, or on a virtual machine whose host backs memory on first use, that
costs more than everything else a broker does with a batch. Messages that all groups have consumed are hardly read
again, and a page that has just been given back is the cheapest one to write to.

What stays is left to the kernel as ever: the newest bytes, whatever they are; what a group has yet to consume, unless
it has not moved for a quarter of an hour; and what is older than this process. A topic without any group keeps more of
its newest bytes, for the first one. Topics of the broker's own are not waited for. Whoever comes later than that reads
from the disk, in long pieces. How far queues had come when the log had a certain length is written down now and then;
no message is read to find out.

Neighbour: :mod:`~raptormq.storage.log.readahead` has the pages in memory that are written to next.
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
"""Marks that are made while ``kept_bytes`` are written."""
MAX_WATERMARKS = 16
NEW_GROUP_FACTOR = 3
"""Times ``kept_bytes`` behind the end of the log, a topic without a group is not kept for a first one any longer."""
STALLED_S = 15 * 60
"""A queue that a group has yet to consume, and whose offset has not changed for so long, is not waited for."""
RECHECK_S = 5.0
"""Time until it is looked again who is behind; clients commit every 5 seconds, too."""
_NO_GROUP_YET = frozenset({""})
"""In place of the groups of a topic that has none: somebody may be about to consume it from its beginning."""

_QUEUES_PER_STEP = 1024
_NEVER = sys.maxsize

_GroupQueue = tuple[str, str, int]
"""Topic, group and id of a queue."""
_Row = tuple[str, str, dict[int, int]]
"""Topic, group, and how far it has to come in which queues."""


class _Watermark(NamedTuple):
    """How far the queues had come when the log had a certain length."""

    log_offset: int
    ends: dict[str, dict[int, int]]
    """Topic, id of the queue, offset of its next message; for queues that have grown since the mark before."""


class _Backlog(NamedTuple):
    """A group that has yet to consume something of a queue."""

    offset: int
    since: float
    """When it was first seen to be there."""


class PageEvictor:
    """Releases pages of ``log`` that are at least ``kept_bytes`` behind its end; with 0 none. Belongs to one loop."""

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
        """``clock`` counts seconds."""
        self._filesystem = filesystem
        self._log = log
        self._dispatcher = dispatcher
        self._queues = queues
        self._offsets = offsets
        self._kept_bytes = kept_bytes
        self._clock = clock
        self._begin = log.end_offset  # everything before is released, or was given up
        self._watermark_offset = self._begin
        self._watermarks: deque[_Watermark] = deque()
        self._ends = {topic: self._ends_of(topic) for topic in queues.topics()}
        self._backlogs: dict[_GroupQueue, _Backlog] = {}
        self._next_check = 0.0  # or when the log ends at:
        self._next_check_end = 0

    async def run(self, executor: Executor) -> int:
        """Release what may be released by now, and return how many bytes; to be called about twice a second."""
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
        self._watermark_offset = self._dispatcher.dispatched_offset  # before the queues: they may only be ahead of it
        watermark = _Watermark(self._watermark_offset, {})
        topics = self._queues.topics()
        for gone in self._ends.keys() - topics:
            self._drop_topic(gone)
        async for topic in cooperatively(topics):
            if is_system_topic(topic):
                continue
            ends = self._ends_of(topic)
            before = self._ends.get(topic, {})
            if any(end < before.get(queue_id, 0) for queue_id, end in ends.items()):
                self._drop_topic(topic)  # and it has begun another one
                before = {}
            if grown := {queue_id: end for queue_id, end in ends.items() if end > before.get(queue_id, 0)}:
                watermark.ends[topic] = grown
                self._ends[topic] = ends
        self._watermarks.append(watermark)
        if len(self._watermarks) > MAX_WATERMARKS:  # somebody is far behind: the kernel knows what it has room for
            self._begin = self._watermarks.popleft().log_offset

    def _drop_topic(self, topic: str) -> None:
        """A topic was deleted: nobody consumes what its queues held."""
        del self._ends[topic]
        for watermark in self._watermarks:
            watermark.ends.pop(topic, None)

    def _postpone_check(self, blocking: _Watermark) -> None:
        self._next_check = self._clock() + RECHECK_S
        end = self._new_group_end(blocking)
        self._next_check_end = end if end > self._log.end_offset else _NEVER

    def _new_group_end(self, watermark: _Watermark) -> int:
        """Return the end of the log from which on what was there at ``mark`` is not kept for a first group."""
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
        """Forget the waiting of groups and queues that are gone, and of groups that have come further."""
        backlogs: dict[_GroupQueue, _Backlog] = {}
        async for place, each in cooperatively(self._backlogs.items()):
            topic, group, queue_id = place
            is_here = group in groups.get(topic, _NO_GROUP_YET) and self._queues.get(topic, queue_id) is not None
            if is_here and self._offsets.row(topic, group).get(queue_id, 0) == each.offset:
                backlogs[place] = each
        self._backlogs = backlogs

    async def _is_needed(self, watermark: _Watermark, groups: dict[str, set[str]]) -> bool:
        """Whether somebody is expected to consume what came into the queues before ``mark``."""
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
        """Return when a group was first seen to be at ``offset``."""
        before = self._backlogs.get(place)
        if before is None or before.offset != offset:
            before = self._backlogs[place] = _Backlog(offset, self._clock())
        return before.since


def _rows(
    watermark: _Watermark, groups: dict[str, set[str]], no_group_yet: AbstractSet[str]
) -> Iterator[tuple[str, str, dict[int, int]]]:
    """Yield who might have yet to consume what, and up to where, so many queues at a time that no step is long;
    ``newcomers`` stand for groups that are to come.
    """
    for topic, ends in watermark.ends.items():
        parts = [ends] if len(ends) <= _QUEUES_PER_STEP else list(_parts(ends))
        for group in groups.get(topic, no_group_yet):
            for part in parts:
                yield topic, group, part


def _parts(ends: dict[int, int]) -> Iterator[dict[int, int]]:
    items = iter(ends.items())
    while part := dict(islice(items, _QUEUES_PER_STEP)):
        yield part
