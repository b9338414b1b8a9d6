"""Commands against servers that require TLS and signed requests: with options, with environment variables, and
without.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority, mutual_tls
from tests.names import unique

Serve = Callable[..., AbstractContextManager[Any]]
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Secured:
    """A `raptormq dev` with TLS and access control, and the settings of its clients."""

    address: str
    tls: dict[str, str]
    keys: dict[str, str]
    home: Path


@pytest.fixture(scope="module")
def secured(serving: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder, "authority")
    own = authority.issue("client")
    pairs = mutual_tls(authority, own) | {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    }
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    (folder / "conf").mkdir()
    (folder / "conf" / "tools.yml").write_text("accessKey: root\nsecretKey: root-secret\n")
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0"]
    with serving("dev", "--data-dir", str(folder / "data"), "-c", str(conf), *ports) as server:
        tls = {"tls-ca": str(authority.cert), "tls-cert": str(own.cert), "tls-key": str(own.key)}
        yield Secured(server.address("namesrv"), tls, {"access-key": "root", "secret-key": "root-secret"}, folder)


@pytest.fixture
def run(command_line: Callable[..., list[str]], secured: Secured) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """`run(*arguments, stdin=b"", **environment)`: run a command with this environment and no other variable of
    RaptorMQ.
    """

    def play(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("RAPTORMQ_", "ROCKETMQ_"))}
        return subprocess.run(
            command_line(*arguments),
            input=stdin,
            env=clean | {"NAMESRV_ADDR": secured.address} | environment,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    return play


def as_options(pairs: dict[str, str]) -> list[str]:
    return [word for key, value in pairs.items() for word in (f"--{key}", value)]


def as_variables(pairs: dict[str, str]) -> dict[str, str]:
    return {"RAPTORMQ_" + key.replace("-", "_").upper(): value for key, value in pairs.items()}


Play = Callable[..., subprocess.CompletedProcess[bytes]]


def test_options(run: Play, secured: Secured) -> None:
    options, topic = [*as_options(secured.tls | secured.keys), "--tls-check-name"], unique("options")
    done = run("topic", "create", topic, *options)
    assert done.returncode == 0, done.stderr
    assert run("produce", topic, *options, stdin=b"a\n").returncode == 0
    assert run("consume", topic, "--no-follow", *options).stdout == b"a\n"


def test_environment(run: Play, secured: Secured) -> None:
    variables, topic = as_variables(secured.tls | secured.keys), unique("variables")
    done = run("topic", "create", topic, **variables)
    assert done.returncode == 0, done.stderr
    assert run("topic", "create", topic, "--secret-key", "wrong", **variables).returncode == 5
    assert topic.encode() in run("topic", "list", **variables).stdout


def test_credentials_of_the_tools_file(run: Play, secured: Secured) -> None:
    done = run("topic", "create", unique("tools"), *as_options(secured.tls), ROCKETMQ_HOME=str(secured.home))
    assert done.returncode == 0, done.stderr


def test_the_secret_in_a_file(run: Play, secured: Secured) -> None:
    file = secured.home / "secret"
    file.write_text("root-secret\n")
    options = [*as_options(secured.tls), "--access-key", "root", "--secret-key-file", str(file)]
    done = run("topic", "create", unique("by-file"), *options)
    assert done.returncode == 0, done.stderr
    both = run("topic", "list", *options, "--secret-key", "root-secret")
    assert (both.returncode, b"mutually exclusive" in both.stderr) == (2, True)


@pytest.mark.parametrize(
    ("given", "code", "complaint"),
    [
        ([], 3, b"ended before the response; does the server require TLS (--tls)"),
        (["--tls"], 3, b"(--tls-cert, --tls-key)?"),
        (["--tls-ca", "/nowhere/ca.pem"], 2, b"cannot read /nowhere/ca.pem"),
        (["--tls-cert", "/nowhere/own.pem"], 2, b"a client certificate and its key must be given together"),
        (["--access-key", "root"], 2, b"--secret-key-file, and vice versa (or RAPTORMQ_ACCESS_KEY and "),
        (["--secret-key", "secret"], 2, b"--access-key requires --secret-key or --secret-key-file, and vice versa"),
    ],
)
def test_what_is_missing_is_one_line(run: Play, given: list[str], code: int, complaint: bytes) -> None:
    done = run("topic", "list", "--timeout", "2", *given)
    assert done.returncode == code
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_missing_signature_is_one_line(run: Play, secured: Secured) -> None:
    done = run("topic", "create", unique("unsigned"), *as_options(secured.tls))
    assert done.returncode == 5
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_tls_can_be_switched_off(run: Play, secured: Secured) -> None:
    done = run("topic", "list", "--no-tls", "--timeout", "2", **as_variables(secured.tls))
    assert done.returncode == 3
    assert b"does the server require TLS" in done.stderr
