"""Kubernetes cluster created by kind, with kubectl and helm. Every call has a timeout; an error names its command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from e2e.errors import Failed, Unanswered
from e2e.progress import say
from e2e.tools import engine, tool

CONFIG = Path(__file__).with_name("kind.yaml")
POLL_S = 1.0
REPEAT_S = 60.0
"""Time limit in seconds for the repetitions of a request that the API server did not answer."""
REPEATABLE = ("apply", "cordon", "delete", "drain", "get", "logs", "patch", "uncordon")
"""Commands of kubectl that may be repeated, because their second execution changes nothing. A patch is one only with
--type=merge."""
NOT_ANSWERED = (
    "etcdserver:",
    "connection refused",
    "was refused - did you specify",
    "connection reset by peer",
    "http2: client connection lost",
    "TLS handshake",
    "unexpected EOF",
    "unable to handle the request",
    "unable to return a response in the time allotted",
    "504 Gateway Timeout",
)
"""Texts of kubectl for an API server that cannot be reached, or that cannot reach etcd."""
UNLIMITED_TASKS = (
    "mkdir -p /etc/systemd/system.conf.d"
    " && printf '[Manager]\\nDefaultTasksMax=infinity\\n' > /etc/systemd/system.conf.d/tasks.conf"
    " && systemctl daemon-reload"
)
"""Removes the limit of threads per pod. systemd allows a pod 15 % of the node's limit, which podman sets to 2,048.
Spark's driver has more than the resulting 307 threads.
"""


class Kubernetes:
    """One cluster with its own kubeconfig. Other clusters of the machine are not affected."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        if engine() == "podman":
            self.environment["KIND_EXPERIMENTAL_PROVIDER"] = "podman"

    def create(self) -> None:
        """Create the cluster. KIND_NODE_IMAGE is the node image; the default is kind's."""
        image = os.environ.get("KIND_NODE_IMAGE")
        options = ["--config", str(CONFIG), "--wait", "180s", *(["--image", image] if image else [])]
        self.run([tool("kind"), "create", "cluster", "--name", self.name, *options], timeout=420)
        for node in self.nodes():
            self.on_node(node, "sh", "-c", UNLIMITED_TASKS)

    def delete(self) -> None:
        """Delete the cluster in any state."""
        self.run([tool("kind"), "delete", "cluster", "--name", self.name], timeout=180)

    def load(self, image: str) -> None:
        """Load an image from the container engine into the nodes."""
        archive = self.folder / "image.tar"
        try:
            self.run([engine(), "save", "-o", str(archive), image], timeout=300)
            self.run([tool("kind"), "load", "image-archive", str(archive), "--name", self.name], timeout=300)
        finally:
            archive.unlink(missing_ok=True)

    def name_again(self, image: str, other: str) -> None:
        """Tag an image on the nodes with another name."""
        for node in self.nodes():
            self.on_node(node, "ctr", "--namespace=k8s.io", "images", "tag", "--force", image, other)

    def nodes(self) -> list[str]:
        """Return the names of the nodes, which are also the names of their containers."""
        return self.run([tool("kind"), "get", "nodes", "--name", self.name], timeout=60).split()

    def on_node(self, node: str, *command: str) -> str:
        """Run a command on a node. Return its standard output."""
        return self.run([engine(), "exec", node, *command], timeout=60)

    def kubectl(self, *arguments: str, manifest: str | None = None, timeout: float = 60) -> str:
        """Run kubectl with `manifest` as standard input. Return its standard output.

        A repeatable command is repeated for `REPEAT_S` while the API server does not answer.
        """
        deadline = time.monotonic() + REPEAT_S
        options: tuple[str, ...] = ()
        while True:
            try:
                return self.run([tool("kubectl"), *arguments, *options], given=manifest, timeout=timeout)
            except Unanswered as error:
                if not _may_be_repeated(arguments, str(error)) or time.monotonic() > deadline:
                    raise
                say(f"repeated: {error}")
            if arguments[0] == "delete":
                options = ("--ignore-not-found",)  # the request before may have been executed
            time.sleep(POLL_S)

    def helm(self, *arguments: str, timeout: float = 180) -> str:
        """Run helm. Return its standard output."""
        return self.run([tool("helm"), *arguments], timeout=timeout)

    def shell(self, commands: str, *, namespace: str, timeout: float) -> str:
        """Run commands of the shell, with a namespace for kubectl and helm, until the first one fails. Return their
        standard output. They are repeated for `REPEAT_S` while the API server does not answer.
        """
        lines = [f'{name}() {{ {shlex.quote(tool(name))} -n {namespace} "$@"; }}' for name in ("kubectl", "helm")]
        deadline = time.monotonic() + REPEAT_S
        while True:
            try:
                return self.run(
                    ["bash", "-eo", "pipefail", "-c", "\n".join([*lines, commands])], given="", timeout=timeout
                )
            except Unanswered as error:
                if not any(text in str(error) for text in NOT_ANSWERED) or time.monotonic() > deadline:
                    raise
                say(f"repeated: {error}")
            time.sleep(POLL_S)

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return an object or a list as JSON."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def wait_until(self, what: str, condition: Callable[[], bool], timeout: float) -> None:
        """Wait until a condition is true. Requests may fail on a busy machine; a timeout reports the last error.

        Raises:
            Failed: The condition is not true in time, or `condition` raises it.
        """
        deadline = time.monotonic() + timeout
        while True:
            unanswered = ""
            try:
                if condition():
                    return
            except Unanswered as error:
                unanswered = f"; {error}"
            if time.monotonic() > deadline:
                raise Failed(f"{what}: not within {timeout:.0f} s{unanswered}")
            time.sleep(POLL_S)

    def wait_ready(self, *resources: str, namespace: str, timeout: float) -> None:
        """Wait until resources are Ready for their newest generation."""
        for resource in resources:
            self.wait_until(f"{resource} Ready", partial(self.is_ready, resource, namespace), timeout)

    def is_ready(self, resource: str, namespace: str) -> bool:
        """Return whether Ready is True for the current generation."""
        ready = self.ready(resource, namespace)
        generation = self.get(resource, "-n", namespace)["metadata"]["generation"]
        return (ready["status"], ready["observedGeneration"]) == ("True", generation)

    def ready(self, resource: str, namespace: str) -> dict[str, Any]:
        """Return the Ready condition, with status Unknown before the condition exists."""
        conditions = self.get(resource, "-n", namespace).get("status", {}).get("conditions", [])
        unknown = {"status": "Unknown", "reason": "", "message": "", "observedGeneration": 0}
        return next((condition for condition in conditions if condition["type"] == "Ready"), unknown)

    def run(self, command: list[str], *, given: str | None = None, timeout: float) -> str:
        """Run a command. Return its standard output.

        Raises:
            Unanswered: The command failed or timed out. The message contains the end of its output.
        """
        shown = " ".join([Path(command[0]).name, *command[1:]])[:300]
        try:
            done = subprocess.run(
                command,
                input=given,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unanswered(f"{shown}: not done after {timeout:.0f} s") from None
        if done.returncode != 0:
            raise Unanswered(f"{shown}: exit code {done.returncode}\n{(done.stderr or done.stdout).strip()[-3000:]}")
        return done.stdout


def _may_be_repeated(arguments: tuple[str, ...], error: str) -> bool:
    """Return whether the API server did not answer, and the command of kubectl changes nothing when repeated."""
    repeatable = arguments[0] in REPEATABLE and (arguments[0] != "patch" or "--type=merge" in arguments)
    return repeatable and any(text in error for text in NOT_ANSWERED)
