"""Thousands of seeds of the simulated group: `make test-simulation`, and more with `make soak`."""

from __future__ import annotations

import os

import pytest

from tests.raft.simulation import Simulation

BLOCK = 200
"""Number of seeds of a test. A seeded bug of `tests/mutants/raft.toml` names the block that must find it."""

SEEDS = int(os.environ.get("RAFT_SEEDS", "5000"))
"""Number of seeds; `RAFT_SEEDS=100000 make test-simulation` runs more."""


@pytest.mark.simulation
@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_a_group_keeps_its_promises(first: int) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        Simulation(seed).run()
