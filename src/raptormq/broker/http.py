"""The broker's HTTP pages for Prometheus and for the Kubernetes probes. They are served from the beginning of the
start.

While the store recovers, only the progress of queues and index is reported. :mod:`~raptormq.transport.http` serves the
pages.
"""

from __future__ import annotations

from raptormq.broker.config import BrokerConfig
from raptormq.broker.metrics import BrokerMetrics, Counters, Gauges, GroupLags, LagCollector, lag_gauges, store_gauges
from raptormq.broker.wiring import Assembly
from raptormq.errors import OutOfResources, StoreReadOnly
from raptormq.storage.store import MessageStore
from raptormq.transport.http import Page
from raptormq.transport.server import Server


class Pages:
    """The pages of one broker; :meth:`serving` enables the metrics of a started broker."""

    def __init__(self, config: BrokerConfig, store: MessageStore) -> None:
        self._identity = config.identity
        self._store = store
        self._parts: tuple[Assembly, Server] | None = None
        self._lags: LagCollector | None = None
        self._metrics = self._metrics_of(Counters())

    def serving(self, assembly: Assembly, server: Server) -> None:
        """Report the metrics of all components from now on."""
        self._parts = assembly, server
        self._lags = LagCollector(self._store, assembly.topics)
        self._metrics = self._metrics_of(assembly.rates.counters)

    def by_path(self) -> dict[str, Page]:
        """Return the pages by path."""
        return {"/metrics": self.metrics, "/healthz": self.health, "/readyz": self.readiness}

    async def metrics(self) -> tuple[int, bytes]:
        """/metrics: the Prometheus metrics."""
        lags = await self._lags.collect() if self._lags is not None else GroupLags([], 0)
        return 200, await self._metrics.render(lags)

    async def health(self) -> tuple[int, bytes]:
        """/healthz: unhealthy when only a restart can help, after a failed write. A full disk and a lack of descriptors
        do not count.
        """
        try:
            self._store.check_writable()
        except StoreReadOnly as error:
            return 503, f"{error}\n".encode()
        except OutOfResources:
            pass
        return 200, b"ok\n"

    async def readiness(self) -> tuple[int, bytes]:
        """/readyz: ready when clients can find the broker. A full disk does not count: consumers can still be
        served.
        """
        if self._parts is None:
            return 503, f"recovering, {self._store.lag().bytes} bytes of log remaining\n".encode()
        if self._identity.name_servers and not self._parts[0].registrar.registered_count:
            return 503, b"not registered with any name server\n"
        return 200, b"ready\n"

    def _metrics_of(self, counters: Counters) -> BrokerMetrics:
        return BrokerMetrics(self._identity.cluster_name, self._identity.broker_name, counters, self._gauges)

    def _gauges(self) -> Gauges:
        figures = lag_gauges(self._store.lag())
        figures["recovering"] = "1 while the store is opened, before clients are served", float(self._parts is None)
        if self._parts is None:
            return figures
        assembly, server = self._parts
        unfinished, unread = server.frame_budget, server.answer_budget
        return (
            figures
            | {
                "connections": ("Open client connections", server.connection_count),
                "connections_max": ("Client connections that may be open", server.max_connections),
                "connections_refused_total": (
                    "Connections refused because too many were open or no descriptor was left",
                    server.refused_count,
                ),
                "unfinished_bytes": ("Memory of requests that are not all there yet", unfinished.kept_bytes),
                "unfinished_connections_closed_total": (
                    "Connections closed to get such memory back",
                    unfinished.closed_count,
                ),
                "unread_bytes": ("Memory of answers that clients have not read yet", unread.held_bytes),
                "unread_connections_closed_total": ("Connections closed to get such memory back", unread.closed_count),
                "waiting_reads": ("Pulls and pops that wait for such memory", unread.waiting_count),
                "held_pulls": ("Pulls that wait for messages", assembly.pulls.held_count),
                "topics": ("Topics in the table", len(assembly.topics.configs)),
                "consumer_groups": ("Consumer groups in the table", len(assembly.groups.configs)),
                "timers_waiting": ("Timer messages and recalls that wait", assembly.timers.waiting_count),
                "transactions_open": ("Transactions that nobody has decided", assembly.transactions.open_count),
                "name_servers": ("Name servers that took the last registration", assembly.registrar.registered_count),
            }
            | store_gauges(self._store.stats())
            | ({} if assembly.replication is None else assembly.replication.gauges())
        )
