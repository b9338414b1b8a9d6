"""Statistics of topics and groups over the last minute, hour and day (``BrokerStatsManager``, ``StatsItem``).

A statistic is a counter with snapshots: every 10 s for the last minute, every 10 min for the last hour, every hour for
the last day. Its value for a window is the growth since the oldest snapshot in the window, so a query includes the
latest message. A window is up to one snapshot period longer than its name.

The number of messages of a topic is the sum of the end offsets of its queues, which include every message of a batch.
Bytes are counted for each write, and messages delivered to groups for each response. Statistics that have not changed
for a day are removed to limit the memory.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from raptormq.broker.metrics.counters import Counters
from raptormq.storage.store import MessageStore

TOPIC_PUT_NUMS, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GET_NUMS, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS, BROKER_PUT_NUMS, BROKER_GET_NUMS = "SNDBCK_PUT_NUMS", "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
_MINUTE, _HOUR, _DAY = 0, 1, 2
_SNAPSHOTS = (7, 7, 25)
_PERIODS_MS = (10_000, 600_000, 3_600_000)


class WindowStats(NamedTuple):
    """Growth over a window: total, per second, and per event (request or response)."""

    sum: int
    tps: float
    avgpt: float


class _SnapshotTimes:
    """Times (ms) of the snapshots of each window, common to all statistics."""

    def __init__(self, now: int) -> None:
        self.times = tuple(deque[int](maxlen=count) for count in _SNAPSHOTS)
        self._next = [now] * 3

    def due(self, now: int) -> list[int]:
        """Return the windows that are due for a snapshot at ``now``."""
        windows = [window for window in (_MINUTE, _HOUR, _DAY) if now >= self._next[window]]
        for window in windows:
            self.times[window].append(now)
            self._next[window] = now + _PERIODS_MS[window] - _PERIODS_MS[_MINUTE] // 2
        return windows


class Statistic:
    """A counter with its snapshots. ``times`` is the number of events."""

    __slots__ = ("_snapshots", "created_ms", "times", "value")

    def __init__(self, created_ms: int) -> None:
        self.created_ms = created_ms
        self.value = 0
        self.times = 0
        self._snapshots = tuple(array("q") for _ in _SNAPSHOTS)

    def add(self, amount: int) -> None:
        """Count one event."""
        self.value += amount
        self.times += 1

    def snapshot(self, windows: list[int]) -> None:
        """Take a snapshot for each of ``windows``."""
        for window in windows:
            taken = self._snapshots[window]
            taken.extend((self.value, self.times))
            if len(taken) > 2 * _SNAPSHOTS[window]:
                del taken[:2]

    def figures(self, window: int, snapshot_times: _SnapshotTimes, now: int) -> WindowStats:
        """Return the growth since the oldest snapshot of a window.

        The window of a statistic that is younger than the window begins one period before its creation.
        """
        taken, at = self._snapshots[window], snapshot_times.times[window]
        if len(taken) == 2 * _SNAPSHOTS[window]:
            value, times, since = taken[0], taken[1], at[0]
        else:
            value, times, since = 0, 0, self.created_ms - _PERIODS_MS[window]
        total, events = self.value - value, self.times - times
        return WindowStats(total, total * 1000 / max(now - since, 1), total / events if events else 0.0)

    @property
    def is_stale(self) -> bool:
        """True if the statistic has not changed for a day."""
        day = self._snapshots[_DAY]
        return len(day) == 2 * _SNAPSHOTS[_DAY] and day[0] == self.value


class Statistics:
    """All statistics of a broker. ``clock`` returns ms since 1970."""

    def __init__(self, store: MessageStore, counters: Counters, cluster: str, clock: Callable[[], int]) -> None:
        self._store = store
        self._counters = counters
        self._clock = clock
        self._snapshot_times = _SnapshotTimes(clock())
        self._cluster = cluster
        self._topics: dict[str, tuple[Statistic, Statistic]] = {}
        """Messages and bytes appended to the log, by topic."""
        self._group_gets: dict[tuple[str, str], tuple[Statistic, Statistic]] = {}
        self._send_backs: dict[tuple[str, str], Statistic] = {}
        self._broker_puts, self._broker_gets = Statistic(clock()), Statistic(clock())
        self.pull_offsets: dict[tuple[str, str, int], int] = {}
        """Next offset after the last response to a pull, by topic, group and queue id. Before the first response, the
        offset of the first pull."""
        self._base_offsets: dict[str, int] = {}
        self._dirty_topics: set[str] = set()

    def start(self) -> None:
        """Exclude messages that are already stored from the statistics."""
        self._base_offsets = {topic: self._message_count(topic) for topic in self._store.topics()}

    # --- counting ---

    def topics_arrived(self, topics: set[str]) -> None:
        """Mark topics that have new messages."""
        self._dirty_topics |= topics

    def count_get(self, topic: str, group: str, count: int, size: int) -> None:
        """Count a response that delivers ``count`` messages with a total of ``size`` bytes to a group."""
        found = self._group_gets.get((topic, group))
        if found is None:
            now = self._clock()
            found = self._group_gets[topic, group] = Statistic(now), Statistic(now)
        found[0].add(count)
        found[1].add(size)

    def count_send_back(self, topic: str, group: str) -> None:
        """Count a message of ``topic`` that a group sends back."""
        found = self._send_backs.get((topic, group))
        if found is None:
            found = self._send_backs[topic, group] = Statistic(self._clock())
        found.add(1)

    def forget(self, topic: str) -> None:
        """Remove the statistics of a deleted topic."""
        self._base_offsets.pop(topic, None)
        self._topics.pop(topic, None)
        self._counters.topic_bytes.pop(topic, None)
        self._dirty_topics.discard(topic)
        self._group_gets = {key: pair for key, pair in self._group_gets.items() if key[0] != topic}
        self._send_backs = {key: statistic for key, statistic in self._send_backs.items() if key[0] != topic}
        self.pull_offsets = {key: offset for key, offset in self.pull_offsets.items() if key[0] != topic}

    # --- periodic ---

    def sample(self) -> None:
        """Take the due snapshots. The owner calls this method every 10 s."""
        self._refresh()
        windows = self._snapshot_times.due(self._clock())
        for statistic in (self._broker_puts, self._broker_gets, *self._send_backs.values()):
            statistic.snapshot(windows)
        for pair in (*self._topics.values(), *self._group_gets.values()):
            for statistic in pair:
                statistic.snapshot(windows)
        if _DAY in windows:
            self._drop_stale()

    def _drop_stale(self) -> None:
        for topic in [topic for topic, (messages, _) in self._topics.items() if messages.is_stale]:
            del self._topics[topic]
            self._counters.topic_bytes.pop(topic, None)
            self._base_offsets[topic] = self._message_count(topic)
        self._group_gets = {key: pair for key, pair in self._group_gets.items() if not pair[0].is_stale}
        self._send_backs = {key: statistic for key, statistic in self._send_backs.items() if not statistic.is_stale}
        self.pull_offsets = {key: offset for key, offset in self.pull_offsets.items() if key[:2] in self._group_gets}

    def _refresh(self) -> None:
        """Update the statistics that are computed from queues and counters."""
        counters = self._counters
        self._broker_puts.value = self._broker_puts.times = counters.messages_in
        self._broker_gets.value, self._broker_gets.times = counters.messages_out, counters.pulls_found
        seen, self._dirty_topics = self._dirty_topics, set()
        for topic in seen:
            pair = self._topics.get(topic)
            if pair is None:
                pair = self._topics[topic] = Statistic(self._clock()), Statistic(self._clock())
            messages, size = pair
            messages.value = messages.times = size.times = self._message_count(topic) - self._base_offsets.get(topic, 0)
            size.value = counters.topic_bytes.get(topic, 0)

    def _message_count(self, topic: str) -> int:
        return sum(self._store.queue_end(topic, queue_id) for queue_id in self._store.queue_ids(topic))

    # --- queries ---

    def figures(self, name: str, key: str) -> tuple[WindowStats, WindowStats, WindowStats] | None:
        """Return a statistic for the last minute, hour and day, or None if it does not exist."""
        self._refresh()
        statistic = self._find(name, key)
        if statistic is None:
            return None
        now = self._clock()
        minute, hour, day = (statistic.figures(window, self._snapshot_times, now) for window in (_MINUTE, _HOUR, _DAY))
        return minute, hour, day

    def group_tps(self, topic: str, group: str) -> float:
        """Return the rate of messages of a topic delivered to a group, per second over the last minute."""
        figures = self.figures(GROUP_GET_NUMS, f"{topic}@{group}")
        return figures[0].tps if figures is not None else 0.0

    def _find(self, name: str, key: str) -> Statistic | None:
        if name in (BROKER_PUT_NUMS, BROKER_GET_NUMS):
            whole = self._broker_puts if name == BROKER_PUT_NUMS else self._broker_gets
            return whole if key == self._cluster and whole.value else None
        topic, _, group = key.partition("@")
        if name == SNDBCK_PUT_NUMS:
            return self._send_backs.get((topic, group))
        pair = None
        if name in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE):
            pair = self._topics.get(key)
        elif name in (GROUP_GET_NUMS, GROUP_GET_SIZE):
            pair = self._group_gets.get((topic, group))
        return None if pair is None else pair[name in (TOPIC_PUT_SIZE, GROUP_GET_SIZE)]
