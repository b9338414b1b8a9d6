"""Fixtures that run the command line in processes, and one `raptormq dev` for all tests of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.cli.secured import Secured, secured_cluster

RAPTORMQ = str(Path(sys.executable).with_name("raptormq"))
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Serving:
    """A server process that has printed its ready line."""

    process: subprocess.Popen[str]
    ready: str

    def address(self, name: str) -> str:
        """Return the address of `name` in the ready line."""
        return dict(part.split("=", 1) for part in self.ready.split()[1:])[name]


@contextmanager
def start_server(*arguments: str, stderr: IO[str] | None = None) -> Iterator[Serving]:
    """Run a server command until the end of the block. The first line of its output must be the ready line."""
    with subprocess.Popen([RAPTORMQ, *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            yield Serving(process, _ready_line(process))
        finally:
            process.kill()


def _ready_line(process: subprocess.Popen[str]) -> str:
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
    finally:
        watchdog.cancel()
    assert line.startswith("ready "), f"not ready: {line!r}"
    return line.rstrip("\n")


@pytest.fixture(scope="session")
def command_line() -> Callable[..., list[str]]:
    """`command_line(*arguments)`: the words that start a process, for tests that interact with the running process."""
    return lambda *arguments: [RAPTORMQ, *arguments]


@pytest.fixture(scope="session")
def serving() -> Callable[..., AbstractContextManager[Serving]]:
    """`serving(*arguments)`: context of a server process."""
    return start_server


@pytest.fixture(scope="session")
def dev_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One `raptormq dev` on its own ports. Every test uses its own topics."""
    folder = tmp_path_factory.mktemp("dev")
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0"]
    with start_server("dev", "--data-dir", str(folder), *ports) as server:
        yield server


Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="session")
def raptormq() -> Run:
    """`raptormq(*arguments, stdin=b"", namesrv=None)`: run a command until it ends, within a time limit."""

    def run(*arguments: str, stdin: bytes = b"", namesrv: str | None = None) -> subprocess.CompletedProcess[bytes]:
        environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
        if namesrv is not None:
            environment["NAMESRV_ADDR"] = namesrv
        command = [RAPTORMQ, *arguments]
        return subprocess.run(
            command, input=stdin, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
        )

    return run


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """`secured(*arguments, user=..., password=...)`: run a command against a broker with access control."""
    with secured_cluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield Secured(cluster.name_servers)
