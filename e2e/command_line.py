"""Sends and reads messages with the command line, in the pod of a cluster's first name server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from e2e.brokers import NAMESPACE
from e2e.kubernetes import Kubernetes

TIMEOUT_S = 120.0


def produce(kubernetes: Kubernetes, cluster: str, topic: str, bodies: Mapping[str, Any]) -> None:
    """Send a JSON body for each key."""
    lines = (json.dumps({"body": json.dumps(body), "keys": [key]}) for key, body in bodies.items())
    _run(kubernetes, cluster, ["produce", topic, "--format", "json"], "\n".join(lines))


def consume(
    kubernetes: Kubernetes,
    cluster: str,
    topic: str,
    since: str = "earliest",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Return all messages of a topic that were stored since a time, as `raptormq consume --format json` prints them.
    `environment` has the variables for access control and TLS.
    """
    command = ["consume", topic, "--no-follow", "--format", "json", "--from", since]
    text = _run(kubernetes, cluster, command, environment=environment)
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def _run(
    kubernetes: Kubernetes,
    cluster: str,
    command: Iterable[str],
    text: str = "",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    variables = [f"{name}={value}" for name, value in environment.items()]
    inside = ["env", *variables, "raptormq", *command, "--namesrv", f"{cluster}-namesrv:9876"]
    pod = ["-i", "-n", NAMESPACE, f"{cluster}-namesrv-0"]
    return kubernetes.kubectl("exec", *pod, "--", *inside, manifest=text, timeout=TIMEOUT_S)
