"""Replacements for controllers of Kubernetes on a control plane without controllers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.api.control_plane import ControlPlane

APPS = "/apis/apps/v1"
INTERVAL_S = 0.2


def settle(plane: ControlPlane) -> int:
    """Make all StatefulSets ready with the replicas of their specs. Return the number of those that were not."""
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
    """Context that updates StatefulSets in a thread until its end."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(INTERVAL_S):
            try:
                settle(plane)
            except OSError:  # a conflict, or the API server is frozen: retried in the next iteration
                continue

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
