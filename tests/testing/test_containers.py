"""The container class for testcontainers without a container engine: its command runs on this host."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from testcontainers.core.config import ConnectionMode

from raptormq.client import BlockingProducer, Message
from raptormq.errors import ConfigError
from raptormq.testing.containers import NAME_SERVER_PORT, RaptorMQContainer, start_command
from tests.ports import free_port


class Engine:
    """A container engine that runs the command of a container as a process of this host, with its files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name_server_port = free_port()
        self.created: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.client = SimpleNamespace(close=lambda: None)
        self.attrs: dict[str, Any] = {}

    def create(self, image: str, **options: Any) -> Engine:
        self.created = {"image": image, **options}
        return self

    def start(self, _: Engine) -> None:
        shell, option, command = self.created["entrypoint"]
        (port,) = (host for host in self.created["ports"].values() if host)
        assert command == start_command("/tmp", "0.0.0.0", NAME_SERVER_PORT, port)
        here = start_command(str(self.folder), "127.0.0.1", self.name_server_port, port)
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen([shell, option, here], stdout=log, stderr=log, env=environment)

    # --- what testcontainers asks of a container ---

    id = short_id = "here"

    @property
    def status(self) -> str:
        return "running" if self.process is not None and self.process.poll() is None else "exited"

    def reload(self) -> None:
        pass

    def logs(self, **_: Any) -> bytes:
        return (self.folder / "log").read_bytes()

    def put_archive(self, path: str, data: bytes) -> bool:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive.getmembers():
                content = archive.extractfile(member)
                assert content is not None
                (self.folder / Path(member.name).name).write_bytes(content.read())
        return True

    def remove(self, **_: Any) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait()

    # --- and of its client ---

    def port(self, _: str, port: int) -> int:
        assert port == NAME_SERVER_PORT
        return self.name_server_port

    def host(self) -> str:
        return "localhost"

    def get_connection_mode(self) -> Any:
        return ConnectionMode.docker_host


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    made = Engine(folder)
    with (
        mock.patch("testcontainers.core.container.DockerClient", return_value=made),
        mock.patch("testcontainers.core.container.c._ryuk_disabled", True),
    ):
        yield made


def test_clients_of_this_host_reach_the_broker(tmp_path: Path) -> None:
    full = {
        "diskMaxUsedSpaceRatio": "95",
        "diskSpaceCleanForciblyRatio": "98",
        "diskSpaceWarningLevelRatio": "100",
        "brokerName": "in-a-container",
    }
    with engine(tmp_path) as host, RaptorMQContainer("raptormq:test", settings=full) as container:
        assert host.created["image"] == "raptormq:test"
        address = container.get_name_server_address()
        assert address == f"127.0.0.1:{host.name_server_port}"
        with BlockingProducer(name_servers=address) as producer:
            sent = producer.send(Message("orders", b"17"))
        assert sent.queue.broker_name == "in-a-container"
    assert host.status == "exited"


def test_a_container_that_ends_is_an_error(tmp_path: Path) -> None:
    with engine(tmp_path):
        container = RaptorMQContainer(startup_timeout=30.0)
        container._settings["flushDiskType"] = "SOMETIMES"  # like an image of another version that rejects a setting
        with pytest.raises(RuntimeError, match="exited"), container:
            pass


def test_wrong_settings_are_errors_before_the_start(tmp_path: Path) -> None:
    with engine(tmp_path), pytest.raises(ConfigError, match="flushDiskType"):
        RaptorMQContainer(settings={"flushDiskType": "SOMETIMES"})
