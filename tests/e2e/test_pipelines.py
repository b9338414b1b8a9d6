"""The pipelines of the end-to-end run: their expected results, and detection of others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from e2e import clean_topic, pipelines, route_delays, weather_join
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.pipelines import RunningPipeline, compare

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MANIFESTS = {
    route_delays.NAME: "spark-pipeline.yaml",
    weather_join.NAME: "spark-weather-join.yaml",
    clean_topic.NAME: "spark-clean-topic.yaml",
}


class FakeKubernetes(Kubernetes):
    """A cluster with one pipeline."""

    def __init__(self, status: dict[str, Any]) -> None:
        super().__init__("fake", Path())
        self.status = status
        self.applied: list[Any] = []
        self.deleted: list[str] = []

    def get(self, *arguments: str) -> dict[str, Any]:
        return {"items": []} if arguments[0] == "pods" else {"status": self.status}

    def kubectl(self, *arguments: str, manifest: str | None = None, timeout: float = 60) -> str:
        if arguments[0] == "apply":
            self.applied += yaml.safe_load_all(manifest or "")
        else:
            self.deleted.append(arguments[2])
        return ""


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_example_is_made_with_the_image_of_the_run(name: str) -> None:
    kubernetes = FakeKubernetes({})
    RunningPipeline(kubernetes, name).start(MANIFESTS[name], "image:e2e")
    (pipeline,) = kubernetes.applied
    assert (pipeline["metadata"]["name"], pipeline["spec"]["image"]) == (name, "image:e2e")
    assert (EXAMPLES / Path(pipeline["spec"]["application"]["file"]).name).exists()


def test_a_text_that_the_example_does_not_have_is_noticed() -> None:
    with pytest.raises(Failed, match=r"spark-pipeline\.yaml has no name: none"):
        RunningPipeline(FakeKubernetes({}), "none").start("spark-pipeline.yaml", "image:e2e", {"name: none": "x"})


def test_a_driver_is_deleted_only_while_there_is_something_to_read() -> None:
    idle, busy = ({"queries": [{"batch": 4}], "lag": lag} for lag in (0, 3))
    kubernetes = FakeKubernetes(idle)
    with pytest.raises(Failed, match="had read everything before its driver could be deleted, in batch 4"):
        RunningPipeline(kubernetes, "delays").delete_driver()
    kubernetes.status = busy
    RunningPipeline(kubernetes, "delays").delete_driver()
    assert kubernetes.deleted == ["delays-driver"]


def test_only_files_of_the_log_are_read(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name, number in (("a", 1), ("b", 2), ("unfinished", 3)):
        pyarrow.parquet.write_table(pa.table({"number": [number]}), tmp_path / f"{name}.parquet")
    for batch, files in (("0", "a"), ("1", "b"), ("9.compact", "ab")):
        lines = [json.dumps({"path": f"file:///somewhere/{name}.parquet", "action": "add"}) for name in files]
        (log / batch).write_text("\n".join(["v1", *lines]))
        (log / f".{batch}.crc").write_bytes(b"\xff\x00crc")
    command = [sys.executable, "-c", pipelines.READER, str(tmp_path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [json.loads(line) for line in text.splitlines()] == [{"number": 1}, {"number": 2}]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("ab", "1 of 3 rows are missing, 0 are too many: missing"),
        ("abcc", "0 of 3 rows are missing, 1 are too many: too many"),
        ("abd", "1 of 3 rows are missing, 1 are too many"),
    ],
)
def test_a_row_too_few_or_too_many_is_noticed(found: str, said: str) -> None:
    compare("letters", Counter("cba"), Counter("abc"))
    with pytest.raises(Failed, match=f"letters: {said}"):
        compare("letters", Counter(found), Counter("abc"))


def test_windows_are_complete_when_nothing_late_is_waited_for() -> None:
    flight = {"origin": "JFK", "destination": "LAX"}
    sent = [
        flight | {"date": "2001/01/01 08:00", "delay": 5},
        flight | {"date": "2001/01/02 08:00", "delay": -2},
        flight | {"date": "2001/03/05 00:00", "delay": 9},
    ]
    # The window that begins on December 28 ends 60 days before the last flight.
    days = {"2000-12-26": (1, 5), "2000-12-27": (2, 3), "2000-12-28": (2, 3)}
    rows = {(day, "JFK", "LAX", *figures): 1 for day, figures in days.items()}
    assert route_delays.expected(sent) == Counter({("2000-12-26", "JFK", "LAX", 1, 5): 1} | rows)


def test_flights_meet_the_weather_of_their_hour() -> None:
    weather = [{"origin": "JFK", "wind_speed": None, "year": 2013, "month": 1, "day": 1, "hour": 8}]
    times = [("JFK", "08:59"), ("JFK", "09:00"), ("LGA", "08:59"), ("JFK", "08:59")]
    flights = [{"origin": origin, "date": f"2001/01/01 {time}", "delay": 7} for origin, time in times]
    assert weather_join.expected(flights, weather) == Counter({("JFK", "2013-01-01 08:59:00", 7, None): 2})


def test_a_raw_message_is_the_cleaned_one_without_its_number() -> None:
    flight = {"date": "2001/01/01 08:00", "origin": "JFK", "destination": "LAX", "delay": 7, "distance": 2475}
    raw = {"keys": ["3"], "tag": None, "body": json.dumps({"number": 3, **flight})}
    cleaned = {"keys": ["3"], "tag": "JFK", "body": json.dumps(flight)}
    assert clean_topic.raw_rows([raw, raw]) == clean_topic.cleaned_rows([cleaned, cleaned])
    assert clean_topic.cleaned_rows([cleaned | {"tag": "LGA"}]) != clean_topic.raw_rows([raw])
