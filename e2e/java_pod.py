"""A pod that runs one of the programs of the official Java client (`e2e/java_client`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes

STOP = "/tmp/stop"
"""File whose existence makes a program end."""
ENDED = ("Succeeded", "Failed")
START_S = 240
MAX_SHOWN = 20
"""Maximum number of output lines in an error message."""


class JavaPod:
    """The pod of one program, which reports its result as one line of JSON.

    Threads of the client may log errors after this line, while the process ends. A log of Kubernetes has both.
    """

    def __init__(self, kubernetes: Kubernetes, name: str) -> None:
        self._kubernetes = kubernetes
        self.name = name

    def start(self, image: str, arguments: Sequence[str], begun: str, environment: Mapping[str, str]) -> None:
        """Start the pod, and wait until the program has printed the line `begun`."""
        pod = json.dumps(_pod(self.name, image, arguments, environment))
        self._kubernetes.kubectl("apply", "-n", NAMESPACE, "-f", "-", manifest=pod)
        self._kubernetes.wait_until(f"{self.name} prints {begun}", lambda: begun in self.said(), START_S)

    def end(self, timeout: float) -> dict[str, Any]:
        """Stop the program, delete its pod, and return what it has reported.

        Raises:
            Failed: The program failed, did not end within `timeout` seconds, or reported nothing.
        """
        self._kubernetes.wait_until("the client is told to end", self._is_told, START_S)
        self._kubernetes.wait_until("the client ends", lambda: self._phase() in ENDED, timeout)
        report = self._report()
        self._kubernetes.kubectl("delete", f"pod/{self.name}", "-n", NAMESPACE, timeout=90)
        return report

    def _is_told(self) -> bool:
        if self._phase() not in ENDED:
            self._kubernetes.kubectl("exec", "-n", NAMESPACE, self.name, "--", "touch", STOP)
        return True

    def _report(self) -> dict[str, Any]:
        said = self.said()
        reports = [line for line in said if line.startswith("{")]
        if self._phase() == "Failed" or not reports:
            raise Failed(f"{self.name} failed:\n" + "\n".join(said[-MAX_SHOWN:]))
        report: dict[str, Any] = json.loads(reports[-1])
        return report

    def said(self) -> list[str]:
        """Return the lines that the program has printed."""
        if self._phase() == "Pending":
            return []
        return self._kubernetes.kubectl("logs", "-n", NAMESPACE, self.name).splitlines()

    def _phase(self) -> str:
        phase: str = self._kubernetes.get("pod", self.name, "-n", NAMESPACE)["status"]["phase"]
        return phase


def _pod(name: str, image: str, arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(arguments),
        "env": [{"name": variable, "value": value} for variable, value in environment.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
