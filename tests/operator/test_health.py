"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import aiohttp

from raptormq_operator.health import STALL_S, HealthServer


async def test_health_follows_the_queue_and_metrics_are_there(free_port: int) -> None:
    waiting = 0.0
    probe = HealthServer(free_port, lambda: waiting)
    await probe.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{free_port}") as session:
            async with session.get("/healthz") as answer:
                assert answer.status == 200
            waiting = STALL_S
            async with session.get("/healthz") as answer:
                assert answer.status == 503
                assert "300 s" in await answer.text()
            async with session.get("/readyz") as answer:
                assert answer.status == 200, "who hangs is restarted, not taken out of a Service"
            async with session.get("/metrics") as answer:
                assert "raptormq_operator_queue_depth" in await answer.text()
    finally:
        await probe.stop()
