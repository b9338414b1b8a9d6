"""Access control and the official clients for Java, Node.js and Go: codes and remarks equal those of Apache RocketMQ
5.3.3.

The tests need separate servers. `reference_access_control.json` is the outcome of the reference. This writes it again::

    python -m tests.interop.test_access_control
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tests.interop.mqadmin_users import PROVIDERS
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import JavaBuild, RocketMQServers, build
from tests.interop.scenarios import Outcomes, Servers, play_some

REFERENCE = Path(__file__).with_name("reference_access_control.json")
SECURED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


SCENARIOS = ("json/AccessControl", "node/Signed", "go/Signed")
"""The first program creates the user of the others."""


def play_secured(built: JavaBuild, servers: Servers) -> Outcomes:
    outcomes = play_some(built, servers, SCENARIOS[:1])
    return outcomes | play_some(built, servers, SCENARIOS[1:])


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    with RaptorMQDev(tmp_path_factory.mktemp("secured"), settings=SECURED) as servers:
        return play_secured(build(), servers)


@pytest.mark.parametrize("name", SCENARIOS)
def test_access_control_ends_as_on_the_reference(outcomes: Outcomes, name: str) -> None:
    assert outcomes[name].get("error") is None
    assert outcomes[name]["outcome"] == json.loads(REFERENCE.read_text(encoding="utf-8"))[name]


def make_reference() -> None:
    built = build()
    settings = SECURED | PROVIDERS | {"diskMaxUsedSpaceRatio": "95"}
    with tempfile.TemporaryDirectory() as scratch, RocketMQServers(built, Path(scratch), settings=settings) as servers:
        outcomes = play_secured(built, servers)
    errors = [f"{name}: {entry['error']}" for name, entry in outcomes.items() if "error" in entry]
    if errors:
        raise SystemExit("\n".join(errors))
    document = {name: entry["outcome"] for name, entry in outcomes.items()}
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True)
    REFERENCE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    make_reference()
