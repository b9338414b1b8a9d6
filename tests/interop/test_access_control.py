"""Access control as the official Java client 5.3.3 meets it: the same codes and remarks as on Apache RocketMQ 5.3.3.

Needs servers of its own. `reference_access_control.json` is the outcome on the reference; this makes it anew::

    python -m tests.interop.test_access_control
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import RocketMQServers, build
from tests.interop.scenarios import play_some

REFERENCE = Path(__file__).with_name("reference_access_control.json")
SECURED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def test_access_control_ends_as_on_the_reference(tmp_path: Path) -> None:
    with RaptorMQDev(tmp_path, settings=SECURED) as servers:
        entry = play_some(build(), servers, ["AccessControl"])["json/AccessControl"]
    assert entry.get("error") is None
    assert entry["outcome"] == json.loads(REFERENCE.read_text(encoding="utf-8"))


def make_reference() -> None:
    providers = {
        f"{kind}Provider": f"org.apache.rocketmq.auth.{kind}.provider.Default{kind.capitalize()}Provider"
        for kind in ("authentication", "authorization")
    } | {
        f"{kind}MetadataProvider": f"org.apache.rocketmq.auth.{kind}.provider.Local{kind.capitalize()}MetadataProvider"
        for kind in ("authentication", "authorization")
    }
    built = build()
    settings = SECURED | providers | {"diskMaxUsedSpaceRatio": "95"}
    with tempfile.TemporaryDirectory() as scratch, RocketMQServers(built, Path(scratch), settings=settings) as servers:
        entry = play_some(built, servers, ["AccessControl"])["json/AccessControl"]
    if "error" in entry:
        raise SystemExit(entry["error"])
    text = json.dumps(entry["outcome"], indent=1, ensure_ascii=False, sort_keys=True)
    REFERENCE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    make_reference()
