"""Waiting for tasks of a running Spark job."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

POLL_S = 0.02


def wait_for_tasks(spark: SparkSession, count: int, is_over: Callable[[], bool]) -> None:
    """Wait until `count` tasks of a running stage are done. Nothing else may run in the session.

    Raises:
        AssertionError: the job is over.
    """
    tracker = spark.sparkContext.statusTracker()
    while True:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        if any(stage is not None and stage.numCompletedTasks == count for stage in stages):
            return
        assert not is_over(), "the job is over"
        time.sleep(POLL_S)
