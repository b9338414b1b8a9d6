"""`raptormq dev` as a child process on free ports, for clients in tests and benchmarks."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.rocketmq_java import WatchedProcess
from tests.ports import free_port, free_port_run

START_TIMEOUT_S = 60.0
ANY_DISK = {
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceCleanForciblyRatio": "98",
    "diskSpaceWarningLevelRatio": "100",
}
"""Settings that disable the limits of disk usage, which depends on the machine."""


class RaptorMQDev:
    """Context manager that runs name server and broker of RaptorMQ in one process."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        """`folder` is for data and log, `settings` are for the broker, `prefix` precedes the command (taskset,
        nice).
        """
        self.folder = folder
        self._host = host
        self._settings = ANY_DISK | dict(settings or {})
        self._prefix = list(prefix)
        self._ports = {"namesrv": free_port(), "broker": free_port_run(before=2, after=0), "metrics": free_port()}
        self.broker: WatchedProcess | None = None

    @property
    def name_servers(self) -> str:
        return f"{self._url_host}:{self._ports['namesrv']}"

    @property
    def _url_host(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    @property
    def broker_port(self) -> int:
        return self._ports["broker"]

    @property
    def metrics_address(self) -> str:
        return f"http://{self._url_host}:{self._ports['metrics']}/metrics"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def start(self) -> None:
        """Start or restart on the same ports and data, and wait until the server is ready; raises ProcessError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        ports = [argument for name, port in self._ports.items() for argument in (f"--{name}-port", str(port))]
        program = Path(sys.executable).with_name("raptormq")
        self.broker = WatchedProcess(
            "raptormq dev",
            [
                *self._prefix,
                str(program),
                "dev",
                "--host",
                self._host,
                "--data-dir",
                str(self.store),
                "-c",
                str(conf),
                *ports,
            ],
            log=self.folder / "raptormq.log",
            environment={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            ready = self.broker.wait_for("ready namesrv=", START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        for name in self._ports:
            found = re.search(rf"{name}=\S*:(\d+)", ready)
            if found:
                self._ports[name] = int(found[1])

    def stop(self) -> None:
        """Send SIGTERM and wait for the end."""
        if self.broker is not None:
            self.broker.stop()
            self.broker = None

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.broker is not None:
            self.broker.kill()
            self.broker = None

    def restart(self) -> None:
        """Stop cleanly and restart on the same data and ports."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
