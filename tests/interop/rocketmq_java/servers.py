"""Apache RocketMQ's name server and broker as child processes with separate folders.

Ports of a broker: listenPort p, fast port p - 2, HA port p + 1. RocketMQ binds every interface, and the broker
registers 127.0.0.1 (`brokerIP1`).
"""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ports import free_port, free_port_run

from .build import JavaBuild, Release
from .registration import wait_until_listed
from .watched_process import WatchedProcess, java

START_TIMEOUT_S = 60.0
_OPENED_MODULES = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref", "java.base/java.lang")


class RocketMQServers:
    """Context manager that runs a name server and one broker, `broker-a` of `DefaultCluster`."""

    def __init__(
        self,
        build: JavaBuild,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
        options: Sequence[str] = (),
        prefix: Sequence[str] = (),
        registration_address: str | None = None,
        namesrv_port: int | None = None,
        broker_port: int | None = None,
        tls: ssl.SSLContext | None = None,
        release: Release = Release.REFERENCE,
    ) -> None:
        """`folder` is for the store, the configuration and the logs. `settings` are added to broker.conf.

        `options` are for both JVMs, `prefix` precedes `java` of the broker (taskset, nice). `registration_address` is
        the address of the name server for the broker, if it differs (a recording proxy). `tls` is for the check whether
        the broker is registered.
        """
        self.folder = folder
        self.namesrv_port = namesrv_port or free_port()
        self.broker_port = broker_port or free_port_run(before=2, after=1)
        self._build = build
        self._settings = dict(settings or {})
        self._heap = heap
        self._options = list(options)
        self._tls = tls
        self._release = release
        self._prefix = list(prefix)
        self._registration_address = registration_address or self.name_servers
        self.namesrv: WatchedProcess | None = None
        self.broker: WatchedProcess | None = None

    @property
    def name_servers(self) -> str:
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def start(self) -> None:
        """Start both, and wait until the broker is registered; raises ProcessError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._release is Release.OLD:
            self._write_logging()
        try:
            self.start_name_server()
            self.start_broker()
        except BaseException:
            self.stop()
            raise

    def start_broker(self) -> None:
        """Start the broker alone, for example on the same store after `stop_broker`, and wait until it is
        registered.
        """
        conf = self._write("broker.conf", self._broker_settings() | self._settings)
        arguments = ["-c", str(conf), "-n", self._registration_address]
        self.broker = self._jvm("org.apache.rocketmq.broker.BrokerStartup", arguments, self._heap, self._prefix)
        self.broker.wait_for("boot success", START_TIMEOUT_S)
        wait_until_listed(self.namesrv_port, START_TIMEOUT_S, tls=self._tls)

    def stop_broker(self) -> None:
        if self.broker is not None:
            self.broker.stop()
            self.broker = None

    def restart(self) -> None:
        """Stop the broker cleanly and restart it on the same store and ports."""
        self.stop_broker()
        self.start_broker()

    def stop(self) -> None:
        """Stop the broker cleanly, then the name server."""
        self.stop_broker()
        if self.namesrv is not None:
            self.namesrv.stop()
            self.namesrv = None

    def kill(self) -> None:
        """Kill both when the store is not needed any more, because a clean stop takes about ten seconds."""
        for process in (self.broker, self.namesrv):
            if process is not None:
                process.kill()
        self.broker = self.namesrv = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_name_server(self) -> None:
        """Start the name server alone; raises ProcessError."""
        conf = self._write("namesrv.conf", {"listenPort": str(self.namesrv_port)})
        self.namesrv = self._jvm("org.apache.rocketmq.namesrv.NamesrvStartup", ["-c", str(conf)], "128m", [])
        self.namesrv.wait_for("boot success", START_TIMEOUT_S)

    def _broker_settings(self) -> dict[str, str]:
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(self.broker_port),
            "haListenPort": str(self.broker_port + 1),
            "storePathRootDir": "store",
            "storePathCommitLog": "store/commitlog",
        }

    def _write_logging(self) -> None:
        (self.folder / "conf").mkdir(exist_ok=True)
        for name in ("broker", "namesrv"):
            shutil.copy(self._build.logging, self.folder / "conf" / f"logback_{name}.xml")

    def _write(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _jvm(self, main_class: str, arguments: Sequence[str], heap: str, prefix: Sequence[str]) -> WatchedProcess:
        opened = [f"--add-opens={module}=ALL-UNNAMED" for module in _OPENED_MODULES]
        # A server without certificates creates one in the folder for temporary files and does not delete it.
        folders = f"-Duser.home={self.folder}", f"-Djava.io.tmpdir={self.folder}"
        options = [f"-Xms{heap}", f"-Xmx{heap}", *folders, *opened, *self._options]
        environment = {**os.environ, "ROCKETMQ_HOME": str(self.folder)}
        return java(
            main_class,
            arguments,
            class_path=self._build.server_class_path(self._release),
            log=self.folder / f"{main_class.rpartition('.')[2]}.log",
            options=options,
            environment=environment,
            folder=self.folder,
            prefix=prefix,
        )
