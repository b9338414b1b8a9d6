"""Thousands of seeds of the simulated group: `make test-simulation`, and `make soak` with more."""

from __future__ import annotations

import os

import pytest

from tests.raft.simulation import Simulation

BLOCK = 200
"""Of a test; the first block is the budget in which each planted bug of `tests/mutants/raft.toml` has to be found."""

SEEDS = int(os.environ.get("RAFT_SEEDS", "5000"))
"""How many seeds; `RAFT_SEEDS=100000 make test-simulation` for more."""


@pytest.mark.simulation
@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_a_group_keeps_its_promises(first: int) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        Simulation(seed).run()
