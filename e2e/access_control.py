"""Turning access control on and off, and changing its password, with official Java clients and without lost
messages."""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import Any

from e2e.brokers import CLUSTER, NAMESPACE, VICTIM, name_servers
from e2e.errors import Failed, Unanswered
from e2e.java_pod import STOP, JavaPod
from e2e.kubernetes import Kubernetes
from e2e.progress import say

ADMIN_SECRET, ADMIN = "demo-admin", "admin"
OLD_PASSWORD, NEW_PASSWORD = "e2e-old-password", "e2e-new-password"
TOPIC = "signed"
SERVERS = ("demo-namesrv", "demo-broker-0-0", "demo-broker-1-0")
ROLL_S = 480
READ_S = 150
"""Time limit in seconds for the end of a client, which reads its messages for at most 120 s."""
MOUNTED_SECRET_S = 180
"""Time limit in seconds for a changed Secret. A kubelet updates its files within 2 minutes."""


def turns_on_and_off(kubernetes: Kubernetes, java_image: str) -> None:
    """Turn access control on, change the password, and turn access control off.

    The test creates the administrator's Secret, so that the clients have the credentials beforehand. The first
    client signs with the old password while access control is turned on and while a second password is added. The
    second client signs with the new password while the old one is removed and access control is turned off.
    """
    apply(kubernetes, secret(username=ADMIN, password=OLD_PASSWORD))
    topic = {"apiVersion": "raptormq.io/v1alpha1", "kind": "Topic", "metadata": {"name": TOPIC}}
    apply(kubernetes, topic | {"spec": {"clusterRef": {"name": "demo"}}})
    kubernetes.wait_ready(f"topic/{TOPIC}", namespace=NAMESPACE, timeout=60)
    _start_client(kubernetes, "old-keys", java_image, OLD_PASSWORD)
    _set(kubernetes, {"enabled": True})
    kubernetes.wait_until("all servers want signatures", partial(_settled, kubernetes, True), ROLL_S)
    kubernetes.wait_until(
        "an unsigned request is refused", partial(_refuses_the_unsigned, kubernetes), MOUNTED_SECRET_S
    )
    _has_no_password_in_clear(kubernetes)
    apply(kubernetes, secret(username=ADMIN, password=OLD_PASSWORD, otherPassword=NEW_PASSWORD))
    kubernetes.wait_until(
        "all servers accept the new password",
        lambda: all(_accepts(kubernetes, address, NEW_PASSWORD) for address in _addresses(kubernetes)),
        MOUNTED_SECRET_S,
    )
    _start_client(kubernetes, "new-keys", java_image, NEW_PASSWORD)
    _end_client(kubernetes, "old-keys")
    apply(kubernetes, secret(username=ADMIN, password=NEW_PASSWORD))
    kubernetes.wait_until(
        "the old password is refused",
        lambda: not any(_accepts(kubernetes, address, OLD_PASSWORD) for address in _addresses(kubernetes)),
        MOUNTED_SECRET_S,
    )
    _set(kubernetes, {"enabled": False})
    kubernetes.wait_until("no server wants signatures", partial(_settled, kubernetes, False), ROLL_S)
    _end_client(kubernetes, "new-keys")
    kubernetes.kubectl("delete", f"topic/{TOPIC}", "-n", NAMESPACE, timeout=90)


def _settled(kubernetes: Kubernetes, wanted: bool) -> bool:
    """Return whether every StatefulSet has the wanted Secrets, and the cluster is ready with them."""
    for name in SERVERS:
        spec = kubernetes.get("statefulset", name, "-n", NAMESPACE)["spec"]["template"]["spec"]
        if any(volume["name"] == "operator-keys" for volume in spec["volumes"]) != wanted:
            return False
    return kubernetes.is_ready(CLUSTER, NAMESPACE)


def _refuses_the_unsigned(kubernetes: Kubernetes) -> bool:
    """Return whether the command is refused without credentials.

    Raises:
        Failed: The command is answered.
        Unanswered: The command failed for another reason.
    """
    error = _described(kubernetes, name_servers(kubernetes))
    if error is None:
        raise Failed("an unsigned request was answered")
    if "username cannot be null" not in error:
        raise Unanswered(error)
    return True


def _accepts(kubernetes: Kubernetes, address: str, password: str) -> bool:
    """Return whether a name server and all brokers of the topic accept the administrator's password.

    Raises:
        Unanswered: The command failed for another reason than the password.
    """
    error = _described(kubernetes, address, f"RAPTORMQ_ACCESS_KEY={ADMIN}", f"RAPTORMQ_SECRET_KEY={password}")
    if error is not None and "signature" not in error:
        raise Unanswered(f"{address}: {error}")
    return error is None


def _addresses(kubernetes: Kubernetes) -> list[str]:
    return name_servers(kubernetes).split(";")


def _described(kubernetes: Kubernetes, address: str, *environment: str) -> str | None:
    return described(kubernetes, TOPIC, VICTIM, address, *environment)


def described(kubernetes: Kubernetes, topic: str, pod: str, address: str, *environment: str) -> str | None:
    """Describe a topic in a pod, which sends requests to a name server and all brokers. Return the error, None without
    one.
    """
    command = ["env", *environment, "raptormq", "topic", "describe", topic, "--namesrv", address]
    try:
        kubernetes.kubectl("exec", "-n", NAMESPACE, pod, "--", *command)
    except Unanswered as error:
        return str(error)
    return None


def _has_no_password_in_clear(kubernetes: Kubernetes) -> None:
    operator = kubernetes.get("secret", "demo-operator", "-n", NAMESPACE)["data"]["password"]
    passwords = {OLD_PASSWORD, base64.b64decode(operator).decode()}
    text = json.dumps(kubernetes.get("configmaps,statefulsets,brokerclusters", "-n", NAMESPACE))
    if shown := [password for password in passwords if password in text]:
        raise Failed(f"ConfigMaps, StatefulSets or BrokerClusters contain {len(shown)} passwords")


def _set(kubernetes: Kubernetes, access: dict[str, Any]) -> None:
    patch = json.dumps({"spec": {"accessControl": access}})
    kubernetes.kubectl("patch", CLUSTER, "-n", NAMESPACE, "--type=merge", "-p", patch)


def _start_client(kubernetes: Kubernetes, name: str, image: str, password: str) -> None:
    """Start a client that signs with a password, and wait until it sends."""
    arguments = ["io.raptormq.interop.produce.SendSigned", name_servers(kubernetes), TOPIC, f"{name}-", STOP]
    keys = {"RAPTORMQ_ACCESS_KEY": ADMIN, "RAPTORMQ_SECRET_KEY": password}
    JavaPod(kubernetes, name).start(image, arguments, "sending", keys)


def _end_client(kubernetes: Kubernetes, name: str) -> None:
    """Stop a client, and check that all acknowledged messages are in the topic."""
    report = JavaPod(kubernetes, name).end(READ_S)
    if not report["acknowledged"] or report["missing"]:
        raise Failed(f"client {name} reports {report}")
    if refusals := [text for text in report["failures"] if "CODE: 1 " in text or "signature" in text]:
        raise Failed(f"requests of client {name} were refused: {refusals}")
    say(
        f"{name}: {report['acknowledged']} messages acknowledged, none missing, longest gap {report['longest_gap_s']} s"
    )


def secret(name: str = ADMIN_SECRET, /, **texts: str) -> dict[str, Any]:
    """Return a Secret with a user name and passwords, by default that of the administrator."""
    metadata = {"name": name}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/basic-auth",
        "metadata": metadata,
        "data": data,
    }


def apply(kubernetes: Kubernetes, manifest: dict[str, Any]) -> None:
    """Apply a manifest in the namespace of the clusters."""
    kubernetes.kubectl("apply", "-n", NAMESPACE, "-f", "-", manifest=json.dumps(manifest))
