"""The reduction of the OpenMessaging Benchmark's checkout to the compared drivers and client versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.batch.omb_build import MODULES, build, command, fitted
from tests.interop.rocketmq_java import BuildError

ROOT_POM = """<modules>
    <module>benchmark-framework</module>
    <module>driver-kafka</module>
    <module>driver-pulsar</module>
    <module>package</module>
</modules>
"""
DRIVER_POM = """<rocketmq.version>5.1.4</rocketmq.version>
<dependencies>
    <dependency>
        <artifactId>driver-pulsar</artifactId>
        <exclusions><exclusion><artifactId>driver-kafka</artifactId></exclusion></exclusions>
    </dependency>
    <dependency>
        <artifactId>driver-api</artifactId>
    </dependency>
    <dependency>
        <artifactId>rocketmq-acl</artifactId>
    </dependency>
    <dependency>
        <artifactId>kafka-clients</artifactId>
        <version>3.6.1</version>
    </dependency>
    <dependency>
        <artifactId>guava</artifactId>
        <version>3.6.1</version>
    </dependency>
</dependencies>
"""


def test_what_is_not_compared_is_left_out() -> None:
    assert fitted(ROOT_POM, rocketmq="5", kafka="3").split() == [
        "<modules>",
        "<module>benchmark-framework</module>",
        "<module>driver-kafka</module>",
        "</modules>",
    ]


def test_the_clients_get_our_versions_and_nothing_else_does() -> None:
    pom = fitted(DRIVER_POM, rocketmq="5.9.9", kafka="3.9.9")
    assert "<rocketmq.version>5.9.9</rocketmq.version>" in pom
    assert (pom.count("3.9.9"), pom.count("3.6.1")) == (1, 1)
    assert "pulsar" not in pom
    assert "rocketmq-acl" not in pom
    assert pom.count("<dependency>") == pom.count("</dependency>") == 3
    assert fitted(pom, rocketmq="5.9.9", kafka="3.9.9") == pom


def test_another_folder_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "pom.xml").write_text(ROOT_POM)
    with pytest.raises(BuildError, match=r"no checkout of the OpenMessaging Benchmark: benchmark-framework/pom\.xml"):
        build(tmp_path)
    assert (tmp_path / "pom.xml").read_text() == ROOT_POM
    assert CliRunner().invoke(command, [str(tmp_path / "nothing")]).exit_code == 2


def test_a_build_that_fails_says_why(tmp_path: Path) -> None:
    for module in ("", *MODULES):
        (tmp_path / module).mkdir(exist_ok=True)
        (tmp_path / module / "pom.xml").write_text("<project>")
    with pytest.raises(BuildError, match="mvn"):
        build(tmp_path)
