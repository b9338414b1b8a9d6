"""Build of the Maven project `bench/java`, cached per state of its sources.

Contents of the folder:
    rocketmq/lib/*.jar  rocketmq/classes/   load with RocketMQ's client
    kafka/lib/*.jar     kafka/classes/      load with Kafka's client
    kafka-server/lib/*.jar                  Apache Kafka
    spark-kafka/lib/*.jar                   the Kafka connector of Spark
    conf/                                   logging: only warnings, to standard output
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.interop.build_cache import cached, run_tool
from tests.interop.rocketmq_java.build import LOGBACK_NAMES
from tests.interop.rocketmq_java.build import PROJECT as PARENT

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "bench/java"


@dataclass(frozen=True)
class BenchBuild:
    """A complete build in the cache."""

    folder: Path

    @property
    def rocketmq_class_path(self) -> str:
        return self._class_path("rocketmq")

    @property
    def kafka_class_path(self) -> str:
        return self._class_path("kafka")

    @property
    def kafka_server_class_path(self) -> str:
        return self._class_path("kafka-server")

    @property
    def spark_kafka_jars(self) -> list[Path]:
        """Jars for a Spark session that reads and writes Kafka."""
        return sorted((self.folder / "spark-kafka/lib").glob("*.jar"))

    @property
    def log4j_configuration(self) -> Path:
        """Log4j configuration of Kafka's broker."""
        return self.folder / "conf/log4j.properties"

    def _class_path(self, module: str) -> str:
        paths = (self.folder / "conf", self.folder / module / "classes", self.folder / module / "lib/*")
        return os.pathsep.join(map(str, paths))


def build() -> BenchBuild:
    """Return the build of the current sources; build it if it is not cached. Raises BuildError."""
    own = [path for path in PROJECT.rglob("*") if path.suffix in {".xml", ".java", ".properties"}]
    sources = [*own, PARENT / "pom.xml", PARENT / "logback.xml"]
    return BenchBuild(cached("java-bench", ROOT, sources, _build_into))


def _build_into(folder: Path) -> None:
    run_tool(["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), f"-Doutput.root={folder}", "package"])
    (folder / "conf").mkdir()
    for name in LOGBACK_NAMES:
        shutil.copy(PARENT / "logback.xml", folder / "conf" / name)
    shutil.copy(PROJECT / "log4j.properties", folder / "conf")
    shutil.copy(PROJECT / "simplelogger.properties", folder / "conf")
