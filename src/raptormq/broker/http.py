"""HTTP pages of the broker for Prometheus and the Kubernetes probes (:mod:`~raptormq.transport.http`).

The pages are available before the recovery of the store. During the recovery, ``/metrics`` contains only the progress
of queues and index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raptormq.broker.config import BrokerConfig
from raptormq.broker.metrics import BrokerMetrics, Counters, Gauges, GroupLags, LagCollector, lag_gauges, store_gauges
from raptormq.broker.roles import unreplicated
from raptormq.broker.wiring import Assembly
from raptormq.errors import NotLeader, OutOfResources, StoreReadOnly
from raptormq.protocol.bodies.replication import Verdict
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.storage.store import MessageStore
from raptormq.transport.http import Page
from raptormq.transport.server import Server

if TYPE_CHECKING:
    from raptormq.broker.ha import HaStatus
    from raptormq.broker.replication import Replication


class Pages:
    """The pages of one broker. :meth:`serving` enables the metrics of a started broker."""

    def __init__(self, config: BrokerConfig, store: MessageStore) -> None:
        self._identity = config.identity
        self._store = store
        self._address = ""
        self._status: Replication | HaStatus | None = None
        self._parts: tuple[Assembly, Server] | None = None
        self._lags: LagCollector | None = None
        self._metrics = self._metrics_of(Counters())

    def serving(self, assembly: Assembly, server: Server, address: str) -> None:
        """Enable the metrics of all components. ``address`` is the registered address of the broker."""
        self._address = address
        self._status = assembly.replication if assembly.ha is None else assembly.ha.status
        self._parts = assembly, server
        self._lags = LagCollector(self._store, assembly.topics)
        self._metrics = self._metrics_of(assembly.rates.counters)

    def by_path(self) -> dict[str, Page]:
        """Return the pages by path."""
        return {
            "/metrics": self.metrics,
            "/healthz": self.health,
            "/readyz": self.readiness,
            "/replication": self.replication,
            "/replication/restart-allowed": self.restart_allowed,
            "/replication/caught-up": self.caught_up,
        }

    async def metrics(self) -> tuple[int, bytes]:
        """/metrics: return the Prometheus metrics."""
        lags = await self._lags.collect() if self._lags is not None else GroupLags([], 0)
        return 200, await self._metrics.render(lags)

    async def health(self) -> tuple[int, bytes]:
        """/healthz: return 503 after a failed write, which requires a restart. Otherwise return 200, also if the disk
        is full, descriptors are exhausted or a replica accepts no messages.
        """
        try:
            self._store.check_writable()
        except StoreReadOnly as error:
            return 503, f"{error}\n".encode()
        except (NotLeader, OutOfResources):
            pass
        return 200, b"ok\n"

    async def readiness(self) -> tuple[int, bytes]:
        """/readyz: return 200 if clients can find the broker: it serves, is registered with a name server, lacks no
        messages of its slaves, and is the leader or an up-to-date follower of its group, if it has one. Otherwise
        return 503. A full disk does not cause 503, because consumers can be served.
        """
        if self._parts is None:
            return 503, f"recovering, {self._store.lag().bytes} bytes of log remaining\n".encode()
        if reason := self._parts[0].refusal:
            return 503, f"{reason}\n".encode()
        replication = self._parts[0].replication
        if replication is not None and not (verdict := replication.has_caught_up()).holds:
            return 503, f"{verdict.reason}\n".encode()
        if self._identity.name_servers and not self._parts[0].registrar.registered_count:
            return 503, b"not registered with any name server\n"
        return 200, b"ready\n"

    async def replication(self) -> tuple[int, bytes]:
        """/replication: status of the group as this member knows it (:mod:`raptormq.protocol.bodies.replication`)."""
        if self._parts is None:
            return 503, dumps({"remark": "the broker is still starting"})
        status = self._status
        if status is None:
            state = unreplicated(self._identity.broker_name, self._store, self._address)
        else:
            state = status.describe()
        return 200, self._parts[0].scrubber.report(state).to_json()

    async def restart_allowed(self) -> tuple[int, bytes]:
        """/replication/restart-allowed: return 200 if a majority of caught-up members remains without this one,
        otherwise 503. The operator checks this before a restart. Unknown state counts as a refusal.
        """
        status = self._status
        if self._parts is None:
            verdict = Verdict(False, "the broker is still starting")
        elif status is None:
            verdict = Verdict(True, "the broker is not replicated; clients wait until it is up again")
        else:
            verdict = await status.may_restart()
        return _status(verdict), dumps({"allowed": verdict.holds, "reason": verdict.reason})

    async def caught_up(self) -> tuple[int, bytes]:
        """/replication/caught-up: return 200 once this member has every message that was confirmed when it rejoined.
        The operator checks this after a restart, before it restarts the next member.
        """
        status = self._status
        if self._parts is None:
            verdict = Verdict(False, "the broker is still starting")
        elif status is None:
            verdict = Verdict(True, "the broker is not replicated")
        else:
            verdict = status.has_caught_up()
        return _status(verdict), dumps({"caughtUp": verdict.holds, "reason": verdict.reason})

    def _metrics_of(self, counters: Counters) -> BrokerMetrics:
        return BrokerMetrics(self._identity.cluster_name, self._identity.broker_name, counters, self._gauges)

    def _gauges(self) -> Gauges:
        figures = lag_gauges(self._store.lag())
        figures["recovering"] = "1 during the recovery of the store, otherwise 0", float(self._parts is None)
        if self._parts is None:
            return figures
        assembly, server = self._parts
        unfinished, unread = server.frame_budget, server.answer_budget
        return (
            figures
            | {
                "connections": ("Open client connections", server.connection_count),
                "connections_max": ("Maximum number of client connections", server.max_connections),
                "connections_refused_total": (
                    "Connections refused because of the maximum number or a lack of descriptors",
                    server.refused_count,
                ),
                "unfinished_bytes": ("Memory of partially received requests", unfinished.kept_bytes),
                "unfinished_connections_closed_total": (
                    "Connections closed to free memory of partially received requests",
                    unfinished.closed_count,
                ),
                "unread_bytes": ("Memory of responses that clients have not read yet", unread.held_bytes),
                "unread_connections_closed_total": (
                    "Connections closed to free memory of unread responses",
                    unread.closed_count,
                ),
                "waiting_reads": ("Pulls and pops that wait for response memory", unread.waiting_count),
                "held_pulls": ("Pulls that wait for messages", assembly.pulls.held_count),
                "topics": ("Topics in the topic table", len(assembly.topics.configs)),
                "consumer_groups": ("Consumer groups in the group table", len(assembly.groups.configs)),
                "timers_waiting": ("Pending timer messages and recalls", assembly.timers.waiting_count),
                "transactions_open": ("Undecided transactions", assembly.transactions.open_count),
                "name_servers": (
                    "Name servers that accepted the last registration",
                    assembly.registrar.registered_count,
                ),
            }
            | store_gauges(self._store.stats())
            | assembly.scrubber.gauges()
            | ({} if assembly.replication is None else assembly.replication.gauges())
            | ({} if assembly.ha is None else assembly.ha.role.gauges())
        )


def _status(verdict: Verdict) -> int:
    return 200 if verdict.holds else 503
