"""Metrics of a broker: counters, latencies, statistics of topics and groups, lag, and the Prometheus exporter."""

from __future__ import annotations

from raptormq.broker.metrics.counters import SAMPLE_S, Counters, Rates
from raptormq.broker.metrics.lag import (
    NO_TIMESTAMP,
    GroupLags,
    LagCollector,
    first_stored_at,
    is_young,
    last_stored_at,
    stored_at,
)
from raptormq.broker.metrics.prometheus import BrokerMetrics, Gauges, lag_gauges, store_gauges
from raptormq.broker.metrics.statistics import Statistics

__all__ = [
    "NO_TIMESTAMP",
    "SAMPLE_S",
    "BrokerMetrics",
    "Counters",
    "Gauges",
    "GroupLags",
    "LagCollector",
    "Rates",
    "Statistics",
    "first_stored_at",
    "is_young",
    "lag_gauges",
    "last_stored_at",
    "store_gauges",
    "stored_at",
]
