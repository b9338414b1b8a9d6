"""HTTP pages of a name server for Prometheus and probes (:mod:`~raptormq.transport.http`), if ``metricsPort`` is set.

Metrics have the prefix ``raptormq_namesrv_``. The names of counters end in ``_total``.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from raptormq.namesrv.handlers.registration import RegistrationHandlers
from raptormq.namesrv.table import RouteTable
from raptormq.security.gate import AccessGate
from raptormq.transport.http import Page
from raptormq.transport.server import Server

Figure = tuple[str, str, int]
"""Name, description and value of a metric."""


class Pages(Collector):
    """The pages of one running name server."""

    def __init__(
        self,
        table: RouteTable,
        registrations: RegistrationHandlers,
        gate: AccessGate | None,
        server: Server,
    ) -> None:
        self._table = table
        self._registrations = registrations
        self._gate = gate
        self._server = server

    def by_path(self) -> dict[str, Page]:
        """Return the pages by path."""
        return {"/metrics": self.metrics, "/healthz": self.alive, "/readyz": self.alive}

    async def metrics(self) -> tuple[int, bytes]:
        """/metrics: return the metrics in Prometheus format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return 200, generate_latest(registry)

    async def alive(self) -> tuple[int, bytes]:
        """/healthz, /readyz: return 200. A name server that responds is alive and ready."""
        return 200, b"ok\n"

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics (prometheus_client)."""
        for name, text, value in self._figures():
            family_type = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family_type(f"raptormq_namesrv_{name}", text, value)

    def _figures(self) -> Iterator[Figure]:
        yield "brokers", "Registered brokers", len(self._table.live)
        yield "topics", "Topics in routes", len(self._table.queues)
        yield "connections", "Open connections", self._server.connection_count
        yield "connections_max", "Maximum number of connections", self._server.max_connections
        text = "Connections refused because of the maximum number or a lack of descriptors"
        yield "connections_refused_total", text, self._server.refused_count
        registrations = self._registrations
        displaced = "Brokers displaced by a registration on another connection while their own was open"
        yield "brokers_displaced_total", displaced, registrations.displaced_count
        text = "Brokers unregistered by another connection while their own was open"
        yield "brokers_unregistered_by_others_total", text, registrations.foreign_unregister_count
        refused = self._gate.refused_count if self._gate is not None else 0
        yield "requests_refused_total", "Requests that access control has refused", refused
