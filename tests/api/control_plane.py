"""A real kube-apiserver and etcd as local processes on the loopback interface, without kubelet, controllers and pods.
A test that needs the scheduler starts a real one, with nodes that exist only as objects.

Tests that need controllers use `stand_ins`. The binaries are searched for in PATH and in the cache of the kit for kind
clusters. If they are missing, `python -m tests.api.control_plane` prints how to install them.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from raptormq.errors import ConfigError, RaptorMQError
from tests.ports import free_port

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
START_S = 60.0
ADMIN_TOKEN = "admin-token"
PLURALS = ("brokerclusters", "sparkpipelines", "topics")
CRDS = Path(__file__).resolve().parents[2] / "crds"


class NotStarted(RaptorMQError):
    """A process ended or did not respond in time."""


def program(name: str) -> str:
    """Return the path of a program.

    Raises:
        ConfigError: The program is missing. The message says how to install it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "raptormq" / "kind-node" / "bin"
    found = shutil.which(name) or shutil.which(name, path=str(cache))
    if found is None:
        text = "put the binaries of Kubernetes and etcd on the PATH, or run ../shared/kind-node/build.sh"
        raise ConfigError(f"{name} is not installed: {text}")
    return found


class ControlPlane:
    """Context manager that runs both processes. `users` maps names to tokens. The user `admin` has all permissions."""

    def __init__(self, folder: Path, users: dict[str, str] | None = None) -> None:
        self._folder = folder
        self._users = users or {}
        self._processes: list[subprocess.Popen[bytes]] = []
        client, peer, self._port = free_port(), free_port(), free_port()
        self._etcd_client, self._etcd_peer = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self.server = f"https://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def _start(self) -> None:
        key = self._folder / "service-account.key"
        command = ["openssl", "genrsa", "-out", str(key), "2048"]
        subprocess.run(command, check=True, capture_output=True)
        rows = [f'{ADMIN_TOKEN},admin,admin,"system:masters"']
        rows += [f"{token},{name},{name}" for name, token in self._users.items()]
        (self._folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        self._run(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={self._etcd_client}",
            f"--advertise-client-urls={self._etcd_client}",
            f"--listen-peer-urls={self._etcd_peer}",
            f"--initial-advertise-peer-urls={self._etcd_peer}",
            f"--initial-cluster=default={self._etcd_peer}",
            "--unsafe-no-fsync",
            "--log-level=error",
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers={self._etcd_client}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self._folder / 'certificates'}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://127.0.0.1",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            "--watch-cache=true",
            "--v=0",
        )
        self._wait("/readyz")

    def schedule_on(self, *nodes: str) -> None:
        """Create ready nodes without a kubelet, and start the scheduler."""
        for name in nodes:
            labels = {"kubernetes.io/hostname": name}
            self.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
            room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
            ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "no kubelet"}
            status = {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}
            merge = "application/merge-patch+json"
            self.request("PATCH", f"/api/v1/nodes/{name}/status", status, merge)
            self.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, merge)
        config = self.kubeconfig()
        self._run(
            "kube-scheduler",
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--leader-elect=false",
            "--secure-port=0",
        )

    def _run(self, name: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen([program(name), *arguments], stdout=log, stderr=subprocess.STDOUT)
        self._processes.append(process)

    def _wait(self, path: str) -> None:
        deadline = time.monotonic() + START_S
        while True:
            for process in self._processes:
                if process.poll() is not None:
                    raise NotStarted(f"{process.args!r:.40} has ended: {self._tail()}")
            try:
                self.request("GET", path)
                return
            except (OSError, urllib.error.URLError):
                if time.monotonic() > deadline:
                    raise NotStarted(f"{self.server}{path} does not respond: {self._tail()}") from None
            time.sleep(0.1)

    def _tail(self) -> str:
        return (self._folder / "kube-apiserver.log").read_text(errors="replace")[-500:] if self._processes[1:] else ""

    def freeze(self) -> None:
        """Freeze the API server: it accepts connections but does not respond."""
        self._processes[1].send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the API server after `freeze`."""
        self._processes[1].send_signal(signal.SIGCONT)

    @property
    def tls(self) -> ssl.SSLContext:
        """Return a context without verification of certificates, because the server generates a new certificate at each
        start.
        """
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Send a request as `admin`. Return the JSON of the response, or its text."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": content_type}
        asked = urllib.request.Request(self.server + path, data, headers, method=method)
        with urllib.request.urlopen(asked, timeout=30, context=self.tls) as answer:
            text = answer.read().decode()
        try:
            return json.loads(text)
        except ValueError:
            return text

    def define(self, *plurals: str) -> None:
        """Create the CustomResourceDefinitions, by default all, and wait until they are served."""
        for plural in plurals or PLURALS:
            definition = yaml.safe_load((CRDS / f"{plural}.yaml").read_text(encoding="utf-8"))
            self.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for plural in plurals or PLURALS:
            self._wait(f"/apis/raptormq.io/v1alpha1/{plural}")

    def update(self, definition: Any) -> None:
        """Replace an existing definition."""
        name = definition["metadata"]["name"]
        where = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        version = self.request("GET", where)["metadata"]["resourceVersion"]
        self.request("PUT", where, {**definition, "metadata": {"name": name, "resourceVersion": version}})

    def undefine(self, plural: str) -> None:
        """Delete a definition, and wait until it is not served any more."""
        self.request("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.raptormq.io")
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                self.request("GET", f"/apis/raptormq.io/v1alpha1/{plural}")
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return
            time.sleep(0.1)
        raise NotStarted(f"{plural} is still served")

    def namespace(self, name: str) -> None:
        """Create a namespace."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def kubeconfig(self, user: str = "admin") -> Path:
        """Write a kubeconfig with the token of a user. Return its path."""
        token = ADMIN_TOKEN if user == "admin" else self._users[user]
        certificate = (self._folder / "certificates" / "apiserver.crt").read_bytes()
        cluster = {"server": self.server, "certificate-authority-data": base64.b64encode(certificate).decode()}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": user}}],
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
        }
        file = self._folder / f"kubeconfig-{user}"
        file.write_text(yaml.safe_dump(content))
        return file


def main() -> int:
    """Print one line that names the missing programs."""
    try:
        for name in PROGRAMS:
            program(name)
    except ConfigError as error:
        sys.stderr.write(f"test-api: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
