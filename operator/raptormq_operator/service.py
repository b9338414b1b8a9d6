"""The operator's process: waits for the Lease, then watches and works until it is told to stop.

health server ------------------------------------------------------------------------------
lease: acquire -- keep (LeaseLost ends the process) ------------------ release -- acquire ...
                  watches: kopf, reflectors -> lanes -> reconcilers      ^
                  no objects are seen any more --------------------------'

A process that does not see its objects gives the lease back and waits like any other candidate. SIGTERM ends it within
`STOP_S`, also when something does not end.
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
from raptormq_operator.handlers import CHILD_KINDS, CHILD_SELECTOR, Triggers
from raptormq_operator.health import HealthServer
from raptormq_operator.kopf_watch import KopfWatch
from raptormq_operator.kube.client import KubeApi, KubeClient, configuration
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.kube.lease import RETRY_PERIOD_S, Candidate, Lease
from raptormq_operator.kube.reflector import Reflector
from raptormq_operator.lanes import Key, Lanes
from raptormq_operator.metrics import LEADER, READY, REASON
from raptormq_operator.model.cluster import Surroundings
from raptormq_operator.reconcile_cluster import ClusterReconciler
from raptormq_operator.reconcile_topics import TopicsReconciler
from raptormq_operator.settings import Settings
from raptormq_operator.status_writer import StatusWriter
from raptormq_operator.topic_store import TopicStore
from raptormq_operator.watches import LASTS_S, Watches

LEASE_TIMEOUT_S = 5.0
"""Of one request about the lease: several fit into the time in which it has to be renewed."""
STOP_S = 20.0
"""The pod has 30 s."""
TASKS_S = 8.0
"""Of them for tasks to end, before the lease is released."""
LOST_S = 3.0
"""The same when the lease was lost: another process may take it 5 s after that was found out."""

log = get_logger(__name__)


def work_lanes(api: KubeApi, admin: Admin, settings: Settings) -> tuple[Lanes, Triggers]:
    """The lanes with a reconciler for each kind of key, and what gives them work."""
    events = EventRecorder(api, clock.timestamp)
    writer = StatusWriter(api, events, clock.timestamp)
    surroundings = Surroundings(settings.image, settings.dns_domain)
    store, probes, keys = TopicStore(), LatestProbes(), AccessKeys(api)

    async def reconcile(key: Key, changed: bool) -> float | None:
        if key.kind == "BrokerCluster":
            return await clusters(key.namespace, key.name, changed=changed)
        return await topics(key.namespace, key.name)

    def suspect(namespace: str, name: str) -> None:
        lanes.look(Key("BrokerCluster", namespace, name))

    lanes = Lanes(reconcile)
    triggers = Triggers(lanes, store)
    clusters = ClusterReconciler(api, admin, events, writer, surroundings, probes, keys, triggers.topics_of)
    topics = TopicsReconciler(api, admin, events, writer, surroundings, store, probes, keys, suspect)
    return lanes, triggers


async def run(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT.

    Raises:
        RaptorMQError: the API server cannot be found, or the lease was lost.
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
    """A candidate for the lease, which does the work while it has it."""

    def __init__(self, settings: Settings, connections: ApiClient, admin: Admin) -> None:
        self._settings = settings
        self._admin = admin
        self._api = KubeClient(connections)
        self._urgent = KubeClient(connections, timeout=LEASE_TIMEOUT_S, at_once=None)
        candidate = Candidate(settings.namespace, settings.lease_name, settings.identity)
        self._lease = Lease(self._urgent, candidate, monotonic=time.monotonic, now=clock.micro_timestamp)
        self._watches: Watches | None = None
        self._unfit_since: float | None = None

    async def run(self) -> None:
        """Leads whenever it can, until cancelled.

        Raises:
            LeaseLost: another process may be leading.
        """
        while True:
            log.info("waiting for the lease %s/%s", self._settings.namespace, self._settings.lease_name)
            await self._lease.acquire(self._see)
            await self._lead()
            await asyncio.sleep(RETRY_PERIOD_S)  # others first

    def hung(self) -> Sequence[str]:
        """Why a restart is the cure."""
        return self._watches.hung() if self._watches is not None else ()

    def faults(self) -> Sequence[str]:
        """Why the process is not ready."""
        if self._watches is not None:
            return self._watches.faults()
        now = time.monotonic()
        if self._lease.fault is None:
            self._unfit_since = None
            return ()
        self._unfit_since = now if self._unfit_since is None else self._unfit_since
        return [f"cannot lead: {self._lease.fault}"] if now - self._unfit_since >= LASTS_S else ()

    async def _see(self) -> None:
        """Whether our resources can be seen in at least one namespace.

        Raises:
            KubeError: in none.
        """
        errors: list[KubeError] = []
        for namespace in self._namespaces:
            try:
                await KopfWatch(self._urgent, namespace, lambda *_: None).check()
            except KubeError as error:
                errors.append(error)
                if error.status == 0:  # it does not answer, whatever it is asked for
                    break
            else:
                return
        raise errors[0]

    @property
    def _namespaces(self) -> Sequence[str | None]:
        return self._settings.watch_namespaces or (None,)

    async def _lead(self) -> None:
        """Acts as the leader until this process no longer sees its objects, or until anything fails.

        The lease is given back only after the last of our own tasks has ended; when it was lost it is not ours to give.
        """
        lanes, triggers = work_lanes(self._api, self._admin, self._settings)
        own = [KopfWatch(self._api, namespace, triggers.own) for namespace in self._namespaces]
        children = [
            Reflector(self._api, kind, namespace, CHILD_SELECTOR, triggers.child)
            for namespace in self._namespaces
            for kind in CHILD_KINDS
        ]
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
            )
        ]
        lost = False
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            lost = tasks[0] in done
            for task in done:
                task.result()
            log.error("the lease is given up: %s", "; ".join(watches.faults()) or "no resources are seen")
        finally:
            LEADER.set(0)
            for said in (READY, REASON):
                said.clear()  # the next leader says it
            self._watches = None
            await _ended(tasks, LOST_S if lost else TASKS_S)
            if not lost:
                await self._lease.release()


async def _ended(tasks: Sequence[asyncio.Task[Any]], seconds: float) -> None:
    """Cancels tasks and waits until they have ended, but not for ever."""
    for task in tasks:
        task.cancel()
    _, left = await asyncio.wait(tasks, timeout=seconds)
    for task in left:
        log.error("%s does not end", task.get_name())


@contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set. Whatever does not end after that, the process ends within `STOP_S`."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    timer = threading.Timer(STOP_S, _give_up)
    timer.daemon = True

    def told(*_: object) -> None:
        if not timer.is_alive() and not stop.is_set():
            timer.start()
            loop.call_soon_threadsafe(stop.set)

    # Not the loop's own handlers: those would wait for a loop that something keeps busy.
    before = {number: signal.signal(number, told) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _give_up() -> None:
    log.error("something does not end: the process ends after %.0f s without it", STOP_S)
    os._exit(1)
