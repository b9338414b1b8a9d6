"""The end-to-end run that changes the number of members of a group: its waits and its checks."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from e2e import dledger, members
from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes


class FakeKubernetes(Kubernetes):
    """A group with the members of the spec, the last of which has the role `last`."""

    def __init__(self, last: str = "follower", ready: str = "True") -> None:
        super().__init__("fake", Path())
        self._last, self._ready = last, ready
        self.replicas = 3
        self.looks = 0

    def get(self, *arguments: str) -> dict[str, Any]:
        assert arguments[0] == dledger.CLUSTER
        self.looks += 1
        roles = ["leader", *["follower"] * (self.replicas - 2), self._last]
        brokers = [
            {"name": name, "role": role} for name, role in zip(members.members(self.replicas), roles, strict=True)
        ]
        ready = {"type": "Ready", "status": self._ready, "reason": "x", "message": "", "observedGeneration": 1}
        return {"metadata": {"generation": 1}, "status": {"brokers": brokers, "conditions": [ready]}}

    def shell(self, commands: str, *, namespace: str, timeout: float) -> str:
        (patch,) = (shlex.split(line) for line in commands.splitlines() if "kubectl patch" in line)
        assert (patch[3], namespace, timeout > 0) == (dledger.NAME, NAMESPACE, True)
        self.replicas = json.loads(patch[-1])["spec"]["replicas"]
        return ""


def test_as_many_members_vote_as_the_spec_says() -> None:
    kubernetes = FakeKubernetes()
    members.resize(kubernetes, 5)
    assert (kubernetes.replicas, kubernetes.looks > 0) == (5, True)


@pytest.mark.parametrize(("last", "ready"), [("learner", "True"), ("leader", "True"), ("follower", "False")])
def test_a_group_that_is_not_whole_is_noticed(monkeypatch: pytest.MonkeyPatch, last: str, ready: str) -> None:
    monkeypatch.setattr(members, "CHANGE_TIMEOUT_S", 0.0)
    with pytest.raises(Failed, match="5 members vote"):
        members.resize(FakeKubernetes(last, ready), 5)
