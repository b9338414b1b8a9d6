"""Builds the Maven project `tests/interop/java` into the user's cache, once for each state of its sources.

In the folder (see `build_cache`):
    client/lib/*.jar  client/classes/   what our programs run on
    server/lib/*.jar                    Apache RocketMQ's name server and broker
    newest-client/, newest-server/      the same of the newest RocketMQ
    old-client/, old-server/            the same of RocketMQ 4
    conf/rmq.*.logback.xml              one quiet logging configuration under the four names that RocketMQ looks for
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.interop.build_cache import BuildError, cached, run_tool

__all__ = ["BuildError", "JavaBuild", "Release", "build"]

PROJECT = Path(__file__).resolve().parent.parent / "java"
LOGBACK_NAMES = ("rmq.namesrv.logback.xml", "rmq.broker.logback.xml", "rmq.client.logback.xml", "rmq.tools.logback.xml")


class Release(Enum):
    """Releases of Apache RocketMQ. The Maven project has their versions."""

    REFERENCE = "5.3.3"
    """The release whose outcomes and outputs are recorded."""
    NEWEST = "5.5.0"
    """The newest release that Maven Central serves completely."""
    OLD = "4.9"


@dataclass(frozen=True)
class JavaBuild:
    """A finished build in the cache."""

    folder: Path

    def client_class_path(self, release: Release) -> str:
        """Class path of the programs with the client of RocketMQ 5."""
        library = {Release.REFERENCE: "client/lib/*", Release.NEWEST: "newest-client/lib/*"}[release]
        return os.pathsep.join(map(str, (self.folder / "conf", self.folder / "client/classes", self.folder / library)))

    def server_class_path(self, release: Release) -> str:
        """Class path of name server and broker."""
        if release is Release.OLD:
            return str(self.folder / "old-server/lib/*")
        library = {Release.REFERENCE: "server/lib/*", Release.NEWEST: "newest-server/lib/*"}[release]
        return os.pathsep.join(map(str, (self.folder / "conf", self.folder / library)))

    @property
    def old_client_class_path(self) -> str:
        return os.pathsep.join(map(str, (self.folder / "old-client/classes", self.folder / "old-client/lib/*")))

    @property
    def mixed_class_path(self) -> str:
        """Class path of the programs for RocketMQ 5 with the client of RocketMQ 4."""
        return os.pathsep.join(map(str, (self.folder / "client/classes", self.folder / "old-client/lib/*")))

    @property
    def logging(self) -> Path:
        """Folder with the logging configuration, for servers that search in their own folder."""
        return self.folder / "conf" / LOGBACK_NAMES[0]


def build() -> JavaBuild:
    """Return the build of the current sources. It is made if the cache lacks it; raises BuildError."""
    sources = [path for path in PROJECT.rglob("*") if path.is_file() and path.suffix in {".xml", ".java"}]
    return JavaBuild(cached("java", PROJECT, sources, _build_into))


def _build_into(folder: Path) -> None:
    run_tool(["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), f"-Doutput.root={folder}", "package"])
    (folder / "conf").mkdir()
    for name in LOGBACK_NAMES:
        shutil.copy(PROJECT / "logback.xml", folder / "conf" / name)
