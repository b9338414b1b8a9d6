"""The Java client and servers with an IPv6 address: the outcomes of scenarios equal those with IPv4 (and those of
Apache RocketMQ).

ali-ons and the Go client do not accept an IPv6 address of a name server.
"""

from __future__ import annotations

import pytest

from tests.interop.outcomes import differences
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import build
from tests.interop.scenarios import SETTINGS, Outcomes, play_some

SCENARIOS = (
    "SyncSend", "BatchSend", "Queries", "Transactions", "RequestReply", "Retries", "OrderedConsumption",
    "PopConsumption", "TimerMessages", "GroupControl",
)  # fmt: skip
"""Scenarios with hosts in records or ids, and those in which a broker sends requests to a client."""

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    built = build()
    with RaptorMQDev(tmp_path_factory.mktemp("ipv6"), settings=SETTINGS, host="::1") as servers:
        return play_some(built, servers, SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_ends_as_over_ipv4(outcomes: Outcomes, scenario: str) -> None:
    name = f"json/{scenario}"
    assert outcomes[name].get("error") is None
    assert [each for each in differences(name, outcomes[name]["outcome"]) if each.reason is None] == []
