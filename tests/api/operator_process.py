"""The operator as a process, started like in its pod, on a machine without the DNS of a Kubernetes cluster.

`python -m tests.api.operator_process` runs `python -m raptormq_operator` with the addresses of pods from
`peers.address_of`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.api.peers import address_of
from tests.ports import free_port

GRACE_S = 30.0
"""Environment variables of the pod."""


class OperatorProcess:
    """Context manager that runs the operator, and kills it at the end if it still runs."""

    def __init__(
        self, folder: Path, kubeconfig: Path, name: str = "operator", *arguments: str, **environment: str
    ) -> None:
        self._arguments = arguments
        self._port = free_port()
        self.log = folder / f"{name}.log"
        self._environment = os.environ | {
            "KUBECONFIG": str(kubeconfig),
            "RAPTORMQ_IMAGE": "raptormq:test",
            "POD_NAME": name,
            "POD_NAMESPACE": "default",
            "HTTP_PORT": str(self._port),
            **environment,
        }

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "tests.api.operator_process", *self._arguments]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, path: str) -> tuple[int, str]:
        """Return the status and the text of /healthz, /readyz or /metrics; status 0 without a response."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    @property
    def leads(self) -> bool:
        return "raptormq_operator_leader 1.0" in self.ask("/metrics")[1].splitlines()

    def terminate(self) -> float:
        """Send SIGTERM. Return the seconds until the process has ended.

        Raises:
            TimeoutExpired: The process did not end within its grace period.
        """
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(GRACE_S)
        return time.monotonic() - begun

    def cpu_seconds(self) -> float:
        """Return the user and system time of the process."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


async def until(what: str, condition: Callable[[], Any], timeout: float = 60.0, *, every: float = 0.05) -> float:
    """Poll a condition until it is true. Return the elapsed seconds."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > timeout:
            raise AssertionError(f"not within {timeout:.0f} s: {what}")
        await asyncio.sleep(every)
    return time.monotonic() - begun


def _resolve_pods() -> None:
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        known = isinstance(name, str) and name.endswith(".svc.cluster.local")
        return resolve(address_of(name) if known else host, *arguments, **options)

    socket.getaddrinfo = getaddrinfo


if __name__ == "__main__":
    from raptormq_operator.__main__ import main

    _resolve_pods()
    sys.exit(main(sys.argv[1:]))
