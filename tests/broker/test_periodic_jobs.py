"""Periodic jobs: a failed job is logged and does not affect the others."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.broker.broker import PeriodicJobs


async def test_jobs_run_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    runs = asyncio.Semaphore(0)

    def fail() -> None:
        raise ValueError("broken job")

    maintenance = PeriodicJobs((fail, runs.release), 0.001)
    maintenance.start()
    for _ in range(3):
        await asyncio.wait_for(runs.acquire(), 10)
    maintenance.stop()
    maintenance.stop()
    assert "broken job" in caplog.text
