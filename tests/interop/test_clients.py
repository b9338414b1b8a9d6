"""The official clients for Java, Node.js and Go with `raptormq dev`: the outcomes of scenarios equal those of Apache
RocketMQ.

`reference_outcomes.json` has the outcomes of the reference (`make_reference.py`), `allowed_differences.json` the
intended differences with their reasons. docs/reference/conformance.md documents both.
"""

from __future__ import annotations

import pytest

from tests.interop.features import FEATURES
from tests.interop.make_conformance import TABLE, render
from tests.interop.outcomes import ALLOWED, REFERENCE, differences, reference_of
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import build
from tests.interop.scenarios import BEFORE_NAMES, SETTINGS, Outcomes, play

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    built = build()
    with RaptorMQDev(tmp_path_factory.mktemp("raptormq"), settings=SETTINGS) as servers:
        return play(built, servers)


@pytest.mark.parametrize("name", [*REFERENCE, *BEFORE_NAMES])
def test_a_scenario_ends_as_on_the_reference(outcomes: Outcomes, name: str) -> None:
    entry = outcomes[name]
    assert entry.get("error") is None
    assert [each for each in differences(name, entry["outcome"]) if each.reason is None] == []


def test_every_scenario_has_a_reference_and_a_feature(outcomes: Outcomes) -> None:
    assert set(outcomes) == {*REFERENCE, *BEFORE_NAMES}
    assert set(map(reference_of, outcomes)) == set(REFERENCE)
    assert {name for names in FEATURES.values() for name in names} == set(REFERENCE), "add it to features.py"


def test_the_table_says_what_came_out(outcomes: Outcomes) -> None:
    assert TABLE.read_text(encoding="utf-8") == render(outcomes), "run python -m tests.interop.make_conformance"


@pytest.mark.parametrize("name", ALLOWED)
def test_what_may_differ_differs(outcomes: Outcomes, name: str) -> None:
    differing = {each.part for each in differences(name, outcomes[name]["outcome"])}
    assert set(ALLOWED[name]) - differing == set()
