"""Lanes: messages that must be consumed sequentially. No I/O.

A lane contains the fetched and unconsumed messages of one key, or of one queue. At most one call per lane runs at a
time. A lane exists only while it has messages, so the number of lanes is bounded by the number of unfinished messages::

    lane "account 7"   m3 m9 m12 --> next call          (its call may fail: the lane waits and tries m3 again)
    lane "account 8"   m4 -------> next call            (not affected)
    lane without key   m5 m6 m11 -> next call

Lanes are identified by the key itself instead of a hash, so two keys never share a lane. The order within a lane is the
order of `Lanes.add`, which is the order of the queue. Messages of one key from several queues are in the order in which
they were fetched.

Messages of a blocked queue (paused, or without a confirmed lock) are set aside, and the lane continues with messages of
other queues. They are put back to the front of the lane when the queue is released.

A failed call of several messages is repeated message by message, so that only the failing message is retried and
eventually given up.

See also: `consumer.ordered_pool` calls the listeners. Source: shards of Confluent's parallel consumer (KEY order);
RocketMQ `ConsumeMessageOrderlyService` for order by queue.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from raptormq.protocol import properties as names
from raptormq.protocol.message import MessageExt


def message_key(message: MessageExt) -> str | None:
    """Return the ordering key of a message: the sharding key, or else the text of all its keys, or else None."""
    properties = message.properties
    return properties.get(names.SHARDING_KEY) or properties.get(names.KEYS) or None


class _Process(Protocol):
    @property
    def is_closed(self) -> bool: ...


P = TypeVar("P", bound=_Process)
"""State of a queue. After it is closed, its messages are not consumed."""
R = TypeVar("R", bound=Hashable)
"""The reader of the queue."""


class Waiting(NamedTuple, Generic[R, P]):
    """A message in a lane, with its source."""

    reader: R
    process_queue: P
    message: MessageExt


class Lane(Generic[R, P]):
    """The messages of one key or queue, in order."""

    __slots__ = ("_aside", "_in_call", "_singly", "_waiting", "is_scheduled", "name")

    def __init__(self, name: tuple[Hashable, Hashable]) -> None:
        self.name = name
        """Topic, and key or queue."""
        self._waiting: deque[Waiting[R, P]] = deque()
        self._in_call = 0
        """Number of first messages that are in a running or failed call."""
        self._singly = 0
        """Number of messages of a failed call that are repeated individually."""
        self._aside: dict[R, list[Waiting[R, P]]] = {}
        """The messages of blocked queues."""
        self.is_scheduled = False
        """True while the lane is scheduled or processed by a worker."""

    def add(self, waiting: Waiting[R, P]) -> None:
        """Append a message."""
        self._waiting.append(waiting)

    def next(self, limit: int) -> Sequence[Waiting[R, P]]:
        """Return the messages of the next call without removing them; empty if the lane is empty.

        All are from one queue; there are at most `limit`. Messages of a closed queue are removed, because the next
        reader delivers them.
        """
        waiting = self._waiting
        self._in_call = 0
        while waiting and waiting[0].process_queue.is_closed:
            waiting.popleft()
            self._singly = max(self._singly - 1, 0)
        if not waiting:
            return ()
        first = waiting[0]
        if limit == 1 or self._singly or len(waiting) == 1:
            self._in_call = 1
            return (first,)
        found: list[Waiting[R, P]] = []
        for each in waiting:
            if len(found) == limit or each.process_queue is not first.process_queue:
                break
            if each.message.topic != first.message.topic:  # messages of a retry topic have several origins
                break
            found.append(each)
        self._in_call = len(found)
        return found

    def remove(self, count: int) -> None:
        """Remove the first messages, which need no further call."""
        for _ in range(count):
            self._waiting.popleft()
        self._in_call = 0
        self._singly = max(self._singly - count, 0)

    def split(self, count: int) -> None:
        """Repeat the first messages individually after their call has failed."""
        self._singly = count

    def set_aside(self, reader: R) -> None:
        """Set the messages of a blocked queue aside. Must not be called while they are in a call."""
        self._aside.setdefault(reader, []).extend(each for each in self._waiting if each.reader is reader)
        self._waiting = deque(each for each in self._waiting if each.reader is not reader)
        self._in_call = 0

    def restore(self, reader: R) -> None:
        """Put the messages of a queue back to the front, after those that are in a call."""
        waiting = self._waiting
        in_call = [waiting.popleft() for _ in range(self._in_call)]
        waiting.extendleft(reversed(self._aside.pop(reader)))
        waiting.extendleft(reversed(in_call))

    @property
    def has_waiting(self) -> bool:
        """Whether there are messages for a call."""
        return bool(self._waiting)

    @property
    def is_empty(self) -> bool:
        """Whether the lane has no messages, including those set aside."""
        return not self._waiting and not self._aside


class Lanes(Generic[R, P]):
    """All lanes of one consumer.

    Args:
        name_of: returns the lane of a message, by topic and key or queue.
        schedule: function that gives a lane to a worker. A lane is scheduled at most once at a time.
    """

    def __init__(
        self,
        name_of: Callable[[R, MessageExt], tuple[Hashable, Hashable]],
        schedule: Callable[[Lane[R, P]], None],
    ) -> None:
        self._name_of = name_of
        self._schedule = schedule
        self._lanes: dict[tuple[Hashable, Hashable], Lane[R, P]] = {}
        self._blocked: defaultdict[R, list[Lane[R, P]]] = defaultdict(list)
        """By reader, the lanes with messages that are set aside."""

    def __len__(self) -> int:
        return len(self._lanes)

    def add(self, reader: R, process_queue: P, message: MessageExt) -> None:
        """Append a message to its lane."""
        name = self._name_of(reader, message)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name)
        lane.add(Waiting(reader, process_queue, message))
        if not lane.is_scheduled:
            self._start(lane)

    def next(self, lane: Lane[R, P], limit: int, is_blocked: Callable[[R], bool]) -> Sequence[Waiting[R, P]]:
        """Return the messages of the next call of a lane, like `Lane.next`. If there are none, the lane is no longer
        scheduled.
        """
        while found := lane.next(limit):
            reader = found[0].reader
            if not is_blocked(reader):
                return found
            lane.set_aside(reader)
            if lane not in self._blocked[reader]:
                self._blocked[reader].append(lane)
        self._end(lane)
        return ()

    def proceed(self, lane: Lane[R, P]) -> None:
        """Schedule a lane after a call, if it has further messages."""
        if lane.has_waiting:
            self._schedule(lane)
        else:
            self._end(lane)

    def release(self, reader: R) -> None:
        """Continue with the messages of a queue that were set aside."""
        for lane in self._blocked.pop(reader, ()):
            lane.restore(reader)
            if not lane.is_scheduled:
                self._start(lane)

    def _start(self, lane: Lane[R, P]) -> None:
        lane.is_scheduled = True
        self._schedule(lane)

    def _end(self, lane: Lane[R, P]) -> None:
        lane.is_scheduled = False
        if lane.is_empty:
            del self._lanes[lane.name]
