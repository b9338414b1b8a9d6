"""A Kubernetes made by kind, with kubectl and helm on it. Every call has a time limit; an error names its command."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from e2e.errors import Failed, Unanswered
from e2e.tools import engine, tool

POLL_S = 1.0


class Kubernetes:
    """One cluster with a kubeconfig of its own; nothing else on the machine is touched."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        if engine() == "podman":
            self.environment["KIND_EXPERIMENTAL_PROVIDER"] = "podman"

    def create(self) -> None:
        """Makes the cluster; KIND_NODE_IMAGE names the node image, by default kind's own."""
        image = os.environ.get("KIND_NODE_IMAGE")
        options = ["--image", image] if image else []
        self.run([tool("kind"), "create", "cluster", "--name", self.name, "--wait", "180s", *options], timeout=420)

    def delete(self) -> None:
        """Removes the cluster, whatever state it is in."""
        self.run([tool("kind"), "delete", "cluster", "--name", self.name], timeout=180)

    def load(self, image: str) -> None:
        """Brings an image of the engine's store to the nodes."""
        archive = self.folder / "image.tar"
        try:
            self.run([engine(), "save", "-o", str(archive), image], timeout=300)
            self.run([tool("kind"), "load", "image-archive", str(archive), "--name", self.name], timeout=300)
        finally:
            archive.unlink(missing_ok=True)

    def name_again(self, image: str, other: str) -> None:
        """Gives an image that the nodes have another name there."""
        for node in self.nodes():
            self.on_node(node, "ctr", "--namespace=k8s.io", "images", "tag", "--force", image, other)

    def nodes(self) -> list[str]:
        """Names of the nodes, and of the containers that they are."""
        return self.run([tool("kind"), "get", "nodes", "--name", self.name], timeout=60).split()

    def on_node(self, node: str, *command: str) -> str:
        """Standard output of a command that runs on a node."""
        return self.run([engine(), "exec", node, *command], timeout=60)

    def kubectl(self, *arguments: str, manifest: str | None = None, timeout: float = 60) -> str:
        """Standard output of kubectl; `manifest` is its standard input."""
        return self.run([tool("kubectl"), *arguments], given=manifest, timeout=timeout)

    def helm(self, *arguments: str, timeout: float = 180) -> str:
        """Standard output of helm."""
        return self.run([tool("helm"), *arguments], timeout=timeout)

    def get(self, *arguments: str) -> dict[str, Any]:
        """One object, or a list, as JSON."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def wait_until(self, what: str, condition: Callable[[], bool], timeout: float) -> None:
        """Asks until it is so. The API server of a busy machine may leave a question unanswered; the last one is told.

        Raises:
            Failed: it is not so in time, or `condition` says so.
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
        """Waits for the Ready condition of our resources, and for it to be about the newest generation."""
        for resource in resources:
            self.wait_until(f"{resource} Ready", partial(self.is_ready, resource, namespace), timeout)

    def is_ready(self, resource: str, namespace: str) -> bool:
        """Whether Ready is true for the generation that is there."""
        ready = self.ready(resource, namespace)
        generation = self.get(resource, "-n", namespace)["metadata"]["generation"]
        return (ready["status"], ready["observedGeneration"]) == ("True", generation)

    def ready(self, resource: str, namespace: str) -> dict[str, Any]:
        """The Ready condition; an Unknown one before there is one."""
        conditions = self.get(resource, "-n", namespace).get("status", {}).get("conditions", [])
        unknown = {"status": "Unknown", "reason": "", "message": "", "observedGeneration": 0}
        return next((condition for condition in conditions if condition["type"] == "Ready"), unknown)

    @contextmanager
    def log_lines(self, pod: str, namespace: str, timeout: float) -> Iterator[Iterator[str]]:
        """Lines of a pod's log as they come, until the pod ends, the connection does or the time is up."""
        command = [tool("kubectl"), "logs", "--follow", "-n", namespace, pod]
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            bell = threading.Timer(timeout, process.terminate)
            bell.start()
            try:
                yield iter(process.stdout)
            finally:
                bell.cancel()
                process.terminate()

    def run(self, command: list[str], *, given: str | None = None, timeout: float) -> str:
        """Standard output of a command.

        Raises:
            Unanswered: it failed or took too long; the text has the end of what it said.
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
