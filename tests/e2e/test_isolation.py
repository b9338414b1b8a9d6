"""Restarts of the operator in the end-to-end run: a lost lease is no fault of its neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e import isolation
from e2e.kubernetes import Kubernetes
from raptormq_operator.kube import lease

LOST = f"raptormq_operator: the lease could not be renewed for {lease.RENEW_DEADLINE_S:.0f} s"


class FakeKubernetes(Kubernetes):
    """An operator with its last state, and the log of its previous container."""

    def __init__(self, last_state: dict[str, Any], log: str) -> None:
        super().__init__("fake", Path())
        self._last_state, self._log = last_state, log

    def get(self, *arguments: str) -> dict[str, Any]:
        status = {"containerStatuses": [{"restartCount": 1, "lastState": self._last_state}]}
        return {"items": [{"metadata": {"name": "operator"}, "status": status}]}

    def kubectl(self, *arguments: str, manifest: str | None = None, timeout: float = 60) -> str:
        assert arguments[:2] == ("logs", "--previous")
        return self._log


@pytest.mark.parametrize(
    ("ended", "log"),
    [
        ({"reason": "OOMKilled", "exitCode": 137}, "reconciling\n"),
        ({"reason": "Error", "exitCode": 137}, ""),
        ({"reason": "Completed", "exitCode": 0}, "the lease could not be renewed: timeout\nstopping\n"),
        ({"reason": "OOMKilled", "exitCode": 137}, "the lease could not be renewed: timeout\n"),
        ({"reason": "Error", "exitCode": 137}, "the lease could not be renewed: timeout\n"),
    ],
)
def test_a_restart_is_reported(ended: dict[str, Any], log: str) -> None:
    (found,) = isolation.unexplained_restarts(FakeKubernetes({"terminated": ended}, log))
    assert found.startswith(f"operator: {ended['reason']}, exit code {ended['exitCode']}: ")


def test_no_restart_and_a_lost_lease_are_not() -> None:
    assert isolation.unexplained_restarts(FakeKubernetes({}, "")) == []
    ended = {"terminated": {"reason": "Error", "exitCode": 2}}
    assert isolation.unexplained_restarts(FakeKubernetes(ended, f"leading\n{LOST}\n")) == []
