"""Features of all kinds on one cluster of real processes, in each mode of replication under each condition.

The features are used at the same time. A failure names the feature, and the cell of docs/explanation/crossings.md is
that feature with the mode and the condition of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

from raptormq.client import AdminClient
from tests.crossings import MATRIX
from tests.faults.crossing_clusters import Cluster, cluster_under
from tests.faults.crossing_features import FEATURES, Feature

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

STEP_S = 120.0
"""Limit of a step of a feature. It only ends what hangs."""


async def _each(features: Sequence[Feature], step: str) -> None:
    """Run a step of all features at once.

    Raises:
        ExceptionGroup: steps that failed, with notes that name the features.
    """

    async def run(feature: Feature) -> None:
        work: Awaitable[None] = getattr(feature, step)()
        try:
            await asyncio.wait_for(work, STEP_S)
        except Exception as error:
            error.add_note(f"feature {feature.name}, {step} the condition")
            raise

    results = await asyncio.gather(*map(run, features), return_exceptions=True)
    if failed := [result for result in results if isinstance(result, Exception)]:
        raise ExceptionGroup(f"{len(failed)} of {len(features)} features failed", failed)


async def _happen(cluster: Cluster, condition: str) -> None:
    if condition == "restart":
        await cluster.restart()
    elif condition == "fail-over":
        await cluster.fail_over()
    elif condition == "full-disk":
        await cluster.fill_disks()


@pytest.mark.parametrize(("mode", "condition"), MATRIX)
async def test_features_hold_under_a_condition(tmp_path: Path, mode: str, condition: str) -> None:
    async with (
        cluster_under(mode, condition, tmp_path) as cluster,
        AdminClient(client_config=cluster.administration) as admin,
    ):
        features = [FEATURES[name](cluster, admin) for name in MATRIX[mode, condition]]
        for feature in features:
            await feature.prepare()
        await _each(features, "before")
        await _happen(cluster, condition)
        await _each(features, "after")
