"""The operator's Prometheus metrics, served by `raptormq_operator.health` under /metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

RUNS = Counter("raptormq_operator_reconciliations_total", "Reconciliations by kind and result", ["kind", "result"])
RUN_SECONDS = Histogram("raptormq_operator_reconciliation_seconds", "Time of one reconciliation", ["kind"])
IN_PROGRESS_SINCE = Gauge(
    "raptormq_operator_reconciliation_in_progress_since_seconds",
    "Unix time at which the reconciliation under way began; there is none for what is not being reconciled",
    ["kind", "namespace", "name"],
)
LAST_LOOK = Gauge(
    "raptormq_operator_last_look_timestamp_seconds",
    "Unix time of the last reconciliation that came to an end, by what it was of",
    ["kind", "namespace", "name"],
)
QUEUE_DEPTH = Gauge(
    "raptormq_operator_queue_depth", "Clusters, and sets of Topics, that are being reconciled or are to be"
)
LEADER = Gauge("raptormq_operator_leader", "1 while this process holds the lease")
READY = Gauge("raptormq_operator_resource_ready", "1 when the resource is ready", ["kind", "namespace", "name"])
REASON = Gauge(
    "raptormq_operator_resource_reason",
    "1 for the reason that the Ready condition of the resource has",
    ["kind", "namespace", "name", "reason"],
)
STEPS = Counter(
    "raptormq_operator_steps_total",
    "Steps towards the spec, by what was done (made, changed, deleted, refused) and the kind of object",
    ["step", "kind"],
)
API_CALLS = Counter(
    "raptormq_operator_api_calls_total",
    "Requests to the API server by HTTP method, kind of object and status; 0 where no answer came",
    ["verb", "kind", "code"],
)
WATCH_RESTARTS = Counter("raptormq_operator_watch_restarts_total", "Watches that were begun again, by kind", ["kind"])
