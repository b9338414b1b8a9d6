"""The programs of the image: the entrypoint follows Spark's contract, and slim.py keeps the required files."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

IMAGE = Path(__file__).resolve().parents[2] / "spark" / "image"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Create a folder with a `tini` that prints its arguments, one per line."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tini = folder / "tini"
    tini.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tini.chmod(0o755)
    return folder


def entrypoint(path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{path}:/usr/bin:/bin", "SPARK_HOME": "/spark"} | variables
    command = [str(IMAGE / "entrypoint.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20)


EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_EXECUTOR_POD_NAME": "flights-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def test_an_executor_gets_its_options_in_order_with_their_spaces(path: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn{number}=a b" for number in range(11)}
    printed = entrypoint(path, "executor", **EXECUTOR, **options).stdout.splitlines()
    assert printed[:3] == ["-s", "--", "java"]
    assert printed[3:14] == [f"-Dn{number}=a b" for number in range(11)]
    assert printed[14:16] == ["-Xms512m", "-Xmx512m"]
    assert printed[16:18] == ["-cp", "/spark/conf:/spark/jars/*"]
    assert printed[18].endswith(".KubernetesExecutorBackend")
    assert dict(zip(printed[19::2], printed[20::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "--executor-id": "1",
        "--cores": "1",
        "--app-id": "spark-app",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "flights-exec-1",
    }


def test_an_executor_without_java_options_and_with_more_classes(path: Path) -> None:
    more = {"SPARK_CONF_DIR": "/conf", "SPARK_CLASSPATH": "/more/*"}
    printed = entrypoint(path, "executor", **EXECUTOR, **more).stdout.splitlines()
    assert printed[2:7] == ["java", "-Xms512m", "-Xmx512m", "-cp", "/conf:/spark/jars/*:/more/*"]


def test_a_driver_in_cluster_mode(path: Path) -> None:
    done = entrypoint(path, "driver", "--class", "x", "local:///a.py", SPARK_DRIVER_BIND_ADDRESS="10.0.0.3")
    printed = done.stdout.splitlines()
    assert printed[2] == "/spark/bin/spark-submit"
    assert "spark.driver.bindAddress=10.0.0.3" in printed
    assert printed[-5:] == ["--deploy-mode", "client", "--class", "x", "local:///a.py"]


def test_any_other_command_is_run_as_it_is(path: Path) -> None:
    assert entrypoint(path, "spark-submit", "a b").stdout.splitlines() == ["-s", "--", "spark-submit", "a b"]


def test_no_command_is_a_clear_error(path: Path) -> None:
    done = entrypoint(path)
    assert done.returncode == 2
    assert "driver, executor or a command" in done.stderr


def test_a_variable_that_spark_forgot_is_named(path: Path) -> None:
    incomplete = {name: value for name, value in EXECUTOR.items() if name != "SPARK_DRIVER_URL"}
    done = entrypoint(path, "executor", **incomplete)
    assert done.returncode != 0
    assert "SPARK_DRIVER_URL" in done.stderr


def slimming() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slim", IMAGE / "slim.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_goes_and_what_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    for name in (
        "spark-mllib_2.13-4.3.0.jar",
        "hive-exec-2.3.10-core.jar",
        "orc-core-2.3.0.jar",
        "hive-storage-api-2.8.1.jar",
    ):
        (jars / name).write_bytes(b"")
    for folder in ("pyspark/ml", "pyspark/testing", "pyspark/jars/connect-repl", "pyarrow/tests"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("libarrow_flight.so.2600", "libarrow_substrait.so.2600", "_s3fs.so"):
        (tmp_path / "pyarrow" / name).write_bytes(b"")
    with zipfile.ZipFile(jars / "rocksdbjni-9.8.4.jar", "w") as jar:
        for entry in (
            "A.class",
            "librocksdbjni-linux64.so",
            "librocksdbjni-linux64-musl.so",
            "librocksdbjni-win64.dll",
        ):
            jar.writestr(entry, b"x")
    slimming().slim(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {
        "pyspark",
        "pyspark/jars",
        "pyspark/jars/hive-storage-api-2.8.1.jar",
        "pyspark/jars/orc-core-2.3.0.jar",
        "pyspark/jars/rocksdbjni-9.8.4.jar",
        "pyspark/testing",
        "pyarrow",
        "pyarrow/libarrow_substrait.so.2600",
    }
    with zipfile.ZipFile(jars / "rocksdbjni-9.8.4.jar") as jar:
        assert jar.namelist() == ["A.class", "librocksdbjni-linux64.so"]
