"""When a streaming query counts as dead, derived from events and observations, with a clock that the test advances."""

from __future__ import annotations

from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_raptormq.pipeline_watch import GRACE_S, NO_ANSWER_S, Observation, QueryFailed, QueryWatch

DEADLINE_S = 600.0
WORKS, WAITS = Observation(False, (1, 7)), Observation(True, ())
TRACE = """org.apache.spark.SparkException: [STREAM_FAILED] Query terminated
Traceback (most recent call last):
  File "application.py", line 3
ValueError: no such column: delay

\tat org.apache.spark.Something(Something.scala:5)
"""


class Driver:
    """A watch, and the events of a driver. The ids of a query and its runs are derived from its name."""

    def __init__(self) -> None:
        self.time = 0.0
        self.watch = QueryWatch(DEADLINE_S, lambda: self.time)

    def start(self, name: str, run: str = "1", query: str = "") -> None:
        event: Any = SimpleNamespace(id=query or name, runId=name + run, name=name)
        self.watch.onQueryStarted(event)

    def end(self, name: str, exception: str | None, run: str = "1") -> None:
        event: Any = SimpleNamespace(runId=name + run, exception=exception)
        self.watch.onQueryTerminated(event)

    def progress(self, name: str) -> None:
        event: Any = SimpleNamespace(progress=SimpleNamespace(runId=name + "1"))
        self.watch.onQueryProgress(event)

    def idle(self, name: str) -> None:
        event: Any = SimpleNamespace(runId=name + "1")
        self.watch.onQueryIdle(event)

    def after(self, seconds: float, **active: Observation) -> str | None:
        """Return the fault after this many seconds and one more observation."""
        self.time += seconds
        self.watch.observe({name + "1": each for name, each in active.items()})
        return self.watch.fault()


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_a_failed_query_is_dead_unless_the_application_starts_it_again(driver: Driver) -> None:
    driver.start("a")
    driver.end("a", TRACE)
    assert driver.after(GRACE_S - 1) is None
    assert driver.after(1) == "query a failed: ValueError: no such column: delay"
    driver.start("a", "2", query="without the checkpoint")
    assert driver.after(0, a=WORKS) is None
    driver.start("b")
    driver.end("b", "java.lang.OutOfMemoryError: unable to create native thread\n\tat org.apache")
    assert driver.after(GRACE_S) == "query b failed: java.lang.OutOfMemoryError: unable to create native thread"
    driver.start("renamed", query="b")
    driver.end("a", None, "2")
    assert driver.after(0, renamed=WORKS) is None


def test_a_query_that_was_stopped_or_is_complete_is_not_dead(driver: Driver) -> None:
    driver.start("a")
    driver.end("a", None)
    assert driver.after(10 * DEADLINE_S) is None


def test_a_query_that_spark_no_longer_has_is_dead(driver: Driver) -> None:
    driver.start("a")
    assert driver.after(1) is None
    assert driver.after(GRACE_S - 1, a=WORKS) is None
    assert driver.after(1) is None
    assert driver.after(GRACE_S) == "query a ended, and Spark did not report why"


def test_a_trigger_without_a_completed_task_is_stalled(driver: Driver) -> None:
    driver.start("a")
    assert driver.after(1, a=WORKS) is None
    assert driver.after(DEADLINE_S - 1, a=WORKS) is None
    assert driver.after(1, a=WORKS) == "query a is stalled: no task and no batch was completed for 600 s"


@pytest.mark.parametrize("sign", ["task", "progress", "idle", "waits"])
def test_any_sign_of_life_moves_the_deadline(driver: Driver, sign: str) -> None:
    driver.start("a")
    assert driver.after(DEADLINE_S - 1, a=WORKS) is None
    assert driver.after(DEADLINE_S - 1, a=WORKS) is None
    signs = {"progress": driver.progress, "idle": driver.idle}
    if sign in signs:
        signs[sign]("a")
    last = {"task": Observation(False, (1, 8)), "waits": WAITS}.get(sign, WORKS)
    assert driver.after(1, a=last) is None
    assert driver.after(DEADLINE_S - 2, a=last) is None
    # The progress of one query does not count for another.
    driver.start("b")
    assert driver.after(2, a=last, b=WORKS) == (
        None if sign == "waits" else "query a is stalled: no task and no batch was completed for 600 s"
    )


def test_spark_that_does_not_answer_is_dead(driver: Driver) -> None:
    assert driver.after(NO_ANSWER_S - 1) is None
    driver.time += NO_ANSWER_S
    assert driver.watch.fault() == "Spark has not answered for 120 s"
    driver.watch.observation_failed(ConnectionRefusedError("refused\nmore"))
    assert driver.watch.fault() == "Spark has not answered for 120 s: ConnectionRefusedError: refused"
    assert driver.after(0) is None


def test_after_its_end_an_application_waits_for_its_queries(driver: Driver) -> None:
    driver.watch.wait(stopped=False)
    driver.start("a")
    driver.watch.wait(stopped=True)
    ended = Event()

    def wait() -> None:
        driver.watch.wait(stopped=False)
        ended.set()

    waiting = Thread(target=wait)
    waiting.start()
    driver.end("unknown", None)
    assert not ended.is_set()
    driver.end("a", None)
    waiting.join(10)
    assert ended.is_set()
    for name in ("b", "c"):
        driver.start(name)
    driver.end("c", TRACE)
    for stopped in (False, True):
        with pytest.raises(QueryFailed, match="query c failed: ValueError: no such column: delay"):
            driver.watch.wait(stopped=stopped)
