"""`raptormq dev` as a child process on free ports: what the Java client talks to in tests and benchmarks."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.rocketmq_java import WatchedProcess, free_port, free_port_run

START_TIMEOUT_S = 60.0
ANY_DISK = {
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceCleanForciblyRatio": "98",
    "diskSpaceWarningLevelRatio": "100",
}
"""Settings with which the broker has no opinion about how full the machine's disk is."""


class RaptorMQDev:
    """Name server and broker of ours in one process; a context manager that starts and stops it."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        """`folder` receives data and log, `settings` go to the broker, `prefix` before the command (taskset, nice)."""
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
        """Start, or start again on the same ports and data, and return when it serves; raises ProcessError."""
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
        """SIGTERM and wait for the end."""
        if self.broker is not None:
            self.broker.stop()
            self.broker = None

    def kill(self) -> None:
        """SIGKILL."""
        if self.broker is not None:
            self.broker.kill()
            self.broker = None

    def restart(self) -> None:
        """A clean stop and a new start on the same data and ports."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
