"""Supervised kopf instance that watches BrokerClusters and Topics in one namespace.

kopf stops at the first rejected watch, does not detect a CustomResourceDefinition that is created later, and cancels
all tasks of its event loop when it stops. Each namespace therefore has its own kopf instance in a thread with its own
event loop. This supervisor restarts the instance:

    the API server serves both kinds? -> kopf -> both watches started -> list: existing and deleted objects
         ^                                                                   |
         |  backoff                                                          v
         +---------------- kopf stopped, or the API server rejects <--- every `CHECK_S`

The list follows the start of the watches, so that no change is missed between them. An event may be delivered by both;
the receiver detects duplicates by the resourceVersion.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import kopf

from raptormq.logs import get_logger
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.reflector import ADDED, BACKOFF_FIRST_S, BACKOFF_MAX_S, DELETED, Source, WatchState
from raptormq_operator.metrics import WATCH_RESTARTS
from raptormq_operator.model import names
from raptormq_operator.retries import Retries

KINDS = {"brokerclusters": "BrokerCluster", "topics": "Topic"}
BEGIN_S = 30.0
"""Time limit in seconds for kopf to start both watches."""
CHECK_S = 5.0
"""Interval in seconds of the check that the API server serves both kinds."""
LIST_S = 600.0
"""Interval in seconds of full lists, as a safeguard against lost events."""
STOP_S = 3.0
"""Time limit in seconds for kopf to stop. Its thread is a daemon and does not delay the end of the process."""

Handler = Callable[[str, str | None, Mapping[str, Any]], None]
"""Callback (kind, event type of kopf, object). It runs on the event loop of the caller of `KopfWatch.run`."""

log = get_logger(__name__)


def kopf_settings() -> kopf.OperatorSettings:
    """Return settings for kopf as a pure watcher: no Events, no persistence. Watches end before load balancers drop
    idle connections."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    # For thousands of objects: paged lists, and a bounded number of workers that exit soon when idle.
    settings.watching.chunk_size = 500
    settings.queueing.worker_limit = 100
    settings.queueing.idle_timeout = 0.2
    settings.queueing.exit_timeout = 0.5
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.persistence.finalizer = f"{names.GROUP}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=f"kopf.{names.GROUP}")
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=f"kopf.{names.GROUP}")
    return settings


def login(settings: kopf.OperatorSettings) -> kopf.ConnectionInfo:
    """Return the credentials that `kube.client` uses: of the pod's service account, or else of the kubeconfig."""
    info = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(settings=settings)
    if info is None:
        raise kopf.LoginError("no service account and no kubeconfig found to connect to the Kubernetes API server")
    return info


class KopfWatch:
    """Watch of BrokerClusters and Topics in `namespace`; None selects all namespaces."""

    def __init__(
        self,
        source: Source,
        namespace: str | None,
        handler: Handler,
        *,
        clock: Callable[[], float] = time.monotonic,
        vary: Callable[[], float] = random.random,
    ) -> None:
        self._source = source
        self._namespace = namespace
        self._handler = handler
        self._clock = clock
        self._retries: Retries[str] = Retries(BACKOFF_FIRST_S, BACKOFF_MAX_S, clock=clock, vary=vary)
        self._known: dict[tuple[str, str, str], str] = {}
        """uid of each existing object, by kind, namespace and name."""
        self._held: list[tuple[str, str | None, Mapping[str, Any]]] | None = None
        self.state = WatchState(f"BrokerCluster and Topic in {namespace or 'all namespaces'}", clock())

    async def run(self) -> None:
        """Watch until cancelled; restart kopf with backoff after each error."""
        while True:
            try:
                await self.check()
                await self._session()
            except KubeError as error:
                if self.state.fault is None:
                    log.warning("watch of %s ended: %s", self.state.name, error)
                self.state.fails(self._clock(), str(error))
                await asyncio.sleep(self._retries.failed("", str(error.status)))
            for kind in KINDS.values():
                WATCH_RESTARTS.labels(kind).inc()

    async def check(self) -> None:
        """Check that the API server serves both kinds to the operator.

        Raises:
            KubeError: A kind is not defined, or access was denied.
        """
        for kind in KINDS.values():
            try:
                await self._source.page(kind, self._namespace, limit=1)
            except KubeError as error:
                if error.status != 404:
                    raise
                text = f"the API server does not serve {kind}.{names.GROUP}: kubectl apply --server-side -f crds/"
                raise KubeError(404, text) from error

    async def _session(self) -> None:
        """Run one kopf instance until it stops."""
        self._held = []  # buffers events until the first list
        thread = _KopfThread(self._namespace, self._see)
        thread.start()
        try:
            await thread.until_watching()
            await self._list()
            listed_at = self._clock()
            while True:
                self.state.synced = True
                self.state.runs(self._clock())
                self._retries.succeeded("")
                await thread.ended_within(CHECK_S)
                await self.check()
                if self._clock() - listed_at >= LIST_S:
                    await self._list()
                    listed_at = self._clock()
        finally:
            await thread.stop()
            self._held = None

    async def _list(self) -> None:
        """Deliver all existing objects and the deletions since the last list.

        Events of kopf are buffered until the list is complete. In a partial list the older of two conflicting Topics
        may be missing.
        """
        self._held = self._held or []
        try:
            bodies = [body for kind in KINDS.values() for body in await self._all(kind)]
            places = {_place(body["kind"], body) for body in bodies}
            for body in bodies:
                self._show(body["kind"], ADDED, body)
            for kind, namespace, name in self._known.keys() - places:
                uid = self._known[kind, namespace, name]
                self._show(kind, DELETED, {"metadata": {"namespace": namespace, "name": name, "uid": uid}})
        finally:
            held, self._held = self._held, None
            for kind, what, body in held:
                self._show(kind, what, body)

    async def _all(self, kind: str) -> list[Mapping[str, Any]]:
        bodies: list[Mapping[str, Any]] = []
        after = ""
        while True:
            page = await self._source.page(kind, self._namespace, after=after)
            for item in page["items"]:
                item["metadata"].pop("managedFields", None)  # unused, and the largest part of an object
                bodies.append({**item, "kind": kind, "apiVersion": names.API_VERSION})
            after = page["metadata"].get("continue", "")
            if not after:
                return bodies

    def _see(self, kind: str, what: str | None, body: Mapping[str, Any]) -> None:
        if self._held is None:
            self._show(kind, what, body)
        else:
            self._held.append((kind, what, body))

    def _show(self, kind: str, what: str | None, body: Mapping[str, Any]) -> None:
        place = _place(kind, body)
        if what == DELETED:
            self._known.pop(place, None)
        else:
            self._known[place] = body["metadata"]["uid"]
        self._handler(kind, what, body)


class _KopfThread:
    """Thread that runs one kopf instance. Its callbacks run on the event loop that created it."""

    def __init__(self, namespace: str | None, see: Handler) -> None:
        self._namespace = namespace
        self._see = see
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._watching: set[str] = set()
        self._all_watching = asyncio.Event()
        self._ended: asyncio.Future[BaseException | None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=f"kopf {namespace or ''}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def until_watching(self) -> None:
        """Wait until both watches have started.

        Raises:
            KubeError: The watches did not start within `BEGIN_S`, or kopf stopped.
        """
        began = asyncio.ensure_future(self._all_watching.wait())
        either: set[asyncio.Future[Any]] = {began, self._ended}
        try:
            await asyncio.wait(either, timeout=BEGIN_S, return_when=asyncio.FIRST_COMPLETED)
            self._raise_if_ended()
            if not self._all_watching.is_set():
                raise KubeError(0, f"kopf did not start its watches within {BEGIN_S:.0f} s")
        finally:
            began.cancel()

    async def ended_within(self, seconds: float) -> None:
        """Wait for the given time.

        Raises:
            KubeError: kopf stopped.
        """
        await asyncio.wait({self._ended}, timeout=seconds)
        self._raise_if_ended()

    async def stop(self) -> None:
        """Stop kopf and wait up to `STOP_S` for its end."""
        self._stop.set()
        await asyncio.wait({self._ended}, timeout=STOP_S)

    def _raise_if_ended(self) -> None:
        if self._ended.done():
            error = self._ended.result()
            status = getattr(error, "status", None)
            said = str(getattr(error, "message", None) or error or "kopf stopped")
            raise KubeError(status if isinstance(status, int) else 0, said)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._watch())
        except BaseException as caught:  # noqa: BLE001 - passed to the supervisor, which logs it
            error = caught
        self._tell(lambda: self._end(error))

    def _end(self, error: BaseException | None) -> None:
        if not self._ended.done():
            self._ended.set_result(error)

    async def _watch(self) -> None:
        registry = kopf.OperatorRegistry()
        settings = kopf_settings()

        @kopf.on.login(registry=registry)
        async def log_in(**_: Any) -> kopf.AiohttpSession:
            info = login(settings)
            trace = aiohttp.TraceConfig()
            trace.on_request_end.append(self._answered)
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
                headers=info.as_http_headers(),
                trace_configs=[trace],
            )
            return kopf.AiohttpSession(
                server=info.server, default_namespace=info.default_namespace, aiohttp_session=session
            )

        for plural, kind in KINDS.items():

            @kopf.on.event(names.API_VERSION, plural, registry=registry)
            async def on_event(event: kopf.RawEvent, kind: str = kind, **_: Any) -> None:
                what, body = event["type"], event["object"]
                self._tell(lambda: self._see(kind, what, body))

        await kopf.operator(
            registry=registry,
            settings=settings,
            standalone=True,
            clusterwide=self._namespace is None,
            namespaces=[] if self._namespace is None else [self._namespace],
            stop_flag=self._stop,
        )

    async def _answered(self, _: Any, __: Any, params: aiohttp.TraceRequestEndParams) -> None:
        plural = params.url.path.rsplit("/", 1)[-1]
        if plural in KINDS and params.url.query.get("watch") == "true" and params.response.status == 200:
            self._tell(lambda: self._began(plural))

    def _began(self, plural: str) -> None:
        self._watching.add(plural)
        if self._watching == KINDS.keys():
            self._all_watching.set()

    def _tell(self, call: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the event loop is closed because the process is ending
            self._stop.set()


def _place(kind: str, body: Mapping[str, Any]) -> tuple[str, str, str]:
    return kind, body["metadata"]["namespace"], body["metadata"]["name"]
