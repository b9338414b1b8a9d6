"""What remains of the operator on a real API server after `helm uninstall`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.control_plane import ControlPlane
from tests.api.operator_process import OperatorProcess, until
from tests.api.resources import OURS, make, peers, reasons
from tests.api.stand_ins import settling
from tests.api.test_operator import allow, forbid

TOPICS = 10


def ready(plane: ControlPlane, namespace: str, plural: str) -> dict[str, Any]:
    """Return the Ready condition of the only or first resource."""
    item = plane.request("GET", f"{OURS}/namespaces/{namespace}/{plural}")["items"][0]
    found: dict[str, Any] = item["status"]["conditions"][0]
    return found


@pytest.mark.timeout(300)
async def test_after_an_uninstall_nothing_is_ready_and_no_finalizer_blocks_a_deletion(
    tmp_path: Path, shared_plane: ControlPlane, namespace: str
) -> None:
    topics = f"{OURS}/namespaces/{namespace}/topics"
    kubeconfig = shared_plane.kubeconfig("limited")
    environment = {"LEASE_NAME": "raptormq-operator", "WATCH_NAMESPACES": namespace}
    with peers(tmp_path, (namespace, "demo", 2, 1)), settling(shared_plane):
        allow(shared_plane, namespace)
        make(shared_plane, namespace, "BrokerCluster", "demo")
        for number in range(TOPICS):
            make(shared_plane, namespace, "Topic", f"t{number}", deletionPolicy="Delete")
        with OperatorProcess(tmp_path, kubeconfig, **environment) as operator:
            await until("all are ready", lambda: set(reasons(shared_plane, namespace).values()) == {"Ready"})
            await until("the cluster is", lambda: reasons(shared_plane, namespace, "brokerclusters")["demo"] == "Ready")
            assert all(item["metadata"]["finalizers"] for item in shared_plane.request("GET", topics)["items"])
            operator.terminate()
        forbid(shared_plane, namespace)  # what helm uninstall deletes, before it runs the hook
        allow(shared_plane, namespace, template="uninstall")
        with OperatorProcess(tmp_path, kubeconfig, "hook", "uninstall", WATCH_NAMESPACES=namespace) as hook:
            assert hook.process.wait(90) == 0, hook.log.read_text()
        assert f"the finalizer of {TOPICS} Topics was removed" in hook.log.read_text()
        assert set(reasons(shared_plane, namespace).values()) == {"OperatorRemoved"}
        for plural in ("brokerclusters", "topics"):
            condition = ready(shared_plane, namespace, plural)
            assert condition["status"] == "Unknown"
            assert "the last state was Ready: " in condition["message"]
        shared_plane.request("DELETE", topics)
        assert shared_plane.request("GET", topics)["items"] == []

        allow(shared_plane, namespace)
        make(shared_plane, namespace, "Topic", "again", deletionPolicy="Delete")
        with OperatorProcess(tmp_path, kubeconfig, **environment):
            await until("an installed operator", lambda: reasons(shared_plane, namespace) == {"again": "Ready"})
            await until("serves it", lambda: ready(shared_plane, namespace, "brokerclusters")["status"] == "True")
