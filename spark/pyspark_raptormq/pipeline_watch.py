"""Finds dead streaming queries in the driver of a SparkPipeline, whose application may continue without them.

A running driver does not prove that its queries run: an application that waits for one query does not detect the end of
another, and a JVM without memory for threads leaves queries that never report again. Four faults:

    failed        a query ended with an error, and neither the application ended nor did the query start again
    vanished      Spark no longer has a query, and did not report its end
    stalled       a trigger is active, and for the progress deadline no task and no batch was completed
    no answer     Spark's JVM has ended or hangs, or its context was stopped, and the application continues

A query that ends without an error is not a fault: its application stopped it, or its trigger was AvailableNow.
A query that waits for its next trigger or for executors is not stalled.

`QueryWatch` decides from events of Spark and from observations. It is pure; the clock is passed in. `watch_session`
makes the observations in one thread and the decisions in another one, because calls of a hanging JVM do not return.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_raptormq.pipeline_progress import cause_in
from raptormq.errors import RaptorMQError

GRACE_S = 30.0
"""Time in seconds in which an application may end, or restart the query, after a query failed or vanished."""
NO_ANSWER_S = 120.0
"""Time in seconds without an observation after which Spark counts as dead."""
DEADLINE_S = 1800.0
"""Default of the progress deadline in seconds."""
INTERVAL_S = 2.0
"""Interval in seconds of observations and decisions."""


class QueryFailed(RaptorMQError):
    """A streaming query of the driver is dead. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of an active query according to Spark."""

    waits: bool
    """Whether the query waits for its next trigger, or for executors."""
    done: tuple[int, ...]
    """A value that changes whenever a job starts or a task is completed."""


@dataclass(slots=True)
class _Run:
    """One run of a query."""

    query: str
    """Id of the query, which is the same after a restart from its checkpoint."""
    name: str
    moved_at: float
    missed_at: float | None = None
    """Time at which Spark no longer had the query, although its end was not reported; None while Spark has it."""
    done: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    """The end of a run with the error `text`, at a time of the clock."""

    run: _Run
    text: str
    at: float


class QueryWatch(StreamingQueryListener):
    """Keeps the known state of the queries of a session, and finds dead ones."""

    def __init__(self, deadline_s: float = DEADLINE_S, clock: Callable[[], float] = time.monotonic) -> None:
        """`deadline_s` is the progress deadline in seconds."""
        self._deadline_s = deadline_s
        self._clock = clock
        self._changed = threading.Condition()
        self._runs: dict[str, _Run] = {}
        self._failed: list[_Failure] = []
        self._observed_at = clock()
        self._trouble = ""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Start to watch the run. A query with the id or name of a failed one replaces it. Spark calls this before
        `start()` returns, so that no query is missed.
        """
        run = _Run(str(event.id), event.name or str(event.id), self._clock())
        with self._changed:
            self._runs[str(event.runId)] = run
            self._failed = [each for each in self._failed if each.run.query != run.query and each.run.name != run.name]

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Record that a batch was completed."""
        self._move(str(event.progress.runId))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Record that a trigger found nothing to read."""
        self._move(str(event.runId))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Stop watching the run, and keep its error."""
        with self._changed:
            run = self._runs.pop(str(event.runId), None)
            if run is not None and event.exception:
                text = f"query {run.name} failed: {cause_in(event.exception)}"
                self._failed.append(_Failure(run, text, self._clock()))
            self._changed.notify_all()

    def observe(self, active: Mapping[str, Observation]) -> None:
        """Record an observation: the active queries by the id of their run."""
        now = self._clock()
        with self._changed:
            self._observed_at, self._trouble = now, ""
            for key, run in self._runs.items():
                found = active.get(key)
                if found is None:
                    run.missed_at = now if run.missed_at is None else run.missed_at
                    continue
                run.missed_at = None
                if found.waits or found.done != run.done:
                    run.moved_at, run.done = now, found.done

    def observation_failed(self, error: BaseException) -> None:
        """Record why Spark cannot be observed."""
        with self._changed:
            self._trouble = f"{type(error).__name__}: {error}".splitlines()[0]

    def fault(self) -> str | None:
        """Return the first fault as one sentence; None without one."""
        now = self._clock()
        with self._changed:
            for failure in self._failed:
                if now - failure.at >= GRACE_S:
                    return failure.text
            if now - self._observed_at >= NO_ANSWER_S:
                said = f": {self._trouble}" if self._trouble else ""
                return f"Spark has not answered for {NO_ANSWER_S:.0f} s{said}"
            for run in self._runs.values():
                if run.missed_at is not None and now - run.missed_at >= GRACE_S:
                    return f"query {run.name} ended, and Spark did not report why"
                if now - run.moved_at >= self._deadline_s:
                    what = f"no task and no batch was completed for {self._deadline_s:.0f} s"
                    return f"query {run.name} is stalled: {what}"
        return None

    def wait(self, *, stopped: bool) -> None:
        """Wait until every query has ended, after the end of the application. No query can be started again, so the
        first error is final.

        Args:
            stopped: whether the application has stopped Spark. Spark may then not report the ends of its queries.

        Raises:
            QueryFailed: A query failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failed or stopped or not self._runs)
            if self._failed:
                raise QueryFailed(self._failed[0].text)

    def _move(self, run_id: str) -> None:
        with self._changed:
            if (run := self._runs.get(run_id)) is not None:
                run.moved_at = self._clock()


def watch_session(session: SparkSession, watch: QueryWatch, end: Callable[[str], Any]) -> None:
    """Watch the queries of a session in two threads. `end` is called with the first fault."""

    def observe() -> None:
        while True:
            try:
                watch.observe({str(query.runId): _observation(session, query) for query in session.streams.active})
            except Exception as error:  # noqa: BLE001 - errors of py4j, of the connection, and of a stopped context
                watch.observation_failed(error)
            time.sleep(INTERVAL_S)

    def decide() -> None:
        while (fault := watch.fault()) is None:
            time.sleep(INTERVAL_S)
        end(fault)

    for target in (observe, decide):
        threading.Thread(target=target, name=f"query-watch-{target.__name__}", daemon=True).start()


def _observation(session: SparkSession, query: StreamingQuery) -> Observation:
    if not query.status["isTriggerActive"]:
        return Observation(True, ())
    tracker = session.sparkContext.statusTracker()
    jobs = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(str(query.runId)))
    numbers = [number for job in jobs if (info := tracker.getJobInfo(job)) for number in info.stageIds]
    stages = [stage for number in numbers if (stage := tracker.getStageInfo(number)) is not None]
    waits = bool(stages) and not any(stage.numActiveTasks for stage in stages) and not _has_idle_executors(session)
    return Observation(waits, (*sorted(jobs), sum(stage.numCompletedTasks for stage in stages)))


def _has_idle_executors(session: SparkSession) -> bool:
    """Return whether there are executors and none of them runs a task of any query."""
    executors = session.sparkContext.statusTracker().getExecutorInfos()
    # Spark lists the driver as an executor, but the driver runs tasks only in local mode.
    count = len(executors) - (0 if str(session.sparkContext.master).startswith("local") else 1)
    return count > 0 and not any(each.numRunningTasks for each in executors)
