"""The brokers' part of the run: install, apply, send while a broker is taken away."""

from __future__ import annotations

import base64
import json
import string
import time
from pathlib import Path
from typing import Any

from e2e import chart_upgrade, records, rules
from e2e.errors import Failed
from e2e.images import ROOT
from e2e.kubernetes import Kubernetes
from e2e.progress import say, step

NAMESPACE = "flights"
OPERATOR_NAMESPACE = chart_upgrade.OPERATOR_NAMESPACE
CLUSTER = "brokercluster/demo"
TOPIC = "topic/flights"
VICTIM = "demo-broker-0-0-0"
SEND_TIMEOUT_S = 240.0


def install(kubernetes: Kubernetes, image: str) -> None:
    """The chart, the rules of its resources, the example resources."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": _restricted()}}
    kubernetes.kubectl("apply", "-f", "-", manifest=json.dumps(namespace))
    with step("helm install the chart of the last release"):
        chart_upgrade.install_previous(kubernetes, image)
    with step("the documented commands upgrade it to helm/raptormq, and helm test is well"):
        notes = chart_upgrade.upgrade(kubernetes, NAMESPACE)
    if "kubectl wait --for=condition=Ready" not in notes:
        raise Failed(f"the notes of the chart do not say how to go on: {notes}")
    with step("the API server answers as the rules want"):
        say(f"{rules.check(kubernetes, NAMESPACE)} specs were put to it")
    with step("kubectl apply a BrokerCluster of 2 groups and a Topic of 8 queues, until both are ready"):
        for name in ("cluster.yaml", "topic.yaml"):
            kubernetes.kubectl("apply", "-n", NAMESPACE, "-f", str(ROOT / "examples" / name))
        kubernetes.wait_ready(CLUSTER, TOPIC, namespace=NAMESPACE, timeout=180)
    with step("network policies select pods that run"):
        chart_upgrade.policies_select_pods(kubernetes, OPERATOR_NAMESPACE, NAMESPACE)
    status = kubernetes.get(CLUSTER, "-n", NAMESPACE)["status"]
    if (status["brokersReady"], status["nameServersReady"]) != ("2/2", "2/2"):
        raise Failed(
            f"the cluster is ready with {status['brokersReady']} brokers, {status['nameServersReady']} name servers"
        )


def name_servers(kubernetes: Kubernetes) -> str:
    """The address that clients get, from the status."""
    address: str = kubernetes.get(CLUSTER, "-n", NAMESPACE)["status"]["nameServerAddress"]
    return address


def stored(kubernetes: Kubernetes, cluster: str, topic: str, namespace: str = NAMESPACE) -> int:
    """Messages of a topic in all queues of all brokers of a cluster, as our own command line counts them."""
    command = ["raptormq", "topic", "describe", topic, "--output", "json", "--namesrv", f"{cluster}-namesrv:9876"]
    text = kubernetes.kubectl("exec", "-n", namespace, f"{cluster}-broker-0-0-0", "--", *command)
    return int(json.loads(text)["messages"])


def send(kubernetes: Kubernetes, image: str, sent: list[records.Record]) -> None:
    """Sends every record from a pod; when half of them are acknowledged, the pod of a broker is deleted."""
    before = kubernetes.get("pod", VICTIM, "-n", NAMESPACE)["metadata"]["uid"]
    script = (Path(__file__).with_name("send_records.py")).read_text(encoding="utf-8")
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "sender", "namespace": NAMESPACE},
        "data": {"send_records.py": script},
        "binaryData": {"records.json.gz": base64.b64encode(records.packed(sent)).decode()},
    }
    # Too large for the annotation that a client-side apply would leave.
    kubernetes.kubectl("create", "-f", "-", manifest=json.dumps(config))
    pod = string.Template(Path(__file__).with_name("sender.yaml").read_text(encoding="utf-8"))
    values = {"namespace": NAMESPACE, "image": image, "name_servers": name_servers(kubernetes), "topic": "flights"}
    kubernetes.kubectl("apply", "-f", "-", manifest=pod.substitute(values))
    kubernetes.wait_until("the sender starts", lambda: _phase(kubernetes) != "Pending", 120)
    outcome = _watch(kubernetes)
    if outcome.get("acknowledged") != len(sent):
        raise Failed(f"{outcome} after the sender's end, wanted {len(sent)} acknowledged")
    kubernetes.wait_ready(CLUSTER, TOPIC, namespace=NAMESPACE, timeout=120)
    if kubernetes.get("pod", VICTIM, "-n", NAMESPACE)["metadata"]["uid"] == before:
        raise Failed(f"{VICTIM} was not replaced")
    say(f"{len(sent)} records acknowledged: {outcome['by_broker']}, failures on the way: {outcome['failures']}")


def _watch(kubernetes: Kubernetes) -> dict[str, Any]:
    """Follows the sender's log, takes the broker away at half, returns the last thing that the sender said.

    Who follows a log may lose the connection to it: then it is read again, from its start.
    """
    deadline = time.monotonic() + SEND_TIMEOUT_S
    said: dict[str, Any] = {}
    taken = ended = False
    while "acknowledged" not in said and not ended:
        left = deadline - time.monotonic()
        if left < 0:
            raise Failed(f"the sender is not done after {SEND_TIMEOUT_S:.0f} s, it said last: {said}")
        ended = _phase(kubernetes) in ("Succeeded", "Failed")
        with kubernetes.log_lines("sender", NAMESPACE, left) as lines:
            for line in lines:
                if not line.startswith("{") or not line.endswith("\n"):
                    continue
                said = json.loads(line)
                if "half" in said and not taken:
                    say(f"{said['half']} records acknowledged, now pod {VICTIM} is deleted")
                    kubernetes.kubectl("delete", "pod", VICTIM, "-n", NAMESPACE, "--wait=false")
                    taken = True
    return said


def _phase(kubernetes: Kubernetes) -> str:
    phase: str = kubernetes.get("pod", "sender", "-n", NAMESPACE)["status"]["phase"]
    return phase


def _restricted() -> dict[str, str]:
    """The namespace admits only pods that fit the restricted standard."""
    return {"pod-security.kubernetes.io/enforce": "restricted"}
