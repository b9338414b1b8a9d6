"""The unfinished messages of one assigned queue, and the offset that may be committed. Pure.

`ProcessQueue` has the messages that were fetched and are not completed. Messages are completed in any order, but a
group has one committed offset per queue. That offset is the smallest one that is not completed: after a crash some
completed messages are delivered again, and none is lost (at least once)::

    fetched     10 11 12 13 14 15 | next_offset = 16
    completed    x  x     x  x
    commit_offset = 12 ----^

Messages for a batch listener are added as one run, known by the offset of its first message.

`RunningCalls` counts the listener calls that have messages of the queue, and reports when the last one has ended.

Neighbours: `consumer.queue_reader` adds messages while there is room, and waits for the calls before it gives its queue
up; `consumer.listener_pool` reports calls and completion. Source: RocketMQ `ProcessQueue`; none for `RunningCalls`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


class RunningCalls:
    """The number of listener calls that run now."""

    __slots__ = ("_idle", "count", "is_abandoned")

    def __init__(self) -> None:
        self.count = 0
        self.is_abandoned = False
        """A call that is not counted any more may still run, because it ignores its cancellation."""
        self._idle: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Count one more call."""
        self.count += 1

    def end(self) -> None:
        """Count one call less; the last one wakes those who wait."""
        self.count -= 1
        if not self.count and self._idle is not None:
            if not self._idle.done():
                self._idle.set_result(None)
            self._idle = None

    async def wait_idle(self, timeout: float | None) -> bool:
        """Wait until no call runs, at most `timeout` seconds, without limit if `None`; false when some still run."""
        if not self.count:
            return True
        if self._idle is None:
            self._idle = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait([self._idle], timeout=timeout)
        return bool(done)


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits at which fetching from a queue pauses until the listeners catch up."""

    max_messages: int
    """Unfinished messages; positive."""
    max_bytes: int
    """Bytes of their bodies; positive."""
    max_span: int
    """Distance between the smallest unfinished offset and the next one to fetch; bounds what is repeated after a crash.
    """


class ProcessQueue:
    """The unfinished messages of one queue, by queue offset."""

    __slots__ = ("_bytes", "_messages", "_next_offset", "_order", "_sizes", "calls", "dropped", "revoked", "topic_id")

    def __init__(self, start_offset: int, topic_id: str | None = None) -> None:
        self.topic_id = topic_id
        """Id of the topic that the offsets belong to; `None` while it is not known."""
        self._next_offset = start_offset
        self._order: deque[int] = deque()
        self._sizes: dict[int, tuple[int, int]] = {}
        """Number and bytes of the unfinished messages of each run, by its first offset."""
        self._messages = 0
        self._bytes = 0
        self.calls = RunningCalls()
        """Listener calls that have messages of this queue."""
        self.revoked = False
        """The queue goes to another member: nothing more is submitted, but completed messages still count."""
        self.dropped = False
        """The queue is read from another position: nothing more is submitted, and completed messages do not count."""

    @property
    def is_closed(self) -> bool:
        """Whether messages must not be submitted to listeners any more."""
        return self.revoked or self.dropped

    @property
    def next_offset(self) -> int:
        """Queue offset of the next message to fetch."""
        return self._next_offset

    @property
    def commit_offset(self) -> int:
        """Offset from which another member has to continue: the smallest unfinished one, or the next to fetch."""
        return self._order[0] if self._order else self._next_offset

    @property
    def unfinished_messages(self) -> int:
        """Messages added and not completed."""
        return self._messages

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the messages added and not completed."""
        return self._bytes

    def add(self, offset: int, size: int, count: int = 1, last_offset: int | None = None) -> bool:
        """Add a fetched message or run; false when it was added before and must not be submitted again.

        Args:
            offset: offset of the message, or of the first message of a run.
            size: bytes of the bodies.
            count: messages of the run.
            last_offset: offset of the last message of the run.
        """
        if offset < self._next_offset:
            return False
        self._order.append(offset)
        self._sizes[offset] = count, size
        self._messages += count
        self._bytes += size
        self._next_offset = (offset if last_offset is None else last_offset) + 1
        return True

    def advance(self, next_offset: int) -> None:
        """Record that every message before `next_offset` was fetched or filtered out; never moves backwards."""
        self._next_offset = max(self._next_offset, next_offset)

    def complete(self, offset: int) -> None:
        """Complete what was added at `offset`; does nothing for an offset that is not unfinished."""
        done = self._sizes.pop(offset, None)
        if done is None:
            return
        self._messages -= done[0]
        self._bytes -= done[1]
        while self._order and self._order[0] not in self._sizes:
            self._order.popleft()

    def is_full(self, limits: FlowLimits) -> bool:
        """Whether fetching has to pause."""
        return (
            self._messages >= limits.max_messages
            or self._bytes >= limits.max_bytes
            or self._next_offset - self.commit_offset >= limits.max_span
        )
