"""Builds the Maven project `tests/interop/java` into the user's cache, once for each state of its sources.

The cache folder is `${XDG_CACHE_HOME:-~/.cache}/raptormq/java-<hash of poms and sources>`; in it:
    client/lib/*.jar  client/classes/   what our programs run on
    server/lib/*.jar                    Apache RocketMQ's name server and broker
    conf/rmq.*.logback.xml              one quiet logging configuration under the four names that RocketMQ looks for
    complete                            written last; a folder without it is built again
A file lock keeps two builders apart: the second waits and finds the work done.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "java"
LOGBACK_NAMES = ("rmq.namesrv.logback.xml", "rmq.broker.logback.xml", "rmq.client.logback.xml", "rmq.tools.logback.xml")
BUILD_TIMEOUT_SECONDS = 900


class BuildError(Exception):
    """Maven is missing or failed; the text holds the end of what it printed."""


@dataclass(frozen=True)
class JavaBuild:
    """A finished build in the cache."""

    folder: Path

    @property
    def client_class_path(self) -> str:
        return os.pathsep.join(
            map(str, (self.folder / "conf", self.folder / "client/classes", self.folder / "client/lib/*"))
        )

    @property
    def server_class_path(self) -> str:
        return os.pathsep.join(map(str, (self.folder / "conf", self.folder / "server/lib/*")))


def build() -> JavaBuild:
    """The build of the sources as they are now, made first if the cache does not hold it; raises BuildError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raptormq"
    folder = cache / f"java-{_source_hash()}"
    if not (folder / "complete").exists():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "java.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                _build_into(folder)
    return JavaBuild(folder)


def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(PROJECT.rglob("*")):
        if path.is_file() and path.suffix in {".xml", ".java"}:
            digest.update(str(path.relative_to(PROJECT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _build_into(folder: Path) -> None:
    sys.stderr.write(f"building the Java programs of tests/interop/java into {folder} (first time only) …\n")
    shutil.rmtree(folder, ignore_errors=True)
    _run_maven(folder)
    (folder / "conf").mkdir()
    for name in LOGBACK_NAMES:
        shutil.copy(PROJECT / "logback.xml", folder / "conf" / name)
    (folder / "complete").touch()


def _run_maven(folder: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), f"-Doutput.root={folder}", "package"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_SECONDS, check=False)
    except FileNotFoundError as error:
        raise BuildError("mvn is not installed; the Java programs need Maven and a JDK 17") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"mvn did not end within {BUILD_TIMEOUT_SECONDS} s") from error
    if done.returncode != 0:
        raise BuildError(f"mvn failed with exit code {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
