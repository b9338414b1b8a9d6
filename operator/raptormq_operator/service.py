"""The operator's process: acquires the Lease, then watches and reconciles until it is stopped.

health server ------------------------------------------------------------------------------
lease: acquire -- keep (LeaseLost ends the process) ------------------ release -- acquire ...
                  watches: kopf, reflectors -> lanes -> reconcilers      ^
                  all watches of our resources fail, old definitions ----'

A leader that cannot watch its resources, or whose definitions were replaced by older ones, releases the lease and
becomes a candidate again. After SIGTERM the process ends within `STOP_S`, even if a task does not end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kubernetes.aio.client import ApiClient

from raptormq.logs import get_logger
from raptormq_operator import clock
from raptormq_operator.access_keys import AccessKeys
from raptormq_operator.admin import Admin, ClientAdmin
from raptormq_operator.cluster_probe import LatestProbes
from raptormq_operator.definition_check import DefinitionCheck, DefinitionsTooOld
from raptormq_operator.driver_progress import DriverProgress, HttpDriverProgress
from raptormq_operator.follow_leaders import LeaderFollower
from raptormq_operator.handlers import CHILD_KINDS, CHILD_SELECTOR, PIPELINE_PODS, Triggers
from raptormq_operator.health import HealthServer
from raptormq_operator.kopf_watch import KopfWatch
from raptormq_operator.kube.client import KubeApi, KubeClient, configuration
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.kube.lease import RETRY_PERIOD_S, Candidate, Lease
from raptormq_operator.kube.reflector import Reflector
from raptormq_operator.lanes import Key, Lanes
from raptormq_operator.leaders import Leaders
from raptormq_operator.metrics import LEADER, READY, REASON
from raptormq_operator.model.cluster import Surroundings
from raptormq_operator.parts import ReconcilerParts
from raptormq_operator.reconcile_cluster import ClusterReconciler
from raptormq_operator.reconcile_pipeline import PipelineReconciler
from raptormq_operator.reconcile_topics import TopicsReconciler
from raptormq_operator.settings import Settings
from raptormq_operator.status_writer import StatusWriter
from raptormq_operator.topic_store import TopicStore
from raptormq_operator.watches import LASTS_S, Watches

LEASE_TIMEOUT_S = 5.0
"""Timeout in seconds of one request for the lease. Several attempts fit into the renewal deadline."""
STOP_S = 20.0
"""Time limit in seconds for the shutdown. Kubernetes kills the pod after 30 s."""
TASKS_S = 8.0
"""Time limit in seconds for tasks to end before the lease is released."""
LOST_S = 3.0
"""Time limit in seconds for tasks to end after the lease was lost. Another process may acquire the lease 5 s after this
process has detected the loss."""

log = get_logger(__name__)


def work_lanes(
    api: KubeApi, admin: Admin, settings: Settings, drivers: DriverProgress | None = None
) -> tuple[Lanes, Triggers]:
    """Return the lanes with their reconcilers, and the event handlers that fill them."""
    events = EventRecorder(api, clock.timestamp)
    writer = StatusWriter(api, events, clock.timestamp)
    surroundings = Surroundings(settings.image, settings.dns_domain)
    parts = ReconcilerParts(api, admin, events, writer, surroundings, LatestProbes(), AccessKeys(api), Leaders())
    store = TopicStore()

    async def reconcile(key: Key, changed: bool) -> float | None:
        if key.kind == "BrokerCluster":
            return await clusters(key.namespace, key.name, changed=changed)
        if key.kind == "Leaders":
            return await followers(key.namespace, key.name)
        if key.kind == "SparkPipeline":
            return await pipelines(key.namespace, key.name)
        return await topics(key.namespace, key.name)

    def suspect(namespace: str, name: str) -> None:
        lanes.look(Key("BrokerCluster", namespace, name))

    def follow(namespace: str, name: str) -> None:
        lanes.look(Key("Leaders", namespace, name))

    lanes = Lanes(reconcile)
    triggers = Triggers(lanes, store)
    clusters = ClusterReconciler(parts, triggers.topics_of, follow)
    followers = LeaderFollower(parts, suspect)
    topics = TopicsReconciler(parts, store, suspect)
    pipelines = PipelineReconciler(parts, drivers or HttpDriverProgress(), enabled=bool(settings.spark_pipelines))
    return lanes, triggers


async def run(settings: Settings) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises:
        RaptorMQError: There is no configuration for the API server, or the lease was lost.
    """
    async with ApiClient(await configuration()) as connections, ClientAdmin() as admin:
        operator = Operator(settings, connections, admin)
        health = HealthServer(settings.port, operator.hung, operator.faults)
        with _stop_signals() as stop:
            await health.start()
            running = asyncio.create_task(operator.run(), name="operator")
            stopping = asyncio.create_task(stop.wait(), name="signals")
            either: list[asyncio.Task[Any]] = [running, stopping]
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    running.result()
            finally:
                await _ended(either, STOP_S)
                await health.stop()


class Operator:
    """A candidate for the lease, which reconciles while it is the leader."""

    def __init__(self, settings: Settings, connections: ApiClient, admin: Admin) -> None:
        self._settings = settings
        self._admin = admin
        self._api = KubeClient(connections)
        self._urgent = KubeClient(connections, timeout=LEASE_TIMEOUT_S, at_once=None)
        candidate = Candidate(settings.namespace, settings.lease_name, settings.identity)
        self._lease = Lease(self._urgent, candidate, monotonic=time.monotonic, now=clock.micro_timestamp)
        self._definitions = DefinitionCheck(self._urgent)
        self._watches: Watches | None = None
        self._unfit_since: float | None = None

    async def run(self) -> None:
        """Acquire the lease and lead, repeatedly, until cancelled.

        Raises:
            LeaseLost: Another process may be the leader.
        """
        while True:
            log.info("waiting for the lease %s/%s", self._settings.namespace, self._settings.lease_name)
            await self._lease.acquire(self._see)
            await self._lead()
            await asyncio.sleep(RETRY_PERIOD_S)  # give other candidates precedence

    def hung(self) -> Sequence[str]:
        """Return faults that a restart resolves."""
        return self._watches.hung() if self._watches is not None else ()

    def faults(self) -> Sequence[str]:
        """Return why the process is not ready. A new pod is not ready before it knows that it may work with the
        installed definitions, because the Deployment ends the previous pod as soon as the new one is ready.
        """
        if self._definitions.fault is not None:
            return [self._lease.fault or self._definitions.fault]
        if self._watches is not None:
            return self._watches.faults()
        now = time.monotonic()
        if self._lease.fault is None:
            self._unfit_since = None
            return ()
        self._unfit_since = now if self._unfit_since is None else self._unfit_since
        return [f"cannot lead: {self._lease.fault}"] if now - self._unfit_since >= LASTS_S else ()

    async def _see(self) -> None:
        """Check that the installed definitions are not too old, and that our resources can be listed in at least one
        namespace.

        Raises:
            KubeError: The definitions are too old, or the resources can be listed in no namespace.
        """
        await self._definitions()
        errors: list[KubeError] = []
        for namespace in self._namespaces:
            try:
                await KopfWatch(self._urgent, namespace, lambda *_: None).check()
            except KubeError as error:
                errors.append(error)
                if error.status == 0:  # no response; other namespaces would not get one either
                    break
            else:
                return
        raise errors[0]

    @property
    def _namespaces(self) -> Sequence[str | None]:
        return self._settings.watch_namespaces or (None,)

    async def _lead(self) -> None:
        """Lead until our resources can no longer be watched or their definitions are too old, or until a task fails.

        The lease is released after all tasks have ended. A lost lease is not released.
        """
        lanes, triggers = work_lanes(self._api, self._admin, self._settings)
        own = [KopfWatch(self._api, namespace, triggers.own) for namespace in self._namespaces]
        children = [
            Reflector(self._api, kind, namespace, CHILD_SELECTOR, triggers.child)
            for namespace in self._namespaces
            for kind in CHILD_KINDS
        ]
        for namespace in self._namespaces if self._settings.spark_pipelines is not None else ():
            children.append(Reflector(self._api, "SparkPipeline", namespace, "", triggers.pipeline))
            if self._settings.spark_pipelines:
                children.append(Reflector(self._api, "Pod", namespace, PIPELINE_PODS, triggers.pipeline_pod))
        watches = self._watches = Watches(own, children, time.monotonic)
        log.info("leading")
        LEADER.set(1)
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("lease", self._lease.keep()),
                ("lanes", lanes.run()),
                ("watches", watches.run()),
                ("sight", watches.until_blind()),
                ("definitions", self._definitions.until_old()),
            )
        ]
        lost = False
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            lost = tasks[0] in done
            for task in done:
                task.result()
            log.error("releasing the lease: %s", "; ".join(watches.faults()) or "no resources can be watched")
        except DefinitionsTooOld as error:
            log.error("releasing the lease: %s", error)
        finally:
            LEADER.set(0)
            for gauge in (READY, REASON):
                gauge.clear()  # the next leader exports these series
            self._watches = None
            await _ended(tasks, LOST_S if lost else TASKS_S)
            if not lost:
                await self._lease.release()


async def _ended(tasks: Sequence[asyncio.Task[Any]], seconds: float) -> None:
    """Cancel tasks and wait up to `seconds` for their end."""
    for task in tasks:
        task.cancel()
    _, left = await asyncio.wait(tasks, timeout=seconds)
    for task in left:
        log.error("task %s did not end within %.0f s", task.get_name(), seconds)


@contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    """Return an event that SIGTERM and SIGINT set. The first signal also starts a timer that ends the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    timer = threading.Timer(STOP_S, _give_up)
    timer.daemon = True

    def handle(*_: object) -> None:
        if not timer.is_alive() and not stop.is_set():
            timer.start()
            loop.call_soon_threadsafe(stop.set)

    # `loop.add_signal_handler` would not run while the event loop is blocked.
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _give_up() -> None:
    log.error("the shutdown did not complete within %.0f s; exiting", STOP_S)
    os._exit(1)
