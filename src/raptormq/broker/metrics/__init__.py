"""What a broker counts: counters, latencies, statistics of topics and groups, lag, the text for Prometheus."""

from __future__ import annotations

from raptormq.broker.metrics.counters import SAMPLE_S, Counters, Rates
from raptormq.broker.metrics.lag import (
    NO_TIMESTAMP,
    GroupLags,
    LagRounds,
    first_stored_at,
    is_young,
    last_stored_at,
    stored_at,
)
from raptormq.broker.metrics.prometheus import BrokerMetrics, Figures, lag_figures, store_figures
from raptormq.broker.metrics.statistics import Statistics

__all__ = [
    "NO_TIMESTAMP",
    "SAMPLE_S",
    "BrokerMetrics",
    "Counters",
    "Figures",
    "GroupLags",
    "LagRounds",
    "Rates",
    "Statistics",
    "first_stored_at",
    "is_young",
    "lag_figures",
    "last_stored_at",
    "store_figures",
    "stored_at",
]
