"""Prometheus metrics of the operator, served by `raptormq_operator.health` at /metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

RUNS = Counter("raptormq_operator_reconciliations_total", "Reconciliations by kind and result", ["kind", "result"])
RUN_SECONDS = Histogram("raptormq_operator_reconciliation_seconds", "Time of one reconciliation", ["kind"])
IN_PROGRESS_SINCE = Gauge(
    "raptormq_operator_reconciliation_in_progress_since_seconds",
    "Start time of the reconciliation in progress in seconds since 1970; absent while none is in progress",
    ["kind", "namespace", "name"],
)
LAST_LOOK = Gauge(
    "raptormq_operator_last_look_timestamp_seconds",
    "End time of the last reconciliation in seconds since 1970, by kind, namespace and name",
    ["kind", "namespace", "name"],
)
QUEUE_DEPTH = Gauge("raptormq_operator_queue_depth", "Clusters and sets of Topics that are queued or being reconciled")
LEADER = Gauge("raptormq_operator_leader", "1 while this process holds the lease")
READY = Gauge("raptormq_operator_resource_ready", "1 when the resource is ready", ["kind", "namespace", "name"])
REASON = Gauge(
    "raptormq_operator_resource_reason",
    "1 for the current reason of the resource's Ready condition",
    ["kind", "namespace", "name", "reason"],
)
STEPS = Counter(
    "raptormq_operator_steps_total",
    "Steps taken, by action (made, changed, moved, deleted, evicted, transferred, refused) and kind of object",
    ["step", "kind"],
)
API_CALLS = Counter(
    "raptormq_operator_api_calls_total",
    "Requests to the API server by HTTP method, kind of object and status; status 0 means no response",
    ["verb", "kind", "code"],
)
WATCH_RESTARTS = Counter("raptormq_operator_watch_restarts_total", "Restarts of watches, by kind", ["kind"])
