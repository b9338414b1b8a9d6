"""/healthz, /readyz and /metrics of the operator, over HTTP.

/healthz returns 503 when a watch hangs, that is, delivers nothing and does not fail. Queued work does not affect it,
since a restart would not reduce the work.
/readyz returns 503 with an explanation when a resource that the process needs has failed for some time. A standby
returns 200: it must count as available, or a rolling update would block. The new pod waits for the lease, which the old
pod releases only after the new one is available.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

Faults = Callable[[], Sequence[str]]
"""Returns the current faults as messages; empty when there are none."""


class HealthServer:
    """HTTP server of the probes. `hung` returns faults that a restart resolves, `faults` why the process is not
    ready."""

    def __init__(self, port: int, hung: Faults, faults: Faults) -> None:
        self._port = port
        self._hung = hung
        self._faults = faults
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on all addresses, since the kubelet and Prometheus connect from outside the pod."""
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()

    async def stop(self) -> None:
        """Close the listener."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return _answer(self._hung())

    async def _ready(self, _: web.Request) -> web.Response:
        return _answer(self._faults())

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(faults: Sequence[str]) -> web.Response:
    if faults:
        return web.Response(status=503, text="".join(f"{fault}\n" for fault in faults))
    return web.Response(text="ok\n")
