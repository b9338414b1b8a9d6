"""A pod that sends the records (`send_records.py`) and reports when half of them are acknowledged."""

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
    """The pod of a sender. Senders of one namespace share the ConfigMap with the script and the records."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, name: str) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._name = name

    def bring(self, sent: list[records.Record]) -> None:
        """Create the ConfigMap."""
        script = (Path(__file__).with_name("send_records.py")).read_text(encoding="utf-8")
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "sender", "namespace": self._namespace},
            "data": {"send_records.py": script},
            "binaryData": {"records.json.gz": base64.b64encode(records.packed(sent)).decode()},
        }
        # Too large for the annotation of a client-side apply.
        self._kubernetes.kubectl("create", "-f", "-", manifest=json.dumps(config))

    def start(self, image: str, name_servers: str, topic: str, *, pace_s: float, count: int = records.COUNT) -> None:
        """Start the pod; `pace_s` is the time between two chunks of the second half of `count` records."""
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
        """Phase of the pod."""
        phase: str = self._kubernetes.get("pod", self._name, "-n", self._namespace)["status"]["phase"]
        return phase

    def follow(self, at_half: Callable[[], None], timeout: float) -> dict[str, Any]:
        """Follow the sender's log, and call `at_half` when half of the records are acknowledged. Return the JSON of the
        last line.

        After a lost connection the log is read again from its start.

        Raises:
            Failed: The sender does not end in time.
        """
        deadline = time.monotonic() + timeout
        said: dict[str, Any] = {}
        called = ended = False
        while "acknowledged" not in said and not ended:
            left = deadline - time.monotonic()
            if left < 0:
                raise Failed(f"the sender has not ended after {timeout:.0f} s; its last line is {said}")
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
