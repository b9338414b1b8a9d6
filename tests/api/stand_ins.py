"""What controllers of a Kubernetes would do, where there are none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.api.control_plane import ControlPlane

APPS = "/apis/apps/v1"
INTERVAL_S = 0.2


def settle(plane: ControlPlane) -> int:
    """All StatefulSets reach what their specs say; returns how many had not."""
    changed = 0
    for found in plane.request("GET", f"{APPS}/statefulsets")["items"]:
        metadata, replicas = found["metadata"], found["spec"]["replicas"]
        counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), replicas)
        wanted: dict[str, Any] = {"observedGeneration": metadata["generation"], **counts}
        if wanted.items() <= found.get("status", {}).items():
            continue
        path = f"{APPS}/namespaces/{metadata['namespace']}/statefulsets/{metadata['name']}/status"
        plane.request("PATCH", path, {"status": wanted}, "application/merge-patch+json")
        changed += 1
    return changed


@contextmanager
def settling(plane: ControlPlane) -> Iterator[None]:
    """StatefulSets are settled all the time, in a thread."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(INTERVAL_S):
            try:
                settle(plane)
            except OSError:  # a conflict, or the API server is frozen: next time
                continue

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
