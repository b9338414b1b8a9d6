"""Latency histogram since the start and over the last minute.

RocketMQ's ``StoreStatsService`` reports the time to store a message as maximum since the start
(``putMessageEntireTimeMax``), as percentiles (``putLatency99``), and as counts by range over the last minute
(``putMessageDistributeTime``). Prometheus reads the histogram. All values are computed from the same counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import accumulate

BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
"""Upper bounds of the buckets in seconds. One more bucket counts higher values."""
_WINDOW_SAMPLES = 7
"""Number of samples, one every 10 s: the oldest is one minute older than the newest."""
_RANGES = (
    (0.001, "[<=0ms]"), (0.01, "[0~10ms]"), (0.05, "[10~50ms]"), (0.1, "[50~100ms]"), (0.2, "[100~200ms]"),
    (0.5, "[200~500ms]"), (1.0, "[500ms~1s]"), (2.0, "[1~2s]"), (3.0, "[2~3s]"), (4.0, "[3~4s]"), (5.0, "[4~5s]"),
    (10.0, "[5~10s]"),
)  # fmt: skip
_ABOVE = "[10s~]"


class LatencyHistogram:
    """Histogram of durations. The owner calls :meth:`sample` every 10 s."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._samples = deque([list(self._counts)], maxlen=_WINDOW_SAMPLES)
        self.total_s = 0.0
        self.longest_s = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count ``times`` events that took ``seconds`` each."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += times
        self.total_s += seconds * times
        self.longest_s = max(self.longest_s, seconds)

    def sample(self) -> None:
        """Take a sample of the counts."""
        self._samples.append(list(self._counts))

    def buckets(self) -> list[tuple[str, float]]:
        """Return the upper bound and the cumulative count of each bucket since the start, for Prometheus."""
        return list(zip([*map(str, BOUNDS_S), "+Inf"], accumulate(self._counts), strict=True))

    def percentile_ms(self, share: float) -> float:
        """Return a percentile of the last minute as bucket bound in ms, 0 without events. ``share`` is 0 to 1."""
        counts = self._last_minute()
        wanted = share * sum(counts)
        if not wanted:
            return 0.0
        place = next(place for place, count in enumerate(accumulate(counts)) if count >= wanted)
        return 1000 * (BOUNDS_S[place] if place < len(BOUNDS_S) else self.longest_s)

    def distribution(self) -> str:
        """Return the counts of the last minute in RocketMQ's ranges: ``[<=0ms]:7 [0~10ms]:0 … [10s~]:0 ``."""
        return "".join(f"{name}:{count} " for name, count in self._by_range())

    def _by_range(self) -> Iterator[tuple[str, int]]:
        counts = self._last_minute()
        first = 0
        for bound, name in _RANGES:
            after = BOUNDS_S.index(bound) + 1
            yield name, sum(counts[first:after])
            first = after
        yield _ABOVE, counts[-1]

    def _last_minute(self) -> list[int]:
        return [now - before for now, before in zip(self._counts, self._samples[0], strict=True)]
