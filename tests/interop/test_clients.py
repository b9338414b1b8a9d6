"""The official clients for Java, Node.js and Go against `raptormq dev`: scenarios end as on Apache RocketMQ 5.3.3.

`reference_outcomes.json` holds the outcomes on the reference (`make_reference.py`), `allowed_differences.json` what
differs on purpose, with the reason.
"""

from __future__ import annotations

import pytest

from tests.interop.outcomes import ALLOWED, REFERENCE, expected
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import build
from tests.interop.scenarios import SETTINGS, Outcomes, play

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
    assert entry["outcome"] == expected(name)


def test_every_scenario_has_a_reference(outcomes: Outcomes) -> None:
    assert set(outcomes) == set(REFERENCE)


@pytest.mark.parametrize("name", ALLOWED)
def test_what_may_differ_differs(name: str) -> None:
    same = [part for part, allowed in ALLOWED[name].items() if REFERENCE[name].get(part) == allowed["ours"]]
    assert same == []
