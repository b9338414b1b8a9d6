"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import aiohttp

from raptormq_operator.health import HealthServer


async def test_all_three_are_there(free_port: int) -> None:
    health = HealthServer(free_port)
    await health.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{free_port}") as session:
            for path in ("/healthz", "/readyz"):
                async with session.get(path) as answer:
                    assert answer.status == 200
            async with session.get("/metrics") as answer:
                assert "raptormq_operator_queue_depth" in await answer.text()
    finally:
        await health.stop()
