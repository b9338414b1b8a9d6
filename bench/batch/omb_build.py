"""Command `python -m bench omb-build`: builds the OpenMessaging Benchmark from a checkout, for `OMB_DIR`.

Only the framework and the drivers for RocketMQ and Kafka are built, with the client versions of the Java load in
this repository. This avoids downloading ten other systems. RocketMQ's access control is part of its client since
5.3.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from bench.batch.programs import PROJECT
from tests.interop.build_cache import run_tool
from tests.interop.rocketmq_java import BuildError
from tests.interop.rocketmq_java.build import PROJECT as PARENT

MODULES = ("benchmark-framework", "driver-api", "driver-kafka", "driver-rocketmq")
_POMS = ("pom.xml", *(f"{module}/pom.xml" for module in MODULES))
_DEPENDENCY = re.compile(r"[ \t]*<dependency>.*?</dependency>\n", re.DOTALL)
_NO_CHECKS = ("spotless.check.skip", "checkstyle.skip", "spotbugs.skip", "license.skip", "enforcer.skip", "jacoco.skip")


@click.command("omb-build")
@click.argument("checkout", type=click.Path(path_type=Path, exists=True, file_okay=False))
def command(checkout: Path) -> None:
    """Build a checkout of the OpenMessaging Benchmark. This changes its pom.xml files and takes a minute and 100 MB of
    jars.

    Example: git clone https://github.com/openmessaging/benchmark && python -m bench omb-build benchmark
    """
    build(checkout)
    click.echo(f"built; now: OMB_DIR={checkout.resolve()} python -m bench batch")


def build(checkout: Path) -> None:
    """Build the checkout; raises BuildError."""
    missing = [pom for pom in _POMS if not (checkout / pom).is_file()]
    if missing:
        raise BuildError(f"{checkout} is no checkout of the OpenMessaging Benchmark: {missing[0]} is missing")
    rocketmq, kafka = _version(PARENT / "pom.xml", "rocketmq"), _version(PROJECT / "pom.xml", "kafka")
    for pom in _POMS:
        text = (checkout / pom).read_text(encoding="utf-8")
        (checkout / pom).write_text(fitted(text, rocketmq=rocketmq, kafka=kafka), encoding="utf-8")
    run_tool(["mvn", "-q", "-B", "package", "-DskipTests", *(f"-D{check}" for check in _NO_CHECKS)], folder=checkout)


def fitted(pom: str, *, rocketmq: str, kafka: str) -> str:
    """Return a pom.xml of the benchmark without the unneeded modules and with the given client versions."""
    pom = re.sub(r"[ \t]*<module>(.*?)</module>\n", lambda found: _kept(found, found[1] in MODULES), pom)
    pom = _DEPENDENCY.sub(lambda found: _kept(found, _is_wanted(found[0])), pom)
    pom = re.sub(r"(?<=<rocketmq\.version>)[^<]+", rocketmq, pom)
    return re.sub(r"(<artifactId>kafka-clients</artifactId>\s*<version>)[^<]+", rf"\g<1>{kafka}", pom)


def _kept(found: re.Match[str], wanted: bool) -> str:
    return found[0] if wanted else ""


def _is_wanted(dependency: str) -> bool:
    artifact = re.search(r"<artifactId>(.*?)</artifactId>", dependency)
    name = artifact[1] if artifact is not None else ""
    return name != "rocketmq-acl" and (not name.startswith("driver-") or name in MODULES)


def _version(pom: Path, of: str) -> str:
    found = re.search(rf"<{of}\.version>([^<]+)", pom.read_text(encoding="utf-8"))
    assert found is not None, f"{pom} tells no version of {of}"
    return found[1]
