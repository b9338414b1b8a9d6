"""/healthz, /readyz and /metrics of the operator, over HTTP.

/healthz fails when work has waited for a worker for `STALL_S`: then all workers hang and a restart is the cure.
/readyz says 200 as soon as the process serves, as leader or in reserve: a reserve must count as available, or a rolling
update of the operator would wait for ever for the new one, which waits for the lease of the old one.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

STALL_S = 300.0


class HealthServer:
    """`waiting_seconds` says for how long the oldest key has waited for a worker."""

    def __init__(self, port: int, waiting_seconds: Callable[[], float]) -> None:
        self._port = port
        self._waiting_seconds = waiting_seconds
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listens on all addresses: the kubelet and Prometheus come from outside of the pod."""
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()

    async def stop(self) -> None:
        """Closes the listener."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        waiting = self._waiting_seconds()
        if waiting >= STALL_S:
            return web.Response(status=503, text=f"work has waited for {waiting:.0f} s\n")
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
