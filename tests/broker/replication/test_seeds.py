"""Hundreds of seeds of the simulated group with real stores: `make test-simulation`, and more with `make soak`."""

from __future__ import annotations

import os

import pytest

from tests.broker.replication.simulation import Simulation

BLOCK = 25
SEEDS = int(os.environ.get("GROUP_SEEDS", "500"))
"""Number of seeds; `GROUP_SEEDS=10000 make test-simulation` runs more."""


@pytest.mark.simulation
@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_a_group_with_stores_keeps_its_promises(first: int) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        Simulation(seed).run()
