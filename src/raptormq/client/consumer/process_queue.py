"""The unfinished messages of one assigned queue, and the offset that may be committed. No I/O.

`ProcessQueue` tracks fetched messages until they are completed. Messages are completed in any order, but a group has
one committed offset per queue. The committed offset is the smallest offset that is not completed. After a crash some
completed messages are redelivered, and none is lost (at least once)::

    fetched     10 11 12 13 14 15 | next_offset = 16
    completed    x  x     x  x
    commit_offset = 12 ----^

Messages for a batch listener are added as one run, identified by the offset of its first message.

`RunningCalls` counts the running listener calls with messages of the queue, and signals when the last one has ended.
It outlives a `ProcessQueue`: calls continue when their queue is read from another offset.

See also: `consumer.queue_reader` adds messages within the flow limits, and waits for the calls before it gives up its
queue; `consumer.listener_pool` reports calls and completion. Source: RocketMQ `ProcessQueue`; none for `RunningCalls`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass


def now_ms() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000


class RunningCalls:
    """Counter of running listener calls."""

    __slots__ = ("_idle", "count", "is_abandoned", "last_ms")

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = now_ms()
        """Time of the last begin or end of a call, or of the creation, in ms since 1970."""
        self.is_abandoned = False
        """True if a call that is no longer counted may still run, because it ignores its cancellation."""
        self._idle: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Count one more call."""
        self.count += 1
        self.last_ms = now_ms()

    def end(self) -> None:
        """Count one call less. The end of the last call wakes the waiters."""
        self.count -= 1
        self.last_ms = now_ms()
        if not self.count and self._idle is not None:
            if not self._idle.done():
                self._idle.set_result(None)
            self._idle = None

    async def wait_idle(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds until no call runs; without a limit if None. Return False if calls are still
        running."""
        if not self.count:
            return True
        if self._idle is None:
            self._idle = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait([self._idle], timeout=timeout)
        return bool(done)


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits on unfinished messages, above which fetching from a queue pauses."""

    max_messages: int
    """Unfinished messages; positive."""
    max_bytes: int
    """Bytes of their bodies; positive."""
    max_span: int
    """Distance between the smallest unfinished offset and the next offset to fetch; limits the redelivered messages
    after a crash.
    """


class ProcessQueue:
    """The unfinished messages of one queue, by queue offset."""

    __slots__ = ("_bytes", "_messages", "_next_offset", "_order", "_sizes", "dropped", "revoked", "topic_id")

    def __init__(self, start_offset: int, topic_id: str | None = None) -> None:
        self.topic_id = topic_id
        """Id of the topic that the offsets belong to; `None` while it is not known."""
        self._next_offset = start_offset
        self._order: deque[int] = deque()
        self._sizes: dict[int, tuple[int, int]] = {}
        """Number and bytes of the messages of each unfinished run, by its first offset."""
        self._messages = 0
        self._bytes = 0
        self.revoked = False
        """True after the queue was revoked: no more messages are submitted, but completions are still recorded."""
        self.dropped = False
        """True after a reset to another position, or after the queue was released: no more messages are submitted, and
        completions are ignored.
        """

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
        """Offset at which another member must continue: the smallest unfinished offset, or the next offset to fetch."""
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
        """Add a fetched message or run. Return False if it was already added and must not be submitted again.

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
        """Record that all messages before `next_offset` were fetched or filtered out. The offset never decreases."""
        self._next_offset = max(self._next_offset, next_offset)

    def complete(self, offset: int) -> None:
        """Complete the message or run at `offset`; no effect if it is unknown or already completed."""
        done = self._sizes.pop(offset, None)
        if done is None:
            return
        self._messages -= done[0]
        self._bytes -= done[1]
        while self._order and self._order[0] not in self._sizes:
            self._order.popleft()

    def is_full(self, limits: FlowLimits) -> bool:
        """Return whether fetching must pause."""
        return (
            self._messages >= limits.max_messages
            or self._bytes >= limits.max_bytes
            or self._next_offset - self.commit_offset >= limits.max_span
        )
