"""Access control and TLS of a running Dledger group are enabled and disabled while a Java client sends.

Every acknowledged message must be read. The test is a separate run, `python -m e2e security`, because each change
restarts all brokers twice.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from e2e import access_control, dledger
from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.java_pod import STOP, JavaPod
from e2e.kubernetes import Kubernetes
from e2e.progress import say
from tests.crossings import crossing

TOPIC = "signed"
CERTIFICATE = "ledger-certificate"
CHANGE_S = 900.0
"""Time limit of a change. The operator waits 35 s between two restarts, so that clients learn the address of the pod.
"""
READ_S = 240
ADMIN = {"RAPTORMQ_ACCESS_KEY": access_control.ADMIN, "RAPTORMQ_SECRET_KEY": access_control.OLD_PASSWORD}


@crossing("operator", "dledger", "access-control")
@crossing("operator", "dledger", "tls")
@crossing("settings", "dledger", "access-control")
def changes_under_a_client(kubernetes: Kubernetes, image: str) -> None:
    """Enable access control, then TLS, then disable both, while a client sends."""
    access_control.apply(kubernetes, _admin_secret())
    access_control.apply(kubernetes, _certificate())
    dledger.make_topic(kubernetes, TOPIC)
    kubernetes.wait_ready(f"topic/{TOPIC}", namespace=NAMESPACE, timeout=dledger.READY_TIMEOUT_S)
    client = JavaPod(kubernetes, "signs")
    program = "io.raptormq.interop.produce.SendSigned"
    client.start(image, [program, f"{dledger.NAME}-namesrv:9876", TOPIC, "s-", STOP], "sending", ADMIN)
    access = {"adminSecretName": access_control.ADMIN_SECRET, "enabled": True}
    _change(kubernetes, {"accessControl": access})
    if "username cannot be null" not in _unsigned(kubernetes):
        raise Failed("an unsigned request is not refused")
    _change(kubernetes, {"tls": {"secretName": CERTIFICATE, "mode": "permissive"}})
    _change(kubernetes, {"tls": None, "accessControl": access | {"enabled": False}})
    report = client.end(READ_S)
    if not report["acknowledged"] or report["missing"]:
        raise Failed(f"the Java client reports {report}")
    say(f"{report['acknowledged']} messages acknowledged, none missing, longest gap {report['longest_gap_s']} s")
    _change(kubernetes, {"tls": {"secretName": CERTIFICATE, "mode": "enforcing"}})


def _change(kubernetes: Kubernetes, spec: dict[str, Any]) -> None:
    """Change the spec, and wait until the cluster has it: SecurityChanging was True, and Ready is True without it."""
    began, last, seen = time.monotonic(), "", False
    kubernetes.kubectl("patch", dledger.CLUSTER, "-n", NAMESPACE, "--type=merge", "-p", json.dumps({"spec": spec}))

    def done() -> bool:
        nonlocal last, seen
        status = kubernetes.get(dledger.CLUSTER, "-n", NAMESPACE)["status"]
        conditions = {each["type"]: each for each in status["conditions"]}
        is_changing = "SecurityChanging" in conditions
        seen |= is_changing
        text = f"{'in transition, ' if is_changing else ''}{conditions['Ready']['message']}"
        if text != last:
            last = text
            say(f"  {time.monotonic() - began:.0f} s: {text}")
        return seen and not is_changing and kubernetes.is_ready(dledger.CLUSTER, NAMESPACE)

    kubernetes.wait_until(f"{', '.join(spec)} changed", done, CHANGE_S)
    say(f"{json.dumps(spec)} after {time.monotonic() - began:.0f} s")


def _unsigned(kubernetes: Kubernetes) -> str:
    """Return the error of a request without signature."""
    return (
        access_control.described(kubernetes, TOPIC, f"{dledger.NAME}-namesrv-0", f"{dledger.NAME}-namesrv:9876") or ""
    )


def _admin_secret() -> dict[str, Any]:
    return access_control.secret(username=access_control.ADMIN, password=access_control.OLD_PASSWORD)


def _certificate() -> dict[str, Any]:
    """Return a Secret with a self-signed certificate."""
    with tempfile.TemporaryDirectory() as folder:
        key, cert = Path(folder, "tls.key"), Path(folder, "tls.crt")
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=ledger"]
        subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
        data = {"tls.key": key.read_text(), "tls.crt": cert.read_text()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": CERTIFICATE},
        "stringData": data,
    }
