"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import aiohttp

from raptormq_operator.health import HealthServer


async def test_what_is_wrong_is_said_where_it_matters(free_port: int) -> None:
    hung: list[str] = []
    faults: list[str] = []
    health = HealthServer(free_port, lambda: hung, lambda: faults)
    await health.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{free_port}") as session:

            async def ask(path: str) -> tuple[int, str]:
                async with session.get(path) as answer:
                    return answer.status, await answer.text()

            assert [await ask(path) for path in ("/healthz", "/readyz")] == [(200, "ok\n")] * 2
            faults.append("watch of Topic in shop: it is forbidden")
            assert await ask("/readyz") == (503, "watch of Topic in shop: it is forbidden\n")
            assert (await ask("/healthz"))[0] == 200, "a restart would not help"
            hung.append("watch of Topic in shop hangs")
            assert await ask("/healthz") == (503, "watch of Topic in shop hangs\n")
            assert "raptormq_operator_queue_depth" in (await ask("/metrics"))[1]
    finally:
        await health.stop()
