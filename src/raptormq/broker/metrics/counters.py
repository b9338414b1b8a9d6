"""Counters since the start, and rates (``StoreStatsService``).

:class:`Counters` has plain integers, because the send path counts every message. :class:`Rates` computes rates over the
last 10 s, 1 min and 10 min from samples of the counters, which are taken every 10 s.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter

from raptormq.broker.metrics.latencies import LatencyHistogram
from raptormq.storage.queue import Appended

SAMPLE_S = 10.0
_WINDOWS_S = (10, 60, 600)


class Rates:
    """Samples of the counters. The owner calls :meth:`sample` every :data:`SAMPLE_S`. ``clock`` returns ms since 1970.

    ``this_morning`` and ``yesterday_morning`` are the counters at the last two midnights (local time), or at the start
    of the broker if it was later.
    """

    def __init__(self, counters: Counters, clock: Callable[[], int]) -> None:
        self.counters = counters
        self.boot_ms = clock()
        self._clock = clock
        self.yesterday_morning, self.this_morning = replace(counters), replace(counters)
        self._day = _local_day(self.boot_ms)
        self._samples: deque[tuple[int, Counters]] = deque(maxlen=_WINDOWS_S[-1] // int(SAMPLE_S) + 1)
        self.sample()

    def sample(self) -> None:
        """Take a sample of the counters."""
        now = self._clock()
        self._samples.append((now, replace(self.counters)))
        self.counters.put_times.sample()
        if (day := _local_day(now)) != self._day:
            self._day = day
            self.yesterday_morning, self.this_morning = self.this_morning, replace(self.counters)

    def per_second(self, name: str, seconds: int) -> float:
        """Return the growth of a counter per second over about the last ``seconds``, 0 without an older sample."""
        newest_ms, newest = self._samples[-1]
        for at_ms, sample in reversed(self._samples):
            if newest_ms - at_ms >= seconds * 1000 or at_ms == self._samples[0][0]:
                elapsed_ms = newest_ms - at_ms
                return (getattr(newest, name) - getattr(sample, name)) * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0
        return 0.0

    def text(self, name: str) -> str:
        """Return the rates of a counter over 10 s, 1 min and 10 min in the format that tools parse."""
        return " ".join(f"{self.per_second(name, seconds):.2f}" for seconds in _WINDOWS_S)

    def uptime_text(self) -> str:
        """Return the uptime as text."""
        seconds = (self._clock() - self.boot_ms) // 1000
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _local_day(now_ms: int) -> int:
    return time.localtime(now_ms / 1000).tm_yday


@dataclass(slots=True)
class Counters:
    """Counters that request handlers increment, for the exporter and GET_BROKER_RUNTIME_INFO (28)."""

    messages_in: int = 0
    """Messages stored."""
    bytes_in: int = 0
    """Bytes appended to the log."""
    topic_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes appended to the log, by topic."""
    sends_refused: int = 0
    """Send requests answered with an error."""
    messages_out: int = 0
    """Messages delivered to consumers."""
    bytes_out: int = 0
    """Bytes of records delivered to consumers."""
    copies_shortened: int = 0
    """Copies of messages that were stored without some properties because of the size limit."""
    pulls_found: int = 0
    """Pulls answered with messages."""
    pulls_empty: int = 0
    """Pulls answered without messages."""
    pulls_cold: int = 0
    """Pulls that waited for the disk."""
    longest_read_ms: int = 0
    """Longest time to find and read the messages of one pull, without the time of long polling."""
    put_times: LatencyHistogram = field(default_factory=LatencyHistogram)
    """Time from the append of a producer's messages until their confirmation, under SYNC_FLUSH until the flush."""

    def stored(self, result: Appended) -> None:
        """Count an appended group of messages."""
        self.messages_in += result.message_count
        self.bytes_in += result.end_offset - result.start_offset
        topics = self.topic_bytes
        for topic, size in result.bytes_by_topic().items():
            topics[topic] = topics.get(topic, 0) + size

    def record_read_time(self, began: float) -> None:
        """Record the duration of a read that began at ``began`` (``time.perf_counter``)."""
        took_ms = int((perf_counter() - began) * 1000)
        self.longest_read_ms = max(self.longest_read_ms, took_ms)
