"""The Dledger group of the end-to-end run: the checks pass with a working group, and detect losses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e import dledger, kubernetes
from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes

LEADING = {"ledger-broker-0-0": "leader", "ledger-broker-0-1": "follower", "ledger-broker-0-2": "follower"}


class FakeKubernetes(Kubernetes):
    """A group whose pods and claims are recreated after their deletion. A test can keep claims."""

    def __init__(self, roles: dict[str, str], *, keeps_claims: bool = False, hands_over: bool = True) -> None:
        super().__init__("fake", Path())
        self.roles = roles
        self.deleted: list[tuple[str, str]] = []
        self._keeps_claims = keeps_claims
        self._hands_over = hands_over

    def get(self, *arguments: str) -> dict[str, Any]:
        kind = arguments[0]
        if kind == dledger.CLUSTER:
            brokers = [{"name": name, "role": role} for name, role in self.roles.items()]
            ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1}
            return {"metadata": {"generation": 1}, "status": {"brokers": brokers, "conditions": [ready]}}
        prefix = "store-" if kind == "pvc" else ""
        names = [f"{prefix}{name}-0" for name in self.roles]
        return {"items": [{"metadata": {"name": name, "uid": self._uid(kind, name)}} for name in names]}

    def kubectl(self, *arguments: str, manifest: str | None = None, timeout: float = 60) -> str:
        verb, kind, name = arguments[:3]
        assert verb == "delete", (arguments, manifest, timeout)
        self.deleted.append((kind, name))
        if kind == "pod" and self._hands_over:
            last = list(self.roles)[-1]
            self.roles = dict.fromkeys(self.roles, "follower") | {last: "leader"}
        return ""

    def shell(self, commands: str, *, namespace: str, timeout: float) -> str:
        assert (namespace, timeout > 0) == (NAMESPACE, True)
        for line in commands.splitlines():
            if line.startswith("kubectl "):
                self.kubectl(*line.split()[1:])
        return ""

    def _uid(self, kind: str, name: str) -> str:
        lives = 0 if kind == "pvc" and self._keeps_claims else self.deleted.count((kind, name))
        return json.dumps([name, lives])


@pytest.mark.parametrize("roles", [dict.fromkeys(LEADING, "follower"), dict.fromkeys(LEADING, "leader")])
def test_exactly_one_member_leads(monkeypatch: pytest.MonkeyPatch, roles: dict[str, str]) -> None:
    monkeypatch.setattr(dledger, "BACK_TIMEOUT_S", 0)
    with pytest.raises(Failed, match="one member leads: not within"):
        dledger.leader(FakeKubernetes(roles))


def test_a_leader_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "POLL_S", 0.0)
    electing = FakeKubernetes(dict.fromkeys(LEADING, "follower"))
    looks = iter([electing.roles, LEADING])
    monkeypatch.setattr(dledger, "roles", lambda _: next(looks))
    assert dledger.leader(electing) == "ledger-broker-0-0"


def test_the_leader_is_taken_with_its_volume() -> None:
    kubernetes = FakeKubernetes(LEADING)
    dledger.take_leader(kubernetes, with_volume=True)
    assert kubernetes.deleted == [("pvc", "store-ledger-broker-0-0-0"), ("pod", "ledger-broker-0-0-0")]


def test_a_leader_that_still_leads_is_not_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dledger, "BACK_TIMEOUT_S", 0)
    with pytest.raises(Failed, match="is a member again"):
        dledger.take_leader(FakeKubernetes(LEADING, hands_over=False), with_volume=False)


def test_a_volume_that_stays_is_noticed() -> None:
    with pytest.raises(Failed, match="was not replaced"):
        dledger.take_leader(FakeKubernetes(LEADING, keeps_claims=True), with_volume=True)
