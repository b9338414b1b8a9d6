"""Progress of one assigned queue: what was fetched, what is finished, what may be committed, which calls run. Pure.

`ProcessQueue` has the unfinished messages. Messages finish in any order, but a group's progress is one number per
queue, so the offset to commit is the smallest one that is not finished yet: after a crash some finished messages come
again, none is lost (at least once).

    fetched     10 11 12 13 14 15 | next_offset = 16
    finished     x  x     x  x
    commit_offset = 12 ----^

What is handed to a batch listener is admitted as one: a run of messages known by the offset of its first.

`RunningCalls` counts the listener calls that have messages of the queue, and tells when the last one has ended.

Neighbours: `consumer.queue_reader` admits messages while there is room, and waits for the calls before its queue goes
to another member; `consumer.listener_pool` reports calls and completion. Source: RocketMQ `ProcessQueue`; none for
`RunningCalls`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


class RunningCalls:
    """How many calls run now."""

    __slots__ = ("_idle", "count")

    def __init__(self) -> None:
        self.count = 0
        self._idle: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Count one more."""
        self.count += 1

    def end(self) -> None:
        """Count one less; the last one lets those go on who wait for it."""
        self.count -= 1
        if not self.count and self._idle is not None:
            if not self._idle.done():
                self._idle.set_result(None)
            self._idle = None

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until none runs, at most `timeout` seconds; false when some still do."""
        if not self.count:
            return True
        if self._idle is None:
            self._idle = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait([self._idle], timeout=timeout)
        return bool(done)


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """When fetching of one queue pauses until the listeners catch up."""

    max_messages: int
    """Unfinished messages held; positive."""
    max_bytes: int
    """Bytes of their bodies; positive."""
    max_span: int
    """Distance between the smallest unfinished offset and the next to fetch: bounds what a crash repeats."""


class ProcessQueue:
    """The unfinished messages of one queue, by queue offset."""

    __slots__ = ("_bytes", "_messages", "_next_offset", "_order", "_sizes", "calls", "dropped", "revoked", "topic_id")

    def __init__(self, start_offset: int, topic_id: str | None = None) -> None:
        self.topic_id = topic_id
        """Of the topic that the offsets are of; `None` as long as it is not known."""
        self._next_offset = start_offset
        self._order: deque[int] = deque()
        self._sizes: dict[int, tuple[int, int]] = {}
        """Messages and bytes of what is unfinished, by its first offset."""
        self._messages = 0
        self._bytes = 0
        self.calls = RunningCalls()
        """Listener calls that have messages of this queue."""
        self.revoked = False
        """The queue goes to another member: no more is handed out, what listeners have still counts."""
        self.dropped = False
        """Another place to read from counts now: no more is handed out, and what listeners have does not matter."""

    @property
    def is_closed(self) -> bool:
        """Whether messages must not be handed out any more."""
        return self.revoked or self.dropped

    @property
    def next_offset(self) -> int:
        """Queue offset from which to fetch next."""
        return self._next_offset

    @property
    def commit_offset(self) -> int:
        """Where another member has to go on: the smallest unfinished offset, or the next to fetch."""
        return self._order[0] if self._order else self._next_offset

    @property
    def unfinished_messages(self) -> int:
        """Messages admitted and not completed."""
        return self._messages

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the messages admitted and not completed."""
        return self._bytes

    def add(self, offset: int, size: int, count: int = 1, last_offset: int | None = None) -> bool:
        """Take in what was fetched; false when it was seen before and must not be handed out again.

        Args:
            offset: of the message, or of the first of a run.
            size: bytes of the bodies.
            count: messages of the run.
            last_offset: of the last of them.
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
        """Record that everything before `next_offset` was fetched or filtered out; never moves backwards."""
        self._next_offset = max(self._next_offset, next_offset)

    def complete(self, offset: int) -> None:
        """Record that what was admitted at `offset` is finished; an offset that is not unfinished is ignored."""
        done = self._sizes.pop(offset, None)
        if done is None:
            return
        self._messages -= done[0]
        self._bytes -= done[1]
        while self._order and self._order[0] not in self._sizes:
            self._order.popleft()

    def is_full(self, limits: FlowLimits) -> bool:
        """Whether fetching must pause."""
        return (
            self._messages >= limits.max_messages
            or self._bytes >= limits.max_bytes
            or self._next_offset - self.commit_offset >= limits.max_span
        )
