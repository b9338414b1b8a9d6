"""Access control is turned on and off under a client that has the right keys all the time: it loses nothing."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import Any

from e2e.brokers import CLUSTER, NAMESPACE, VICTIM, name_servers
from e2e.errors import Failed, Unanswered
from e2e.kubernetes import Kubernetes
from e2e.progress import say

ADMIN_SECRET = "demo-admin"
CLIENT = "signed"
TOPIC = "signed"
SERVERS = ("demo-namesrv", "demo-broker-0-0", "demo-broker-1-0")
ROLL_S = 240


def turns_on_and_off(kubernetes: Kubernetes, image: str) -> None:
    """The administrator's Secret is the user's own, so that the client has its keys beforehand."""
    _apply(kubernetes, _secret(username="admin", password="e2e-password"))
    topic = {"apiVersion": "raptormq.io/v1alpha1", "kind": "Topic", "metadata": {"name": TOPIC}}
    _apply(kubernetes, topic | {"spec": {"clusterRef": {"name": "demo"}}})
    kubernetes.wait_ready(f"topic/{TOPIC}", namespace=NAMESPACE, timeout=60)
    script = Path(__file__).with_name("send_signed.py").read_text(encoding="utf-8")
    _apply(
        kubernetes, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CLIENT}, "data": {"s.py": script}}
    )
    _apply(kubernetes, _client(image, name_servers(kubernetes)))
    kubernetes.kubectl("wait", "--for=condition=Ready", f"pod/{CLIENT}", "-n", NAMESPACE, "--timeout=60s", timeout=90)
    _set(kubernetes, {"enabled": True})
    kubernetes.wait_until("all servers want signatures", partial(_settled, kubernetes, True), ROLL_S)
    _refuses_the_unsigned(kubernetes)
    _has_no_password_in_clear(kubernetes)
    _set(kubernetes, {"enabled": False})
    kubernetes.wait_until("no server wants signatures", partial(_settled, kubernetes, False), ROLL_S)
    kubernetes.kubectl("exec", "-n", NAMESPACE, CLIENT, "--", "touch", "/tmp/stop")
    kubernetes.wait_until("the client ends", lambda: _phase(kubernetes) in ("Succeeded", "Failed"), 60)
    said = json.loads(kubernetes.kubectl("logs", "-n", NAMESPACE, CLIENT).splitlines()[-1])
    if not said["acknowledged"] or said["missing"]:
        raise Failed(f"the client with the right keys: {said}")
    if refusals := [text for text in said["failures"] if "ServerError" in text]:
        raise Failed(f"the client with the right keys was refused: {refusals}")
    say(f"{said['acknowledged']} messages acknowledged, none missing, longest gap {said['longest_gap_s']} s")
    kubernetes.kubectl("delete", f"pod/{CLIENT}", f"configmap/{CLIENT}", f"topic/{TOPIC}", "-n", NAMESPACE, timeout=90)


def _settled(kubernetes: Kubernetes, wanted: bool) -> bool:
    """Whether every StatefulSet has what is wanted, and the cluster is ready with it."""
    for name in SERVERS:
        spec = kubernetes.get("statefulset", name, "-n", NAMESPACE)["spec"]["template"]["spec"]
        if any(volume["name"] == "operator-keys" for volume in spec["volumes"]) != wanted:
            return False
    return kubernetes.is_ready(CLUSTER, NAMESPACE)


def _refuses_the_unsigned(kubernetes: Kubernetes) -> None:
    """The command without keys gets nowhere."""
    command = ["raptormq", "topic", "describe", TOPIC, "--namesrv", "demo-namesrv:9876"]
    try:
        kubernetes.kubectl("exec", "-n", NAMESPACE, VICTIM, "--", *command)
    except Unanswered as error:
        if "username cannot be null" in str(error):
            return
        raise
    raise Failed("an unsigned request was answered")


def _has_no_password_in_clear(kubernetes: Kubernetes) -> None:
    operator = kubernetes.get("secret", "demo-operator", "-n", NAMESPACE)["data"]["password"]
    passwords = {"e2e-password", base64.b64decode(operator).decode()}
    text = json.dumps(kubernetes.get("configmaps,statefulsets,brokerclusters", "-n", NAMESPACE))
    if shown := [password for password in passwords if password in text]:
        raise Failed(f"{len(shown)} passwords stand in ConfigMaps, StatefulSets or BrokerClusters")


def _set(kubernetes: Kubernetes, access: dict[str, Any]) -> None:
    patch = json.dumps({"spec": {"accessControl": access}})
    kubernetes.kubectl("patch", CLUSTER, "-n", NAMESPACE, "--type=merge", "-p", patch)


def _phase(kubernetes: Kubernetes) -> str:
    phase: str = kubernetes.get("pod", CLIENT, "-n", NAMESPACE)["status"]["phase"]
    return phase


def _secret(**texts: str) -> dict[str, Any]:
    metadata = {"name": ADMIN_SECRET}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/basic-auth", "metadata": metadata} | {
        "stringData": texts
    }


def _client(image: str, address: str) -> dict[str, Any]:
    keys = {
        variable: {"secretKeyRef": {"name": ADMIN_SECRET, "key": key}}
        for variable, key in (("RAPTORMQ_ACCESS_KEY", "username"), ("RAPTORMQ_SECRET_KEY", "password"))
    }
    container = {
        "name": CLIENT,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "/input/s.py", address, TOPIC],
        "env": [{"name": name, "valueFrom": source} for name, source in keys.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "input", "mountPath": "/input"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "input", "configMap": {"name": CLIENT}}, {"name": "tmp", "emptyDir": {}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": CLIENT}, "spec": spec}


def _apply(kubernetes: Kubernetes, manifest: dict[str, Any]) -> None:
    kubernetes.kubectl("apply", "-n", NAMESPACE, "-f", "-", manifest=json.dumps(manifest))
