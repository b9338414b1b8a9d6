"""/healthz, /readyz and /metrics of the operator, over HTTP.

/healthz answers for as long as the event loop turns, and says 503 when a watch hangs: it neither shows anything nor
fails. How much work waits, and for whom, says nothing about the process: a restart would only begin all of it anew.
/readyz says 503, in words, when something has failed for a while that this process needs. It says 200 in reserve too:
a reserve must count as available, or a rolling update of the operator would wait for ever for the new one, which waits
for the lease of the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

Faults = Callable[[], Sequence[str]]
"""What is wrong, in words."""


class HealthServer:
    """`hung` is why a restart is the cure, `faults` why the process is not ready."""

    def __init__(self, port: int, hung: Faults, faults: Faults) -> None:
        self._port = port
        self._hung = hung
        self._faults = faults
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listens on all addresses: the kubelet and Prometheus come from outside of the pod."""
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()

    async def stop(self) -> None:
        """Closes the listener."""
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
