"""The driver process of a SparkPipeline: its endpoints, its waits, and its files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_raptormq.offsets import ReportedEnds, StreamOffset
from pyspark_raptormq.pipeline_driver import PORT, QUERY_FAILED, local_file
from pyspark_raptormq.pipeline_progress import MAX_CAUSE, ProgressListener, cause
from raptormq.client import Message
from raptormq.errors import ConfigError
from raptormq.protocol.message import MessageQueue
from raptormq_operator.manifests import pipeline as manifests
from tests.names import unique
from tests.spark.sending import create_topic, send

PROGRAM = """
import sys
from pathlib import Path
from pyspark_raptormq import pipeline_driver, pipeline_watch
pipeline_watch.GRACE_S, pipeline_watch.NO_ANSWER_S, pipeline_watch.INTERVAL_S = 1.0, 20.0, 0.2
pipeline_driver.PORT = int(sys.argv[1])
pipeline_driver.TERMINATION_MESSAGE = Path(sys.argv[2])
sys.exit(pipeline_driver.main(sys.argv[3:]))
"""
COUNT = """
import os, sys
from threading import Event
from pyspark.sql import SparkSession
stream = SparkSession.builder.appName("count").getOrCreate().readStream.format("raptormq")
stream = stream.option("nameServer", sys.argv[1]).option("subscribe", os.environ["RAPTORMQ_TOPICS"])
rows = stream.option("startingOffsets", "earliest").load()
if sys.argv[2] == "fail":
    def each(frame, number):
        raise ValueError("no such column: delay")
    rows.writeStream.foreachBatch(each).start().awaitTermination()
if sys.argv[2] != "hang":
    writer = rows.writeStream.format("noop").queryName("count")
    count = writer.option("checkpointLocation", os.environ["RAPTORMQ_CHECKPOINT"]).start()
if sys.argv[2] not in ("go", "sleep"):
    def each(frame, number):
        if sys.argv[2] == "hang":
            Event().wait()
        raise ValueError("no such column: delay")
    rows.writeStream.foreachBatch(each).queryName("other").start()
if sys.argv[2] == "wait-for-another":
    count.awaitTermination()
if sys.argv[2] in ("hang", "sleep"):
    Event().wait()
sys.exit(0)
"""


class Driver:
    """A driver process in local mode."""

    def __init__(self, folder: Path, port: int, topic: str, *arguments: str) -> None:
        self.port, self.message = port, folder / "termination-log"
        self.message.touch()
        application = folder / "application.py"
        application.write_text(COUNT)
        temporary = f"--driver-java-options -Djava.io.tmpdir={folder}"
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"--master local[1] --conf spark.ui.enabled=false {temporary} pyspark-shell",
            "SPARK_LOCAL_DIRS": str(folder),
            "TMPDIR": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "RAPTORMQ_TOPICS": topic,
            "RAPTORMQ_CHECKPOINT": str(folder / "checkpoint"),
        }
        if "hang" in arguments:
            environment["RAPTORMQ_PROGRESS_DEADLINE_S"] = "5"
        command = [sys.executable, "-c", PROGRAM, str(port), str(self.message), str(application), *arguments]
        self.process = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.DEVNULL)

    def progress(self) -> list[dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/progress", timeout=5) as answer:
                found: list[dict[str, Any]] = json.load(answer)["queries"]
        except OSError:
            return []
        return found

    def until(self, condition: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        deadline = time.monotonic() + 180
        while not condition(found := self.progress()):
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return found


def children(parent: int, name: str) -> list[int]:
    """Return the direct children of a process with this program name."""
    found = subprocess.run(["pgrep", "-P", str(parent), "-x", name], capture_output=True, text=True, check=True)
    return [int(line) for line in found.stdout.split()]


@pytest.fixture
def driver(tmp_path: Path, free_port: int) -> Iterator[Callable[..., Driver]]:
    started: list[Driver] = []

    def start(*arguments: str) -> Driver:
        started.append(Driver(tmp_path, free_port, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.fixture
def topic(name_server: str) -> str:
    found = unique("pipeline")
    create_topic(name_server, found, 1)
    send(name_server, [Message(found, b"x", keys=(str(number),)) for number in range(30)], 1)
    return found


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_progress_is_served_until_the_driver_is_told_to_stop(
    driver: Callable[..., Driver], name_server: str, topic: str
) -> None:
    running = driver(topic, name_server, "go")
    (query,) = running.until(lambda queries: bool(queries) and queries[0].get("lag") == 0)
    assert query["name"] == "count"
    assert [list(queues.values()) for queues in query["offsets"][topic].values()] == [[30]]
    with urllib.request.urlopen(f"http://127.0.0.1:{running.port}/metrics", timeout=5) as answer:
        assert b"raptormq_spark_rows_total" in answer.read()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(60) == 128 + signal.SIGTERM


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_cause_of_a_failure_is_left_in_one_line(
    driver: Callable[..., Driver], name_server: str, topic: str
) -> None:
    failing = driver(topic, name_server, "fail")
    assert failing.process.wait(180) == QUERY_FAILED
    # On a slow machine the watch of the queries reports before the application has ended with the same error.
    report = r"(query [0-9a-f-]+ failed: )?ValueError: no such column: delay"
    assert re.fullmatch(report, failing.message.read_text())


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("application", "words"),
    [
        ("end", "query other failed: ValueError: no such column: delay"),
        ("wait-for-another", "query other failed: ValueError: no such column: delay"),
        ("hang", "query other is stalled: no task and no batch was completed for 5 s"),
    ],
)
def test_a_dead_query_ends_a_driver_whose_application_does_not_notice(
    driver: Callable[..., Driver], name_server: str, topic: str, application: str, words: str
) -> None:
    dying = driver(topic, name_server, application)
    assert dying.process.wait(180) == QUERY_FAILED
    assert dying.message.read_text() == words


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_driver_ends_after_its_jvm(driver: Callable[..., Driver], name_server: str, topic: str) -> None:
    running = driver(topic, name_server, "sleep")
    running.until(lambda queries: bool(queries) and queries[0].get("lag") == 0)
    (jvm,) = children(running.process.pid, "java")
    os.kill(jvm, signal.SIGKILL)
    assert running.process.wait(180) == QUERY_FAILED
    assert running.message.read_text().startswith("Spark has not answered for 20 s: ")


def test_the_operator_knows_the_port_and_the_exit_code() -> None:
    assert (manifests.PROGRESS_PORT, manifests.QUERY_FAILED) == (PORT, QUERY_FAILED)


def test_an_application_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the image has no file /opt/none.py"):
        local_file("/opt/none.py", tmp_path)
    with pytest.raises(ConfigError, match=r"cannot download http://127.0.0.1:1/a.py"):
        local_file("http://127.0.0.1:1/a.py", tmp_path)


def test_an_application_with_a_url_is_downloaded(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text("print(1)")

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    assert local_file(f"{address}/served.py", tmp_path).read_text() == "print(1)"
    with pytest.raises(ConfigError, match="404"):
        local_file(f"{address}/none.py", tmp_path)
    server.shutdown()
    server.server_close()


def test_the_cause_is_the_last_line_of_the_last_stack_trace() -> None:
    trace = "Traceback (most recent call last):\n  File x\nraptormq.errors.ServerError: 17: no\n\nat org"
    text = f"[STREAM_FAILED] terminated\n{trace}"
    assert cause(RuntimeError(text)) == "raptormq.errors.ServerError: 17: no"
    assert cause(KeyError("a")) == "KeyError: 'a'"
    assert cause(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert len(cause(ValueError("x" * 5000))) == MAX_CAUSE


def test_nothing_has_been_read_at_the_beginning() -> None:
    assert json.loads(ProgressListener().document()) == {"queries": []}


def progress(end: StreamOffset, latest: ReportedEnds | None) -> Any:
    """Return the event of a batch of the query `flights`, which also reads from another system."""
    ours = SimpleNamespace(
        endOffset=json.dumps(end.to_document()), latestOffset=latest and json.dumps(latest.to_document())
    )
    other = SimpleNamespace(endOffset='{"t": {"0": 5}}', latestOffset='{"t": {"0": 9}}')
    batch = SimpleNamespace(
        id="id", name="flights", batchId=3, processedRowsPerSecond=12.34, sources=[ours, other], numInputRows=50
    )
    return SimpleNamespace(progress=batch)


def test_a_repeated_batch_has_offsets_and_no_lag_until_nothing_is_left_to_read() -> None:
    queue, listener = MessageQueue("t", "broker-0", 1), ProgressListener()
    document: dict[str, Any] = {"name": "flights", "batch": 3, "rowsPerSecond": 12.3}
    document["offsets"] = {"t": {"broker-0": {"1": 7}}}
    idle: Any = SimpleNamespace(id="id")
    listener.onQueryIdle(idle)

    listener.onQueryProgress(progress(StreamOffset({queue: 7}), None))
    assert json.loads(listener.document()) == {"queries": [document]}
    listener.onQueryIdle(idle)
    assert json.loads(listener.document()) == {"queries": [document | {"lag": 0, "rowsPerSecond": 0.0}]}

    listener.onQueryProgress(progress(StreamOffset({queue: 7}), ReportedEnds({queue: 9})))
    assert json.loads(listener.document()) == {"queries": [document | {"lag": 2}]}
    listener.onQueryIdle(idle)
    assert json.loads(listener.document()) == {"queries": [document | {"lag": 2, "rowsPerSecond": 0.0}]}
