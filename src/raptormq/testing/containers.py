"""A name server and a broker in a container, in the form of testcontainers (extra ``testcontainers``).

    with RaptorMQContainer("registry.example/raptormq:0.2.0") as container:
        ...  # clients with name_servers=container.get_name_server_address()

:class:`raptormq.testing.EmbeddedCluster` needs no container and starts faster. The container runs the image that runs
in production, and serves clients in other languages.

Clients connect to the address that the broker registers. The broker therefore has the same port, a free port of this
host, inside and outside of the container, and starts only when the address of the host is known. Clients in other
containers cannot reach the broker at that address.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from datetime import timedelta
from importlib.metadata import version
from typing import Any, Self

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from raptormq.broker.config import BrokerConfig
from raptormq.config_file import format_properties

NAME_SERVER_PORT = 9876
START_TIMEOUT_S = 60.0
"""Default time limit of the start in seconds, without the pull of the image."""
_SETTINGS_FILE, _START_FILE = "raptormq.conf", "raptormq.start"
_FOLDER = "/tmp"
_READY = r"^ready "


class RaptorMQContainer(DockerContainer):
    """A container with ``raptormq dev``: a name server and one broker, which creates topics with their first message.

    Args:
        image: the image, by default ``raptormq`` with the tag of this version, as ``broker_image/build.sh`` makes it.
        settings: settings of the broker as in broker.conf, for example ``{"autoCreateTopicEnable": "false"}``.
        startup_timeout: time limit of the start in seconds.
        options: the other arguments of ``DockerContainer``, such as ``network``.

    Raises:
        ConfigError: a setting is invalid.
        DockerException: no container engine is running.
    """

    def __init__(
        self,
        image: str | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        startup_timeout: float = START_TIMEOUT_S,
        **options: Any,
    ) -> None:
        self._settings = dict(settings or {})
        BrokerConfig.from_pairs(self._settings)
        super().__init__(image or f"raptormq:{version('raptormq')}", **options)
        self._startup_timeout = startup_timeout
        self._broker_port = _free_port()
        self.with_exposed_ports(NAME_SERVER_PORT)
        self.with_bind_ports(self._broker_port, self._broker_port)

    def start(self) -> Self:
        """Start the container, and wait until the broker is registered.

        Raises:
            TimeoutError: the broker is not ready in time.
            RuntimeError: the container ends instead of getting ready.
        """
        super().start()
        settings = format_properties({"brokerIP1": self._host_address(), **self._settings})
        self.copy_into_container(settings.encode(), f"{_FOLDER}/{_SETTINGS_FILE}")
        self.copy_into_container(b"", f"{_FOLDER}/{_START_FILE}")
        ready = LogMessageWaitStrategy(_READY).with_startup_timeout(timedelta(seconds=self._startup_timeout))
        ready.wait_until_ready(self)
        return self

    def get_name_server_address(self) -> str:
        """Return the address for ``name_servers=`` of clients on this host."""
        return f"{self._host_address()}:{self.get_exposed_port(NAME_SERVER_PORT)}"

    def _configure(self) -> None:
        command = start_command(_FOLDER, "0.0.0.0", NAME_SERVER_PORT, self._broker_port)
        self._kwargs = self._kwargs | {"entrypoint": ["sh", "-c", command]}

    def _host_address(self) -> str:
        return socket.gethostbyname(self.get_container_host_ip())


def start_command(folder: str, host: str, name_server_port: int, broker_port: int) -> str:
    """Return the shell command that waits for the files in ``folder`` and becomes the servers."""
    dev = f"raptormq dev --data-dir {folder}/raptormq-data --host {host} --metrics-port -1"
    ports = f"--namesrv-port {name_server_port} --broker-port {broker_port}"
    return f"until [ -e {folder}/{_START_FILE} ]; do sleep 0.1; done; exec {dev} {ports} -c {folder}/{_SETTINGS_FILE}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
