"""Removes files of installed packages that Spark jobs on Kubernetes do not need, about a third of a gigabyte.

Removed from pyspark: machine learning, graphs, Hive, Spark Connect, YARN, the Scala shell, and native libraries for
other machines. Removed from pyarrow: the Flight protocol, the S3 client, headers and tests.
The ORC jars are needed, because Spark cannot list its data sources without them; `pyspark.testing` is imported by other
modules.

Usage: slim.py SITE_PACKAGES
"""

from __future__ import annotations

import platform
import shutil
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

UNNEEDED_JARS = """
    spark-mllib_* spark-mllib-local_* breeze* spire* cats-kernel* algebra_* arpack* blas-* lapack-* JTransforms*
    JLargeArrays* pmml-model* netlib* dev.ludovic*
    spark-graphx_* spark-connect_* spark-yarn_* spark-repl_* scala-compiler* jline-*
    spark-hive_* spark-hive-thriftserver_* hive-beeline* hive-cli* hive-common* hive-exec* hive-jdbc* hive-metastore*
    hive-serde* hive-service-rpc* hive-shims* derby* datanucleus* javax.jdo* jdo-api* bonecp* HikariCP* libthrift*
    libfb303* curator* zookeeper* tink*
    netty-tcnative-boringssl-static-*osx* netty-tcnative-boringssl-static-*windows*
"""
UNNEEDED_FILES = """
    pyspark/jars/connect-repl pyspark/examples pyspark/ml pyspark/mllib pyspark/graphx pyspark/data pyspark/sbin
    pyspark/licenses
    pyarrow/include pyarrow/tests pyarrow/*_flight* pyarrow/libarrow_s3* pyarrow/_s3fs*
"""

# Jars with native libraries for many machines, and the folder names of each machine in these jars.
JARS_WITH_NATIVE_CODE = "rocksdbjni-* zstd-jni-* snappy-java-* lz4-java-* leveldbjni-*"
NATIVE_SUFFIXES = (".so", ".dll", ".dylib", ".jnilib", ".a")
MACHINES = {
    "x86_64": ("linux64", "linux/amd64", "Linux/x86_64"),
    "aarch64": ("linux-aarch64", "linux/aarch64", "Linux/aarch64"),
}


def is_for_us(name: str) -> bool:
    """Return False for a native library of another machine, True for all other jar entries."""
    if not name.endswith(NATIVE_SUFFIXES):
        return True
    return "musl" not in name and any(part in name for part in MACHINES.get(platform.machine(), ("",)))


def repack(jar: Path) -> None:
    """Rewrite the jar without the native libraries of other machines."""
    smaller = jar.with_suffix(".slim")
    with zipfile.ZipFile(jar) as source, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            if is_for_us(entry.filename):
                target.writestr(entry, source.read(entry))
    smaller.replace(jar)


def slim(site_packages: Path) -> None:
    """Remove unneeded files from the packages."""
    for pattern in UNNEEDED_FILES.split():
        for path in site_packages.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    for jar in sorted((site_packages / "pyspark" / "jars").iterdir()):
        if any(fnmatch(jar.name, pattern + ".jar") for pattern in UNNEEDED_JARS.split()):
            jar.unlink()
        elif any(fnmatch(jar.name, pattern + ".jar") for pattern in JARS_WITH_NATIVE_CODE.split()):
            repack(jar)


if __name__ == "__main__":
    slim(Path(sys.argv[1]))
