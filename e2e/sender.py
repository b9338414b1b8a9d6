"""A pod that sends the records (`send_records.py`) and reports when half of them are acknowledged."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e import records
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.progress import say

START_TIMEOUT_S = 240.0
ENDED = ("Succeeded", "Failed")
STOP = "/tmp/stop"
"""File in the pod whose existence ends the pauses."""
MAX_SHOWN = 20
"""Maximum number of output lines in an error message."""


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
        """Start the pod; `pace_s` is the time between two small chunks of the second half of `count` records."""
        pod = string.Template(Path(__file__).with_name("sender.yaml").read_text(encoding="utf-8"))
        values = {
            "name": self._name,
            "namespace": self._namespace,
            "image": image,
            "name_servers": name_servers,
            "topic": topic,
            "pace": pace_s,
            "count": count,
            "stop": STOP,
        }
        self._kubernetes.kubectl("apply", "-f", "-", manifest=pod.substitute(values))
        self._kubernetes.wait_until("the sender starts", lambda: self.phase != "Pending", START_TIMEOUT_S)

    @property
    def phase(self) -> str:
        """Phase of the pod."""
        phase: str = self._kubernetes.get("pod", self._name, "-n", self._namespace)["status"]["phase"]
        return phase

    def follow(self, at_half: Callable[[], None], timeout: float) -> dict[str, Any]:
        """Call `at_half` when half of the records are acknowledged, and then let the sender send the rest without
        pauses. Return the JSON of its last line.

        Raises:
            Failed: The sender does not reach its half or its end within `timeout` seconds each, or has ended before.
        """
        say(f"{self._wait_for('half', timeout)['half']} records acknowledged")
        at_half()
        self._kubernetes.wait_until("the sender is told to end", self._is_told, START_TIMEOUT_S)
        return self._wait_for("acknowledged", timeout)

    def _wait_for(self, key: str, timeout: float) -> dict[str, Any]:
        """Wait until the sender has said a line with this key, and return the line."""
        found: list[dict[str, Any]] = []

        def said() -> bool:
            ended = self.phase in ENDED  # first: the log of an ended pod is complete
            text = self._kubernetes.kubectl("logs", "-n", self._namespace, self._name)
            log = text[: text.rfind("\n") + 1].splitlines()
            found.extend(line for line in (json.loads(each) for each in log if each.startswith("{")) if key in line)
            if ended and not found:
                raise Failed("the sender has ended:\n" + "\n".join(log[-MAX_SHOWN:]))
            return bool(found)

        self._kubernetes.wait_until(f"the sender says {key}", said, timeout)
        return found[0]

    def _is_told(self) -> bool:
        if self.phase not in ENDED:
            self._kubernetes.kubectl("exec", "-n", self._namespace, self._name, "--", "touch", STOP)
        return True
