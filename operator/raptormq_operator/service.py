"""The operator's process: waits for the Lease, then runs kopf's watches and the lanes until told to stop.

health server -----------------------------------------------------------
lease: acquire ---- keep (LeaseLost ends everything) -------------- release
                    kopf watches -> lanes -> reconcilers
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine
from typing import Any

import kopf

from raptormq.logs import get_logger
from raptormq_operator import clock, handlers
from raptormq_operator.admin import Admin, ClientAdmin
from raptormq_operator.cluster_probe import LatestProbes
from raptormq_operator.handlers import Triggers
from raptormq_operator.health import HealthServer
from raptormq_operator.kube.api import HttpKubeApi, KubeApi
from raptormq_operator.kube.connection import Connection, login
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.kube.lease import Candidate, Lease
from raptormq_operator.lanes import Key, Lanes
from raptormq_operator.metrics import LEADER
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Surroundings
from raptormq_operator.reconcile_cluster import ClusterReconciler
from raptormq_operator.reconcile_topics import TopicsReconciler
from raptormq_operator.settings import Settings
from raptormq_operator.status_writer import StatusWriter
from raptormq_operator.topic_store import TopicStore

LEASE_NAME = "raptormq-operator"
CRD_POLL_S = 5.0
"""Between two looks whether the API server knows our resources."""

Watch = Coroutine[Any, Any, None]
"""kopf, ready to be run."""

log = get_logger(__name__)


def kopf_settings() -> kopf.OperatorSettings:
    """kopf as a watcher only: no Events, nothing persisted, connections that are given up before load balancers do."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.persistence.finalizer = f"{names.GROUP}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=f"kopf.{names.GROUP}")
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=f"kopf.{names.GROUP}")
    return settings


def work_lanes(api: KubeApi, admin: Admin, settings: Settings) -> tuple[Lanes, Triggers]:
    """The lanes with a reconciler for each kind of key, and what gives them work."""
    events = EventRecorder(api, clock.timestamp)
    writer = StatusWriter(api, events, clock.timestamp)
    surroundings = Surroundings(settings.image, settings.dns_domain)
    store, probes = TopicStore(), LatestProbes()

    async def reconcile(key: Key, changed: bool) -> float | None:
        if key.kind == "BrokerCluster":
            return await clusters(key.namespace, key.name, changed=changed)
        return await topics(key.namespace, key.name)

    def suspect(namespace: str, name: str) -> None:
        lanes.look(Key("BrokerCluster", namespace, name))

    lanes = Lanes(reconcile)
    triggers = Triggers(lanes, store)
    clusters = ClusterReconciler(api, admin, events, writer, surroundings, probes, triggers.topics_of)
    topics = TopicsReconciler(api, admin, events, writer, surroundings, store, probes, suspect)
    return lanes, triggers


async def run(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT.

    Raises:
        RaptorMQError: the API server cannot be found, or the lease was lost.
    """
    watching = kopf_settings()
    connection = Connection(lambda: login(watching))
    candidate = Candidate(settings.namespace, LEASE_NAME, settings.identity)
    async with HttpKubeApi(connection) as api, ClientAdmin() as admin:
        lanes, triggers = work_lanes(api, admin, settings)
        health = HealthServer(settings.port)
        lease = Lease(api, candidate, monotonic=time.monotonic, now=clock.micro_timestamp)
        await health.start()
        try:
            if await _may_lead(api, settings, lease):
                await _lead(lease, lanes, _watch(watching, settings, triggers))
        finally:
            await health.stop()


async def _may_lead(api: KubeApi, settings: Settings, lease: Lease) -> bool:
    """Waits for our resources and the lease; False when told to stop before."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    async def prepare() -> None:
        await _resources_served(api, settings)
        log.info("waiting for the lease")
        await lease.acquire()

    preparing, stopping = asyncio.ensure_future(prepare()), asyncio.ensure_future(stop.wait())
    await asyncio.wait({preparing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in (preparing, stopping):
        task.cancel()
    if not preparing.done() or preparing.cancelled():
        return False
    preparing.result()
    return True


async def _resources_served(api: KubeApi, settings: Settings) -> None:
    """Waits until the API server knows our resources: kopf never looks again for those that it does not find."""
    namespace = next(iter(settings.watch_namespaces), settings.namespace)
    for kind in ("BrokerCluster", "Topic"):
        while not await _is_served(api, kind, namespace):
            log.error("the API server has no resource %s.%s: kubectl apply --server-side -f crds/", kind, names.GROUP)
            await asyncio.sleep(CRD_POLL_S)


async def _is_served(api: KubeApi, kind: str, namespace: str) -> bool:
    """False only when the API server says so; what else may be wrong is for those who watch."""
    try:
        await api.select(kind, namespace, "")
    except KubeError as error:
        return error.status != 404
    return True


def _watch(watching: kopf.OperatorSettings, settings: Settings, triggers: Triggers) -> Watch:
    """kopf, with a registry of its own and the same login as our requests."""
    registry = kopf.OperatorRegistry()
    handlers.register(registry, triggers)

    @kopf.on.login(registry=registry)
    def log_in(**_: Any) -> kopf.ConnectionInfo | None:
        return login(watching)

    return _until_unserved(
        kopf.operator(
            registry=registry,
            settings=watching,
            standalone=True,
            clusterwide=not settings.watch_namespaces,
            namespaces=settings.watch_namespaces,
        )
    )


async def _until_unserved(watch: Watch) -> None:
    """Runs kopf, whose own errors have no public class; a definition that was deleted is none of its bugs.

    Raises:
        KubeError: what is watched is no longer served.
    """
    try:
        await watch
    except Exception as error:
        if getattr(error, "status", None) != 404:
            raise
        said = getattr(error, "message", None)
        raise KubeError(404, f"the API server no longer has a resource that is watched: {said}") from error


async def _lead(lease: Lease, lanes: Lanes, watch: Watch) -> None:
    """Acts as the leader until kopf is told to stop by a signal, or until anything fails.

    The lease is given back only after the last of our own tasks has ended; when it was lost it is not ours to give.
    """
    log.info("leading")
    LEADER.set(1)
    tasks = [asyncio.create_task(work) for work in (lease.keep(), lanes.run(), watch)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        LEADER.set(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await lease.release()
