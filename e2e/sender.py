"""A pod that sends the records (`send_records.py`), and what happens when half of them are acknowledged."""

from __future__ import annotations

import base64
import json
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e import records
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.progress import say

START_TIMEOUT_S = 120.0


class Sender:
    """A sender's pod. Senders of one namespace share the ConfigMap with script and records."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, name: str) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._name = name

    def bring(self, sent: list[records.Record]) -> None:
        """Makes the ConfigMap."""
        script = (Path(__file__).with_name("send_records.py")).read_text(encoding="utf-8")
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "sender", "namespace": self._namespace},
            "data": {"send_records.py": script},
            "binaryData": {"records.json.gz": base64.b64encode(records.packed(sent)).decode()},
        }
        # Too large for the annotation that a client-side apply would leave.
        self._kubernetes.kubectl("create", "-f", "-", manifest=json.dumps(config))

    def start(self, image: str, name_servers: str, topic: str, *, pace_s: float, count: int = records.COUNT) -> None:
        """Starts the pod; `pace_s` is the time between two chunks of the second half of `count` records."""
        pod = string.Template(Path(__file__).with_name("sender.yaml").read_text(encoding="utf-8"))
        values = {
            "name": self._name,
            "namespace": self._namespace,
            "image": image,
            "name_servers": name_servers,
            "topic": topic,
            "pace": pace_s,
            "count": count,
        }
        self._kubernetes.kubectl("apply", "-f", "-", manifest=pod.substitute(values))
        self._kubernetes.wait_until("the sender starts", lambda: self.phase != "Pending", START_TIMEOUT_S)

    @property
    def phase(self) -> str:
        """The phase of the pod."""
        phase: str = self._kubernetes.get("pod", self._name, "-n", self._namespace)["status"]["phase"]
        return phase

    def follow(self, at_half: Callable[[], None], timeout: float) -> dict[str, Any]:
        """Follows the sender's log, calls `at_half` once half of the records are acknowledged, returns the last thing
        that the sender said.

        Who follows a log may lose the connection to it: then it is read again, from its start.

        Raises:
            Failed: the sender is not done in time.
        """
        deadline = time.monotonic() + timeout
        said: dict[str, Any] = {}
        called = ended = False
        while "acknowledged" not in said and not ended:
            left = deadline - time.monotonic()
            if left < 0:
                raise Failed(f"the sender is not done after {timeout:.0f} s, it said last: {said}")
            ended = self.phase in ("Succeeded", "Failed")
            with self._kubernetes.log_lines(self._name, self._namespace, left) as lines:
                for line in lines:
                    if not line.startswith("{") or not line.endswith("\n"):
                        continue
                    said = json.loads(line)
                    if "half" in said and not called:
                        say(f"{said['half']} records acknowledged")
                        called = True
                        at_half()
        return said
