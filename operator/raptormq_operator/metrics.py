"""The operator's Prometheus metrics, served by `raptormq_operator.health` under /metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

RUNS = Counter("raptormq_operator_reconciliations_total", "Reconciliations by kind and result", ["kind", "result"])
RUN_SECONDS = Histogram("raptormq_operator_reconciliation_seconds", "Time of one reconciliation", ["kind"])
QUEUE_DEPTH = Gauge("raptormq_operator_queue_depth", "Objects that wait for a worker")
LEADER = Gauge("raptormq_operator_leader", "1 while this process holds the lease")
READY = Gauge("raptormq_operator_resource_ready", "1 when the resource is ready", ["kind", "namespace", "name"])
WATCH_RESTARTS = Counter("raptormq_operator_watch_restarts_total", "Watches that were begun again, by kind", ["kind"])
