"""Resources on a control plane, and servers for their clusters."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raptormq_operator.kube.client import RESOURCES
from tests.api.control_plane import ADMIN_TOKEN, ControlPlane

OURS = "/apis/raptormq.io/v1alpha1"


def make(plane: ControlPlane, namespace: str, kind: str, name: str, /, **spec: Any) -> None:
    plural = RESOURCES[kind][1]
    if kind == "Topic":
        spec = {"clusterRef": {"name": "demo"}, **spec}
    body = {"apiVersion": "raptormq.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    plane.request("POST", f"{OURS}/namespaces/{namespace}/{plural}", body)


def reasons(plane: ControlPlane, namespace: str, plural: str = "topics") -> dict[str, str]:
    """Return name -> reason of the Ready condition, empty without a condition."""
    items = plane.request("GET", f"{OURS}/namespaces/{namespace}/{plural}")["items"]
    found = {}
    for item in items:
        conditions = item.get("status", {}).get("conditions", [])
        found[item["metadata"]["name"]] = conditions[0]["reason"] if conditions else ""
    return found


def post(plane: ControlPlane, bodies: Iterable[tuple[str, Any]]) -> None:
    """Create many objects (path, body) over a few connections."""
    work = list(bodies)
    context = plane.tls
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}

    def some(part: list[tuple[str, Any]]) -> None:
        connection = http.client.HTTPSConnection(plane.server.removeprefix("https://"), context=context, timeout=60)
        for path, body in part:
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{path}: {text!r:.200}")
        connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(some, [work[start::4] for start in range(4)]))


def topics(namespace: str, cluster: str, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Return Topic resources for `post`."""
    for name in names:
        body = {
            "apiVersion": "raptormq.io/v1alpha1",
            "kind": "Topic",
            "metadata": {"name": name},
            "spec": {"clusterRef": {"name": cluster}},
        }
        yield f"{OURS}/namespaces/{namespace}/topics", body


@contextmanager
def peers(folder: Path, *clusters: tuple[str, str, int, int] | tuple[str, str, int, int, int]) -> Iterator[None]:
    """Name servers and brokers in a process."""
    (folder / "clusters.json").write_text(json.dumps(clusters))
    (folder / "serving").unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, "-m", "tests.api.peers", str(folder)])
    try:
        deadline = time.monotonic() + 30
        while not (folder / "serving").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()
