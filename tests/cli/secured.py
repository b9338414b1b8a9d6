"""A broker with access control, and commands signed by one of its users."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

from raptormq.cli.main import run
from raptormq.testing import EmbeddedCluster

ROOT, ROOT_PASSWORD = "root", "root-secret"


def secured_cluster(folder: Path) -> EmbeddedCluster:
    """Run a name server and a broker whose first user is `root`."""
    return EmbeddedCluster(
        folder,
        authenticationEnabled="true",
        authorizationEnabled="true",
        initAuthenticationUser=json.dumps({"username": ROOT, "password": ROOT_PASSWORD}),
    )


@dataclass(frozen=True)
class Secured:
    """Runs commands against the broker, as `root` or as another user. Commands run in this process, because there are
    many of them.
    """

    name_servers: str

    def __call__(
        self, *words: str, user: str = ROOT, password: str = ROOT_PASSWORD, stdin: bytes = b""
    ) -> CompletedProcess[bytes]:
        signed = ["-n", self.name_servers, "--access-key", user, "--secret-key", password]
        out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
        with (
            tempfile.TemporaryFile("w+") as given,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(sys, "stdin", given),
        ):
            given.buffer.write(stdin)
            given.seek(0)
            code = run([*words, *signed])
        return CompletedProcess(words, code, *map(_written, (out, err)))

    def json(self, *words: str) -> Any:
        """Return the JSON output (``-o json``) of a command that must succeed."""
        done = self(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def says(self, *words: str, **more: Any) -> str:
        """Return the output of a command that must succeed."""
        done = self(*words, **more)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
        return done.stdout.decode()

    def fails(self, *words: str, **more: Any) -> tuple[int, str]:
        """Return the exit code and the error line of a command that must fail."""
        done = self(*words, **more)
        assert done.stderr.count(b"\n") == 1, done.stderr
        assert done.stdout == b""
        return done.returncode, done.stderr.decode()

    def create(self, name: str, password: str = "secret-of-a-user", *options: str) -> str:
        """Create a user."""
        return self.says("user", "create", name, "--password-file", "-", *options, stdin=password.encode())

    def address(self) -> str:
        """Return the address of the broker."""
        [member] = self.json("cluster", "describe")
        address: str = member["address"]
        return address


def _written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()
