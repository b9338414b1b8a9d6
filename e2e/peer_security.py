"""Access control and TLS of a running Dledger group, and of a master and its slave, change while Java clients send.

Both are enabled and disabled. Then both are enabled with TLS enforcing, the password of the brokers' user is replaced,
the certificate is renewed, and a broker of each cluster restarts. Every acknowledged message must be read. The test is
a separate run, `python -m e2e security`, because each change restarts all brokers twice.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from e2e import access_control, command_line, dledger, master_slave
from e2e.brokers import NAMESPACE, uid
from e2e.errors import Failed
from e2e.java_pod import STOP, JavaPod
from e2e.kubernetes import Kubernetes
from e2e.progress import say
from tests.crossings import crossing

CLUSTERS = (dledger.NAME, master_slave.NAME)
TOPIC = "signed"
CERTIFICATE = "peer-certificate"
PEERS, OLD_PASSWORD, NEW_PASSWORD = "peers", "e2e-old-peers", "e2e-new-peers"
"""Name of the user and of the Secret with which brokers and operator sign, and its passwords."""
PODS = "10.244.0.0/16"
"""Network of the pods of kind. A master with access control or TLS enforcing must list its slaves' addresses."""
CHANGE_S = 900.0
"""Time limit of a change. The operator waits 35 s between two restarts, so that clients learn the address of the pod.
"""
MOUNTED_S = 240.0
"""Time limit in seconds for changed files of a Secret. A kubelet updates them within 2 minutes."""
READ_S = 240
ADMIN = {"RAPTORMQ_ACCESS_KEY": access_control.ADMIN, "RAPTORMQ_SECRET_KEY": access_control.OLD_PASSWORD}
JAVA_TLS = {"JAVA_TOOL_OPTIONS": "-Dtls.enable=true"}
TLS = {"RAPTORMQ_TLS": "true"}
_CERTIFICATE_OF = (
    "import ssl, sys; print(ssl.get_server_certificate(('127.0.0.1', int(sys.argv[1]))))"  # without verification
)


@crossing("operator", "dledger", "access-control")
@crossing("operator", "dledger", "tls")
@crossing("settings", "dledger", "access-control")
@crossing("settings", "dledger", "tls")
@crossing("operator", "master-slave", "access-control")
@crossing("operator", "master-slave", "tls")
@crossing("settings", "master-slave", "access-control")
@crossing("settings", "master-slave", "tls")
def changes_under_clients(kubernetes: Kubernetes, image: str) -> None:
    """Enable access control, then TLS, disable both, and enable both with TLS enforcing, while clients send."""
    admin = {"username": access_control.ADMIN, "password": access_control.OLD_PASSWORD}
    access_control.apply(kubernetes, access_control.secret(**admin))
    access_control.apply(kubernetes, access_control.secret(PEERS, username=PEERS, password=OLD_PASSWORD))
    access_control.apply(kubernetes, _certificate())
    for name in CLUSTERS:
        _make_topic(kubernetes, name)
    access = {"adminSecretName": access_control.ADMIN_SECRET, "operatorSecretName": PEERS, "enabled": True}
    clients = _start(kubernetes, image, "signs", ADMIN)
    _change(kubernetes, {"accessControl": access})
    for name in CLUSTERS:
        if "username cannot be null" not in _unsigned(kubernetes, name):
            raise Failed(f"an unsigned request to {name} is not refused")
    _change(kubernetes, {"tls": {"secretName": CERTIFICATE, "mode": "permissive"}})
    _change(kubernetes, {"tls": None, "accessControl": access | {"enabled": False}})
    counts = _end(clients)
    _change(kubernetes, {"tls": {"secretName": CERTIFICATE, "mode": "enforcing"}, "accessControl": access})
    clients = _start(kubernetes, image, "encrypts", ADMIN | JAVA_TLS)
    _replace_password(kubernetes)
    _renew_certificate(kubernetes)
    _restart_a_broker(kubernetes)
    for name, more in _end(clients).items():
        counts[name] |= more
    for name in CLUSTERS:
        _has_everything(kubernetes, name, counts[name])


def _start(kubernetes: Kubernetes, image: str, what: str, environment: Mapping[str, str]) -> dict[str, JavaPod]:
    """Start a client for each cluster. Return the clients by cluster."""
    program = "io.raptormq.interop.produce.SendSigned"
    clients = {}
    for name in CLUSTERS:
        pod = f"{name}-{what}"
        clients[name] = JavaPod(kubernetes, pod)
        arguments = [program, f"{name}-namesrv:9876", TOPIC, f"{pod}-", STOP]
        clients[name].start(image, arguments, "sending", environment)
    return clients


def _end(clients: Mapping[str, JavaPod]) -> dict[str, dict[str, int]]:
    """End the clients. Return by cluster how many messages were acknowledged, by prefix of their bodies."""
    counts = {}
    for name, client in clients.items():
        report = client.end(READ_S)
        if not report["acknowledged"] or report["missing"]:
            raise Failed(f"the client {client.name} reports {report}")
        say(
            f"{client.name}: {report['acknowledged']} messages acknowledged, none missing,"
            f" longest gap {report['longest_gap_s']} s"
        )
        counts[name] = {f"{client.name}-": int(report["acknowledged"])}
    return counts


def _has_everything(kubernetes: Kubernetes, name: str, counts: Mapping[str, int]) -> None:
    """Check that every acknowledged message of both clients of a cluster can be read."""
    expected = {f"{prefix}{number}" for prefix, count in counts.items() for number in range(count)}
    found = {each["body"] for each in command_line.consume(kubernetes, name, TOPIC, environment=ADMIN | TLS)}
    if missing := sorted(expected - found):
        raise Failed(f"{len(missing)} acknowledged messages of {name} are missing: {missing[:5]}")
    say(f"{len(expected)} acknowledged messages of {name} are there")


def _change(kubernetes: Kubernetes, spec: dict[str, Any]) -> None:
    """Change the specs of all clusters, and wait until the clusters have it: SecurityChanging was True, and Ready is
    True without it.
    """
    began = time.monotonic()
    seen: set[str] = set()
    last: dict[str, str] = {}
    for name in CLUSTERS:
        patch = json.dumps({"spec": spec})
        kubernetes.kubectl("patch", "brokercluster", name, "-n", NAMESPACE, "--type=merge", "-p", patch)

    def has_it(name: str) -> bool:
        status = kubernetes.get(f"brokercluster/{name}", "-n", NAMESPACE)["status"]
        conditions = {each["type"]: each for each in status["conditions"]}
        is_changing = "SecurityChanging" in conditions
        seen.update([name] if is_changing else [])
        text = f"{'in transition, ' if is_changing else ''}{conditions['Ready']['message']}"
        if text != last.get(name):
            last[name] = text
            say(f"  {time.monotonic() - began:.0f} s: {name}: {text}")
        return name in seen and not is_changing and kubernetes.is_ready(f"brokercluster/{name}", NAMESPACE)

    def done() -> bool:
        found = {name: has_it(name) for name in CLUSTERS}  # one may be in transition while another is not ready
        return all(found.values())

    kubernetes.wait_until(f"{', '.join(spec)} changed", done, CHANGE_S)
    say(f"{json.dumps(spec)} after {time.monotonic() - began:.0f} s")


def _replace_password(kubernetes: Kubernetes) -> None:
    """Replace the password of the brokers' user in three steps, each of which all pods must have before the next."""
    both = {"password": OLD_PASSWORD, "otherPassword": NEW_PASSWORD}
    exchanged = {"password": NEW_PASSWORD, "otherPassword": OLD_PASSWORD}
    for passwords in (both, exchanged, {"password": NEW_PASSWORD}):
        access_control.apply(kubernetes, access_control.secret(PEERS, username=PEERS, **passwords))
        everywhere = partial(_have, kubernetes, passwords)
        kubernetes.wait_until(f"all pods have {' and '.join(passwords)}", everywhere, MOUNTED_S)
    for name in CLUSTERS:
        kubernetes.wait_until(f"{name} refuses the old password", partial(_refuses_old, kubernetes, name), MOUNTED_S)
    _is_whole(kubernetes)
    say("the password of the brokers' user is replaced")


def _have(kubernetes: Kubernetes, passwords: Mapping[str, str]) -> bool:
    return all(_mounted(kubernetes, pod) == passwords for pod in _pods(kubernetes))


def _refuses_old(kubernetes: Kubernetes, name: str) -> bool:
    old = {"RAPTORMQ_ACCESS_KEY": PEERS, "RAPTORMQ_SECRET_KEY": OLD_PASSWORD}
    return "signature" in _described(kubernetes, name, old | TLS)


def _mounted(kubernetes: Kubernetes, pod: str) -> dict[str, str]:
    """Return the passwords in the files of a pod."""
    script = "cd /etc/raptormq-operator && for f in password otherPassword; do [ ! -e $f ] || echo $f $(cat $f); done"
    text = kubernetes.kubectl("exec", "-n", NAMESPACE, pod, "--", "sh", "-c", script)
    return dict(line.split(" ", 1) for line in text.splitlines())


def _renew_certificate(kubernetes: Kubernetes) -> None:
    """Replace the certificate, and wait until all servers present the new one."""
    secret = _certificate()
    access_control.apply(kubernetes, secret)
    wanted = secret["stringData"]["tls.crt"].strip()
    kubernetes.wait_until(
        "all servers present the new certificate",
        lambda: all(_presented(kubernetes, pod) == wanted for pod in _pods(kubernetes)),
        MOUNTED_S,
    )
    _is_whole(kubernetes)
    say("the certificate is renewed")


def _presented(kubernetes: Kubernetes, pod: str) -> str:
    """Return the certificate that a server presents on its port for clients."""
    port = "9876" if "-namesrv-" in pod else "10911"
    return kubernetes.kubectl("exec", "-n", NAMESPACE, pod, "--", "python3", "-c", _CERTIFICATE_OF, port).strip()


def _restart_a_broker(kubernetes: Kubernetes) -> None:
    """Delete the pods of the leader and of the slave, whose connections then use the new password and certificate."""
    dledger.take_leader(kubernetes, with_volume=False)
    pod = f"{master_slave.SLAVE}-0"
    before = uid(kubernetes, "pod", pod)
    kubernetes.kubectl("delete", "pod", pod, "-n", NAMESPACE, "--timeout=90s", timeout=120)
    kubernetes.wait_until(f"{pod} is replaced", lambda: uid(kubernetes, "pod", pod) not in ("", before), MOUNTED_S)
    _is_whole(kubernetes)


def _is_whole(kubernetes: Kubernetes) -> None:
    """Wait until both clusters are Ready and all their members have their roles."""

    def is_whole() -> bool:
        roles = [sorted(cluster.roles(kubernetes).values()) for cluster in (dledger, master_slave)]
        is_ready = all(kubernetes.is_ready(f"brokercluster/{name}", NAMESPACE) for name in CLUSTERS)
        return is_ready and roles == [["follower", "follower", "leader"], ["master", "slave"]]

    kubernetes.wait_until("both clusters are whole", is_whole, CHANGE_S)


def _pods(kubernetes: Kubernetes) -> list[str]:
    """Return the names of the servers' pods."""
    labels = f"raptormq.io/cluster in ({','.join(CLUSTERS)})"
    found: list[dict[str, Any]] = kubernetes.get("pods", "-n", NAMESPACE, "-l", labels)["items"]
    return [each["metadata"]["name"] for each in found]


def _make_topic(kubernetes: Kubernetes, name: str) -> None:
    metadata = {"name": f"{name}-{TOPIC}", "namespace": NAMESPACE}
    spec = {"clusterRef": {"name": name}, "name": TOPIC}
    topic = {"apiVersion": "raptormq.io/v1alpha1", "kind": "Topic", "metadata": metadata, "spec": spec}
    access_control.apply(kubernetes, topic)
    kubernetes.wait_ready(f"topic/{name}-{TOPIC}", namespace=NAMESPACE, timeout=dledger.READY_TIMEOUT_S)


def _unsigned(kubernetes: Kubernetes, name: str) -> str:
    """Return the error of a request without signature."""
    return _described(kubernetes, name, {})


def _described(kubernetes: Kubernetes, name: str, environment: Mapping[str, str]) -> str:
    """Return the error of a description of the topic; empty without one."""
    variables = [f"{variable}={value}" for variable, value in environment.items()]
    server = f"{name}-namesrv"
    return access_control.described(kubernetes, TOPIC, f"{server}-0", f"{server}:9876", *variables) or ""


def _certificate() -> dict[str, Any]:
    """Return a Secret with a new self-signed certificate."""
    with tempfile.TemporaryDirectory() as folder:
        key, cert = Path(folder, "tls.key"), Path(folder, "tls.crt")
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=peers"]
        subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
        data = {"tls.key": key.read_text(), "tls.crt": cert.read_text()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": CERTIFICATE},
        "stringData": data,
    }
