"""The example jobs and their manifests: results compared with a direct computation, restarts, and matching names."""

from __future__ import annotations

import importlib.util
import json
import random
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from raptormq.client import Message
from raptormq_operator.manifests import spark_application
from tests.names import unique
from tests.spark.sending import create_topic, send

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
JOBS = ["spark-flights-batch.yaml", "spark-flights-stream.yaml"]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flights(count: int) -> list[dict[str, Any]]:
    pick = random.Random(5)
    origins = ["JFK", "LGA", "EWR"]
    return [
        {"origin": pick.choice(origins), "delay": pick.randint(-30, 300), "distance": pick.randint(80, 2700)}
        for _ in range(count)
    ]


def straight_count(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for record in records:
        for index, value in enumerate((1, record["delay"], record["distance"])):
            sums[record["origin"]][index] += value
    names = ("flights", "delay", "distance")
    return [{"origin": origin, **dict(zip(names, row, strict=True))} for origin, row in sorted(sums.items())]


@pytest.fixture(scope="module")
def sent(name_server: str) -> tuple[str, list[dict[str, Any]]]:
    """A topic with flights, some of them twice and in another queue."""
    records, topic = flights(300), unique("example-flights")
    create_topic(name_server, topic, 3)
    numbered = [*enumerate(records), *list(enumerate(records))[:40]]
    send(name_server, [Message(topic, json.dumps(each).encode(), keys=(str(n),)) for n, each in numbered], 3)
    return topic, records


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_batch_job(spark: SparkSession, name_server: str, sent: tuple[str, list[dict[str, Any]]]) -> None:
    topic, records = sent
    reader = spark.read.format("raptormq").option("nameServer", name_server).option("subscribe", topic)
    totals = example("spark_flights_batch").totals(reader.load())
    assert [row.asDict() for row in totals.collect()] == straight_count(records)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_streaming_job_goes_on_after_its_driver_was_lost(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = example("spark_flights_stream")
    rows = [{"key": str(number), **flight} for number, flight in enumerate(flights(30))]
    schema = "key string, origin string, delay long, distance long"

    def batch(*numbers: int) -> Any:
        return spark.createDataFrame([tuple(rows[n].values()) for n in numbers], schema)

    first = job.FlightFiles(tmp_path)
    first.write(batch(*range(10)), 0)
    first.write(batch(*range(10, 20)), 1)
    (tmp_path / "batch-000000002.part").write_text('{"key": "cut')
    second = job.FlightFiles(tmp_path)
    assert len(second.flights) == 20
    second.write(batch(*range(10, 20)), 1)
    second.write(batch(9, *range(20, 30)), 2)
    assert second.totals() == straight_count(rows)
    lines = [json.loads(line.removeprefix("BATCH ")) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1] == {"batch": 2, "rows": 11, "flights": 30}


@pytest.mark.parametrize("name", JOBS)
def test_a_manifest_fits_what_it_refers_to(name: str) -> None:
    access = {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / "spark-access.yaml").read_text())}
    documents = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    pod = documents[-1]["spec"]["template"]["spec"]
    (driver,) = pod["containers"]
    arguments: list[str] = driver["args"]
    settings = dict(each.removeprefix("--conf=").split("=", 1) for each in arguments if each.startswith("--conf="))
    assert pod["serviceAccountName"] == access["ServiceAccount"]["metadata"]["name"]
    assert settings["spark.kubernetes.container.image"] == driver["image"]
    job = next(each for each in arguments if each.endswith(".py"))
    assert (EXAMPLES / Path(job).name).exists()
    assert Path(job).parent == Path("/opt/examples")
    mounts = {mount["name"]: mount["mountPath"] for mount in driver["volumeMounts"]}
    assert {volume["name"] for volume in pod["volumes"]} == mounts.keys()
    template = Path(settings["spark.kubernetes.executor.podTemplateFile"])
    assert template.parent == Path(mounts["executor"])
    assert template.name in access["ConfigMap"]["data"]
    claims = [
        volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume
    ]
    assert claims == [each["metadata"]["name"] for each in documents if each["kind"] == "PersistentVolumeClaim"]


def test_the_application_for_kubeflow_is_the_pipeline_of_this_operator() -> None:
    access = {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / "spark-access.yaml").read_text())}
    pod = yaml.safe_load(access["ConfigMap"]["data"]["executor.yaml"])["spec"]
    claim, application = yaml.safe_load_all((EXAMPLES / "spark-kubeflow.yaml").read_text())
    pipeline = yaml.safe_load((EXAMPLES / "spark-clean-topic.yaml").read_text())["spec"]
    spec = application["spec"]
    assert spec["mainApplicationFile"] == spark_application.PROGRAM
    assert spec["sparkVersion"] == spark_application.SPARK_VERSION
    assert spec["image"] == pipeline["image"]
    place = spec["arguments"][4]
    known = {
        "$(RAPTORMQ_NAME_SERVER)": f"{pipeline['clusterRef']['name']}-namesrv:9876",
        "$(RAPTORMQ_CHECKPOINT)": place,
    }
    assert spec["arguments"] == [
        pipeline["application"]["file"],
        *(known.get(each, each) for each in pipeline["arguments"]),
    ]
    assert {"name": "RAPTORMQ_CHECKPOINT", "value": place} in spec["driver"]["env"]
    assert spec["driver"]["serviceAccount"] == access["ServiceAccount"]["metadata"]["name"]
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["checkpoint"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    for part in (spec["driver"], spec["executor"]):
        assert part["podSecurityContext"] == pod["securityContext"]
        assert part["securityContext"] == pod["containers"][0]["securityContext"]
        assert {mount["name"] for mount in part["volumeMounts"]} <= volumes.keys()


def test_executors_may_not_do_more_than_drivers_and_neither_is_root() -> None:
    access = {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / "spark-access.yaml").read_text())}
    executor = yaml.safe_load(access["ConfigMap"]["data"]["executor.yaml"])["spec"]
    assert executor["automountServiceAccountToken"] is False
    for name in JOBS:
        driver = list(yaml.safe_load_all((EXAMPLES / name).read_text()))[-1]["spec"]["template"]["spec"]
        assert driver["securityContext"] == executor["securityContext"]
        assert driver["containers"][0]["securityContext"] == executor["containers"][0]["securityContext"]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_bodies_of_json_become_columns(spark: SparkSession, name_server: str) -> None:
    records, topic = flights(30), unique("example-bodies")
    create_topic(name_server, topic, 2)
    messages = [Message(topic, json.dumps(each).encode(), keys=(str(n),)) for n, each in enumerate(records)]
    send(name_server, [*messages, Message(topic, b"{", keys=("damaged",))], 2)
    found = example("spark_decode_bodies").flights(spark, name_server, topic, "json")
    by_key = {row["key"]: (row["origin"], row["delay"], row["distance"]) for row in found.collect()}
    assert by_key.pop("damaged") == (None, None, None)
    assert by_key == {str(n): (each["origin"], each["delay"], each["distance"]) for n, each in enumerate(records)}
