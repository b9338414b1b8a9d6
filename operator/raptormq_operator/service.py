"""The operator's process: waits for the Lease, then runs kopf's watches and the work queue until told to stop.

health server -----------------------------------------------------------
lease: acquire ---- keep (LeaseLost ends everything) -------------- release
                    kopf watches -> work queue -> reconcilers
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
from raptormq_operator.admin import ClientAdmin
from raptormq_operator.health import HealthServer
from raptormq_operator.kube.api import HttpKubeApi, KubeApi
from raptormq_operator.kube.connection import Connection, login
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.kube.lease import Candidate, Lease
from raptormq_operator.metrics import LEADER
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Surroundings
from raptormq_operator.queue import Key, WorkQueue
from raptormq_operator.reconcile_cluster import ClusterReconciler
from raptormq_operator.reconcile_topic import TopicReconciler
from raptormq_operator.settings import Settings
from raptormq_operator.status_writer import StatusWriter
from raptormq_operator.topic_claims import TopicClaims

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


def work_queue(api: KubeApi, admin: ClientAdmin, settings: Settings, claims: TopicClaims) -> WorkQueue:
    """The queue with a reconciler for each kind."""
    events = EventRecorder(api, clock.timestamp)
    writer = StatusWriter(api, events, clock.timestamp)
    surroundings = Surroundings(settings.image, settings.dns_domain)
    clusters = ClusterReconciler(api, admin, events, writer, surroundings)
    topics = TopicReconciler(api, admin, events, writer, surroundings, claims.to)

    async def reconcile(key: Key) -> float | None:
        reconciler = clusters if key.kind == "BrokerCluster" else topics
        return await reconciler(key.namespace, key.name)

    return WorkQueue(reconcile)


async def run(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT.

    Raises:
        RaptorMQError: the API server cannot be found, or the lease was lost.
    """
    watching = kopf_settings()
    connection = Connection(lambda: login(watching))
    candidate = Candidate(settings.namespace, LEASE_NAME, settings.identity)
    claims = TopicClaims()
    async with HttpKubeApi(connection) as api, ClientAdmin() as admin:
        queue = work_queue(api, admin, settings, claims)
        health = HealthServer(settings.port, queue.waiting_seconds)
        lease = Lease(api, candidate, monotonic=time.monotonic, now=clock.micro_timestamp)
        await health.start()
        try:
            if await _may_lead(api, settings, lease):
                await _lead(lease, queue, _watch(watching, settings, queue, claims))
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


def _watch(watching: kopf.OperatorSettings, settings: Settings, queue: WorkQueue, claims: TopicClaims) -> Watch:
    """kopf, with a registry of its own and the same login as our requests."""
    registry = kopf.OperatorRegistry()
    handlers.register(registry, handlers.Triggers(queue, claims), claims)

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


async def _lead(lease: Lease, queue: WorkQueue, watch: Watch) -> None:
    """Acts as the leader until kopf is told to stop by a signal, or until anything fails.

    The lease is given back only after the last of our own tasks has ended; when it was lost it is not ours to give.
    """
    log.info("leading")
    LEADER.set(1)
    tasks = [asyncio.create_task(work) for work in (lease.keep(), queue.run(), watch)]
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
