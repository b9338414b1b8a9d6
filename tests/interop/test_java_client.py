"""The official Java client 5.3.3 against `raptormq dev`: every scenario ends as it does on Apache RocketMQ 5.3.3.

`reference_outcomes.json` holds the outcomes on the reference (`make_reference.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import build
from tests.interop.scenarios import SETTINGS, Outcomes, play

REFERENCE: dict[str, Any] = json.loads(Path(__file__).with_name("reference_outcomes.json").read_text(encoding="utf-8"))

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    built = build()
    with RaptorMQDev(tmp_path_factory.mktemp("raptormq"), settings=SETTINGS) as servers:
        return play(built, servers)


@pytest.mark.parametrize("name", REFERENCE)
def test_a_scenario_ends_as_on_the_reference(outcomes: Outcomes, name: str) -> None:
    entry = outcomes[name]
    assert entry.get("error") is None
    assert entry["outcome"] == REFERENCE[name]


def test_every_scenario_has_a_reference(outcomes: Outcomes) -> None:
    assert set(outcomes) == set(REFERENCE)
