"""Test of a Dledger group that grows from three members to five and shrinks again while Java clients are connected.
Every acknowledged message must be consumed. The test is a separate run, `python -m e2e members`, because both changes
restart three brokers one after the other.
"""

from __future__ import annotations

import time

from e2e import dledger, documented
from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.progress import say

CHANGE_TIMEOUT_S = 900.0
"""Time limit of a change. The operator waits 35 s between two restarts, so that clients learn the address of the pod.
"""
READ_S = 240
"""More than the 2 x 90 s for which the client sends and reads its last messages at most."""
ROUTES_MS = 30_000
"""The default of the clients. They learn of other members by their routes."""


def change_under_clients(kubernetes: Kubernetes, image: str) -> None:
    """Add two members, make the last one the leader, and remove both. No acknowledged message may be missing."""
    dledger.make_topic(kubernetes, dledger.FOLLOWED)
    kubernetes.wait_ready(f"topic/{dledger.FOLLOWED}", namespace=NAMESPACE, timeout=dledger.READY_TIMEOUT_S)
    client = dledger.start_following(kubernetes, image, ROUTES_MS)
    resize(kubernetes, 5)
    command = ["raptormq", "cluster", "transfer", "broker-0", "--to", "n4"]
    kubernetes.kubectl("exec", "-n", NAMESPACE, f"{dledger.NAME}-namesrv-0", "--", *command)
    resize(kubernetes, 3)
    left = {each["metadata"]["name"] for each in kubernetes.get("pvc", "-n", NAMESPACE)["items"]}
    if gone := [f"store-{name}-0" for name in members(5)[3:] if f"store-{name}-0" in left]:
        raise Failed(f"volume claims of removed members exist despite whenDeleted: Delete: {', '.join(gone)}")
    report = client.end(READ_S)
    if not report["acknowledged"] or report["missing"]:
        raise Failed(f"the Java clients report {report}")
    say(
        f"{report['acknowledged']} messages acknowledged, none missing, the longest time without one"
        f" {report['longest_gap_s']} s, without one consumed {report['longest_consumer_gap_s']} s"
    )


def resize(kubernetes: Kubernetes, replicas: int) -> None:
    """Change `replicas`, and wait until the cluster is Ready with this number of voters and claims."""
    began = time.monotonic()
    documented.execute(
        kubernetes,
        "docs/guides/choosing-replication.md",
        "From three members to five, and back",
        {"NAME": dledger.NAME, '"replicas":5': f'"replicas":{replicas}', " -w ": " "},
        namespace=NAMESPACE,
    )
    last = ""

    def whole() -> bool:
        nonlocal last
        message = kubernetes.ready(dledger.CLUSTER, NAMESPACE)["message"]
        if message != last:
            last = message
            say(f"  {time.monotonic() - began:.0f} s: {message}")
        wanted = dict.fromkeys(members(replicas), "follower")
        roles = dledger.roles(kubernetes)
        leading = [name for name, role in roles.items() if role == "leader"]
        return kubernetes.is_ready(dledger.CLUSTER, NAMESPACE) and (
            len(leading) == 1 and roles == wanted | {leading[0]: "leader"}
        )

    kubernetes.wait_until(f"{replicas} members vote", whole, CHANGE_TIMEOUT_S)
    say(f"{replicas} members vote after {time.monotonic() - began:.0f} s; {dledger.leader(kubernetes)} leads")


def members(count: int) -> list[str]:
    """Return the names of the brokers."""
    return [f"{dledger.NAME}-broker-0-{index}" for index in range(count)]
